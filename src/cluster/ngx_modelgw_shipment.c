
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


static ngx_int_t ngx_modelgw_shipment_added(ngx_modelgw_shipment_t *s,
    ngx_uint_t n, int64_t id, ngx_uint_t failed);
static void ngx_modelgw_shipment_spread(ngx_modelgw_shipment_t *s,
    ngx_uint_t i);
static ngx_uint_t ngx_modelgw_shipment_equal(ngx_modelgw_pq_array_t *a,
    u_char *data, size_t len);


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
    ngx_uint_t  i;

    s->n = 0;
    s->once = NGX_MODELGW_SHIPMENT_ONCE;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        ngx_modelgw_pq_array_begin(&s->columns[i],
                                   (i < NGX_MODELGW_SHIPMENT_NUMBERS)
                                   ? NGX_MODELGW_PQ_INT8
                                   : NGX_MODELGW_PQ_TEXT);
    }
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
    int64_t      number;
    ngx_str_t   *text;
    ngx_uint_t   i, failed;

    if (s->n == 0) {
        ngx_modelgw_shipment_clear(s);
        s->first = call->pos;

    } else if (call->pos != s->first + s->n) {
        return NGX_DECLINED;
    }

    failed = 0;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_NUMBERS; i++) {
        number = *(int64_t *) ((u_char *) call
                               + ngx_modelgw_shipment_columns[i]);

        if (s->n == 0) {
            s->numbers[i] = number;

        } else if (s->once & (1 << i)) {

            if (number == s->numbers[i]) {
                continue;
            }

            ngx_modelgw_shipment_spread(s, i);
        }

        ngx_modelgw_pq_array_int(&s->columns[i], number);
        failed |= s->columns[i].failed;
    }

    for ( /* void */ ; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        text = (ngx_str_t *) ((u_char *) call
                              + ngx_modelgw_shipment_columns[i]);

        if (s->n && (s->once & (1 << i))) {

            if (ngx_modelgw_shipment_equal(&s->columns[i], text->data,
                                           text->len))
            {
                continue;
            }

            ngx_modelgw_shipment_spread(s, i);
        }

        ngx_modelgw_pq_array_text(&s->columns[i], text->data, text->len);
        failed |= s->columns[i].failed;
    }

    return ngx_modelgw_shipment_added(s, 1, call->id, failed);
}


ngx_int_t
ngx_modelgw_shipment_append(ngx_modelgw_shipment_t *s,
    ngx_modelgw_shipment_t *from)
{
    u_char                  *p;
    ngx_str_t                element;
    ngx_uint_t               i, once, failed;
    ngx_modelgw_pq_array_t  *a;

    if (from->first != s->first + s->n) {
        return NGX_DECLINED;
    }

    failed = 0;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        a = &from->columns[i];
        once = from->once & (1 << i);

        if (s->once & (1 << i)) {
            p = ngx_modelgw_pq_array_next(a, NULL, &element);

            if (once && p && ngx_modelgw_shipment_equal(&s->columns[i],
                                                        element.data,
                                                        element.len))
            {
                continue;
            }

            ngx_modelgw_shipment_spread(s, i);
        }

        ngx_modelgw_pq_array_append(&s->columns[i], a, once ? from->n : 1);
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


/* Whether it is the first element. */

static ngx_uint_t
ngx_modelgw_shipment_equal(ngx_modelgw_pq_array_t *a, u_char *data, size_t len)
{
    ngx_str_t  first;

    return ngx_modelgw_pq_array_next(a, NULL, &first) && first.len == len
           && ngx_memcmp(first.data, data, len) == 0;
}
