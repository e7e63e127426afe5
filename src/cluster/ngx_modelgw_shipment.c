
/*
 * Most columns have few values, "complete", 200, no tokens from a cache: one
 * whose values are all equal is sent with one of them.
 *
 * Rejected: rows that become columns when they are sent (a call was copied once
 * more, through memory that is cold by then).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_shipment.h"


static void ngx_modelgw_shipment_begin(ngx_modelgw_shipment_t *s,
    uint64_t pos);
static ngx_uint_t ngx_modelgw_shipment_numbers(ngx_modelgw_shipment_t *s,
    u_char *call);
static ngx_uint_t ngx_modelgw_shipment_texts(ngx_modelgw_shipment_t *s,
    u_char *call);
static ngx_int_t ngx_modelgw_shipment_added(ngx_modelgw_shipment_t *s,
    ngx_uint_t n, int64_t id, ngx_uint_t failed);
static void ngx_modelgw_shipment_spread(ngx_modelgw_shipment_t *s,
    ngx_uint_t i);
static ngx_inline ngx_uint_t ngx_modelgw_shipment_equal(ngx_str_t *a,
    ngx_str_t *b);


/* the ids tell how many calls there are */

#define NGX_MODELGW_SHIPMENT_ONCE                                             \
    (((1 << NGX_MODELGW_SHIPMENT_COLUMNS) - 1)                                \
     & ~(1 << NGX_MODELGW_SHIPMENT_ID))

#define ngx_modelgw_shipment_offset(name)                                     \
    offsetof(ngx_modelgw_journal_call_t, name)

static const size_t  ngx_modelgw_shipment_columns[] = {

    ngx_modelgw_shipment_offset(id),
    ngx_modelgw_shipment_offset(price),
    ngx_modelgw_shipment_offset(time),
    ngx_modelgw_shipment_offset(ended),
    ngx_modelgw_shipment_offset(input),
    ngx_modelgw_shipment_offset(cache_read),
    ngx_modelgw_shipment_offset(cache_write),
    ngx_modelgw_shipment_offset(cache_write_1h),
    ngx_modelgw_shipment_offset(output),
    ngx_modelgw_shipment_offset(reasoning),
    ngx_modelgw_shipment_offset(cost),
    ngx_modelgw_shipment_offset(status),
    ngx_modelgw_shipment_offset(first_byte),
    ngx_modelgw_shipment_offset(flags),

    ngx_modelgw_shipment_offset(account),
    ngx_modelgw_shipment_offset(key),
    ngx_modelgw_shipment_offset(model),
    ngx_modelgw_shipment_offset(outcome),
    ngx_modelgw_shipment_offset(end),
    ngx_modelgw_shipment_offset(request_id)
};


void
ngx_modelgw_shipment_clear(ngx_modelgw_shipment_t *s)
{
    s->n = 0;
}


void
ngx_modelgw_shipment_free(ngx_modelgw_shipment_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        ngx_modelgw_pq_array_free(&s->columns[i]);
    }

    s->n = 0;
}


ngx_int_t
ngx_modelgw_shipment_add(ngx_modelgw_shipment_t *s,
    ngx_modelgw_journal_call_t *call)
{
    ngx_uint_t  failed;

    if (s->n == 0) {
        ngx_modelgw_shipment_begin(s, call->pos);

    } else if (call->pos != s->first + s->n) {
        return NGX_DECLINED;
    }

    failed = ngx_modelgw_shipment_numbers(s, (u_char *) call)
             | ngx_modelgw_shipment_texts(s, (u_char *) call);

    return ngx_modelgw_shipment_added(s, 1, call->id, failed);
}


static void
ngx_modelgw_shipment_begin(ngx_modelgw_shipment_t *s, uint64_t pos)
{
    ngx_uint_t  i;

    s->first = pos;
    s->once = NGX_MODELGW_SHIPMENT_ONCE;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        ngx_modelgw_pq_array_begin(&s->columns[i],
                                   (i < NGX_MODELGW_SHIPMENT_NUMBERS)
                                   ? NGX_MODELGW_PQ_INT8
                                   : NGX_MODELGW_PQ_TEXT);
    }
}


