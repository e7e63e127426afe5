
/*
 * libFuzzer: the reader of server-sent events.  The first byte of the input
 * seeds the cuts, the rest is a stream.  Read whole and read in pieces it must
 * give the same data, and the raw bytes, joined, must be the stream.
 */


#include "unit.h"

#include "ngx_modelgw_sse.h"


#define MAX_EVENT  1024


typedef struct {
    u_char  *data;
    size_t   len;
} text_t;


static void
put(text_t *t, void *p, size_t len)
{
    if (len) {
        memcpy(t->data + t->len, p, len);
        t->len += len;
    }
}


static void
check(int ok)
{
    if (!ok) {
        abort();
    }
}


/* at most as many bytes as the event has, and one for each of its lines */

static void
take(ngx_modelgw_sse_event_t *ev, text_t *raw, text_t *data)
{
    u_char      *state;
    ngx_str_t    line;
    ngx_uint_t   n;

    put(raw, ev->raw.data, ev->raw.len);

    state = NULL;

    for (n = 0; ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK; n++) {
        put(data, line.data, line.len);
        put(data, "\n", 1);
    }

    check(n == ev->lines);

    if (n) {
        put(data, ev->name.data, ev->name.len);
        put(data, "\x1f", 1);
    }
}


static ngx_int_t
feed(ngx_modelgw_sse_t *sse, const u_char *p, size_t len, text_t *raw,
    text_t *data)
{
    u_char                   *piece, *pos;
    ngx_int_t                 rc;
    ngx_modelgw_sse_event_t   ev;

    piece = malloc(len ? len : 1);
    check(piece != NULL);

    memcpy(piece, p, len);
    pos = piece;

    while ((rc = ngx_modelgw_sse_next(sse, &pos, piece + len, &ev)) == NGX_OK) {
        check(ev.raw.len != 0 && ev.raw.len <= MAX_EVENT);
        take(&ev, raw, data);
    }

    check(rc == NGX_DECLINED || pos == piece + len);

    free(piece);

    return rc;
}


static ngx_int_t
run(const u_char *p, size_t len, uint32_t seed, text_t *raw, text_t *data)
{
    size_t                    n;
    ngx_int_t                 rc;
    ngx_pool_t               *pool;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_sse_event_t   ev;

    pool = unit_pool_create();

    ngx_modelgw_sse_init(&sse, pool, MAX_EVENT);

    rc = NGX_AGAIN;

    while (len && rc == NGX_AGAIN) {
        n = len;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = (seed >> 16) % 64;
            n = ngx_min(n, len);
        }

        rc = feed(&sse, p, n, raw, data);

        p += n;
        len -= n;
    }

    if (rc == NGX_AGAIN && ngx_modelgw_sse_rest(&sse, &ev) == NGX_OK) {
        put(data, "\x1d", 1);
        take(&ev, raw, data);
    }

    ngx_destroy_pool(pool);

    return rc;
}


/*
 * If a cut splits the CR LF after an event, its LF belongs to the rest, which
 * may consist of nothing else; and it counts in the length of the next event.
 */

static size_t
sense(text_t *t)
{
    if (t->len && t->data[t->len - 1] == 0x1d) {
        return t->len - 1;
    }

    return t->len;
}


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
    size_t     room;
    text_t     raw[2], data[2];
    ngx_int_t  rc[2];

    if (len < 1) {
        return 0;
    }

    room = 3 * len + 8;

    raw[0].data = malloc(4 * room);
    check(raw[0].data != NULL);

    raw[1].data = raw[0].data + room;
    data[0].data = raw[1].data + room;
    data[1].data = data[0].data + room;

    raw[0].len = raw[1].len = data[0].len = data[1].len = 0;

    rc[0] = run(p + 1, len - 1, 0, &raw[0], &data[0]);
    rc[1] = run(p + 1, len - 1, p[0] + 1, &raw[1], &data[1]);

    if (rc[0] == NGX_AGAIN && rc[1] == NGX_AGAIN) {
        check(raw[0].len == len - 1);
        check(raw[1].len == len - 1);
        check(memcmp(raw[0].data, p + 1, len - 1) == 0);
        check(memcmp(raw[1].data, p + 1, len - 1) == 0);

        check(sense(&data[0]) == sense(&data[1]));
        check(memcmp(data[0].data, data[1].data, sense(&data[0])) == 0);
    }

    free(raw[0].data);

    return 0;
}
