
/*
 * libFuzzer: a chat request.  The first three bytes of the input are the
 * model's capabilities and the cuts, the rest is a document.  If the scanner
 * accepts it as a JSON object, the codec must refuse it with a code and a
 * message, or write a request that the scanner accepts, too, and that has
 * nothing a messages upstream is known to refuse, see rules.h.  Fed whole and
 * in pieces it must give the same.
 */


#define _GNU_SOURCE

#include "unit.h"

#define MUTATE_OPTIONS  3

#include "mutate.h"
#include "request.h"


static ngx_int_t
codec(result_t *r, ngx_modelgw_out_t *out)
{
    return ngx_modelgw_request(&r->rq, out);
}


static void
check_written(ngx_modelgw_tape_t *tape, result_t *r)
{
}