static ngx_uint_t
ngx_modelgw_shipment_numbers(ngx_modelgw_shipment_t *s, u_char *call)
{
    int64_t     n;
    ngx_uint_t  i, failed;

    failed = 0;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_NUMBERS; i++) {
        n = *(int64_t *) (call + ngx_modelgw_shipment_columns[i]);

        if (s->n == 0) {
            s->numbers[i] = n;

        } else if (s->once & (1 << i)) {

            if (n == s->numbers[i]) {
                continue;
            }

            ngx_modelgw_shipment_spread(s, i);
        }

        ngx_modelgw_pq_array_int(&s->columns[i], n);
        failed |= s->columns[i].failed;
    }

    return failed;
}


static ngx_uint_t
ngx_modelgw_shipment_texts(ngx_modelgw_shipment_t *s, u_char *call)
{
    ngx_str_t               *text;
    ngx_uint_t               i, column, failed;
    ngx_modelgw_pq_array_t  *a;

    failed = 0;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_TEXTS; i++) {
        column = NGX_MODELGW_SHIPMENT_NUMBERS + i;
        text = (ngx_str_t *) (call + ngx_modelgw_shipment_columns[column]);

        if (s->n && (s->once & (1 << column))) {

            if (ngx_modelgw_shipment_equal(text, &s->texts[i])) {
                continue;
            }

            ngx_modelgw_shipment_spread(s, column);
        }

        a = &s->columns[column];

        ngx_modelgw_pq_array_text(a, text->data, text->len);
        failed |= a->failed;

        /* the array does not grow, and so move, while it has one element */

        if (s->n == 0) {
            (void) ngx_modelgw_pq_array_next(a, NULL, &s->texts[i]);
        }
    }

    return failed;
}


ngx_int_t
ngx_modelgw_shipment_append(ngx_modelgw_shipment_t *s,
    ngx_modelgw_shipment_t *from)
{
    ngx_uint_t  i, bit, failed;

    if (from->first != s->first + s->n) {
        return NGX_DECLINED;
    }

    failed = 0;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        bit = 1 << i;

        if (s->once & bit) {

            if ((from->once & bit)
                && ((i < NGX_MODELGW_SHIPMENT_NUMBERS)
                    ? s->numbers[i] == from->numbers[i]
                    : ngx_modelgw_shipment_equal(
                              &s->texts[i - NGX_MODELGW_SHIPMENT_NUMBERS],
                              &from->texts[i - NGX_MODELGW_SHIPMENT_NUMBERS])))
            {
                continue;
            }

            ngx_modelgw_shipment_spread(s, i);
        }

        ngx_modelgw_pq_array_append(&s->columns[i], &from->columns[i],
                                    (from->once & bit) ? from->n : 1);
        failed |= s->columns[i].failed;
    }

    return ngx_modelgw_shipment_added(s, from->n, from->id, failed);
}


static ngx_int_t
ngx_modelgw_shipment_added(ngx_modelgw_shipment_t *s, ngx_uint_t n, int64_t id,
    ngx_uint_t failed)
{
    if (failed) {
        s->n = 0;
        return NGX_ERROR;
    }

    s->n += n;
    s->id = id;

    return NGX_OK;
}


static void
ngx_modelgw_shipment_spread(ngx_modelgw_shipment_t *s, ngx_uint_t i)
{
    s->once &= ~(1 << i);

    ngx_modelgw_pq_array_append(&s->columns[i], &s->columns[i], s->n - 1);
}


static ngx_inline ngx_uint_t
ngx_modelgw_shipment_equal(ngx_str_t *a, ngx_str_t *b)
{
    return a->len == b->len && ngx_memcmp(a->data, b->data, a->len) == 0;
}
