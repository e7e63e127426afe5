
/*
 * libFuzzer: events that repeat the previous one.  The first byte of the input
 * seeds the cuts, the second one is the protocol, the rest is a stream.  Read
 * with and without the fast path it must give the same events, model ids,
 * texts, chunks and usage.
 */


#define _GNU_SOURCE

#include "unit.h"
#include "repeat.h"

#define MUTATE_OPTIONS  2
#define MUTATE_STREAM   1

#include "mutate.h"


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
    ngx_uint_t  protocol;

    if (len < 2) {
        return 0;
    }

    protocol = (p[1] & 2) ? NGX_MODELGW_RESPONSES
               : (p[1] & 1) ? NGX_MODELGW_CHAT
               : NGX_MODELGW_MESSAGES;

    (void) repeat_compare(protocol, p + 2, len - 2, ngx_max(len, 1), 0);
    (void) repeat_compare(protocol, p + 2, len - 2, 8 * p[0] + 64, p[0] + 1);

    return 0;
}
