
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


static ngx_int_t ngx_modelgw_shipment_begin(ngx_modelgw_shipment_t *s,
    ngx_modelgw_journal_call_t *call);
static void ngx_modelgw_shipment_column(ngx_modelgw_shipment_t *s,
    ngx_uint_t i, ngx_modelgw_journal_call_t *calls, ngx_uint_t n);
static ngx_uint_t ngx_modelgw_shipment_same(ngx_modelgw_shipment_t *s,
    ngx_uint_t i, ngx_modelgw_journal_call_t *calls, ngx_uint_t n);
static void ngx_modelgw_shipment_spread(ngx_modelgw_shipment_t *s,
    ngx_uint_t i);
static ngx_inline ngx_uint_t ngx_modelgw_shipment_equal(ngx_str_t *a,
    ngx_str_t *b);


/* the ids tell how many calls there are */

#define NGX_MODELGW_SHIPMENT_ONCE                                             \
    (((1 << NGX_MODELGW_SHIPMENT_COLUMNS) - 1)                                \
     & ~(1 << NGX_MODELGW_SHIPMENT_ID))

#define ngx_modelgw_shipment_number(name)                                     \
    ngx_modelgw_pq_number(ngx_modelgw_journal_call_t, name)

#define ngx_modelgw_shipment_text(name)                                       \
    ngx_modelgw_pq_string(ngx_modelgw_journal_call_t, name)

static const ngx_modelgw_pq_column_t  ngx_modelgw_shipment_columns[] = {

    ngx_modelgw_shipment_number(id),
    ngx_modelgw_shipment_number(price),
    ngx_modelgw_shipment_number(time),
    ngx_modelgw_shipment_number(ended),
    ngx_modelgw_shipment_number(input),
    ngx_modelgw_shipment_number(cache_read),
    ngx_modelgw_shipment_number(cache_write),
    ngx_modelgw_shipment_number(cache_write_1h),
    ngx_modelgw_shipment_number(output),
    ngx_modelgw_shipment_number(reasoning),
    ngx_modelgw_shipment_number(cost),
    ngx_modelgw_shipment_number(status),
    ngx_modelgw_shipment_number(first_byte),
    ngx_modelgw_shipment_number(flags),

    ngx_modelgw_shipment_text(account),
    ngx_modelgw_shipment_text(key),
    ngx_modelgw_shipment_text(model),
    ngx_modelgw_shipment_text(outcome),
    ngx_modelgw_shipment_text(end),
    ngx_modelgw_shipment_text(request_id)
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
    ngx_modelgw_journal_call_t *calls, ngx_uint_t n)
{
    int64_t     last;
    ngx_uint_t  i;

    last = calls[n - 1].id;

    if (s->n == 0) {

        if (ngx_modelgw_shipment_begin(s, calls) != NGX_OK) {
            goto failed;
        }

        calls++;
        n--;

    } else if (calls->pos != s->first + s->n) {
        return NGX_DECLINED;
    }

    for (i = 0; n && i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        ngx_modelgw_shipment_column(s, i, calls, n);

        if (s->columns[i].failed) {
            goto failed;
        }
    }

    s->n += n;
    s->id = last;

    return NGX_OK;

failed:

    s->n = 0;

    return NGX_ERROR;
}


/* With a first call. */

static ngx_int_t
ngx_modelgw_shipment_begin(ngx_modelgw_shipment_t *s,
    ngx_modelgw_journal_call_t *call)
{
    ngx_str_t                       value;
    ngx_uint_t                      i;
    ngx_modelgw_pq_array_t         *a;
    const ngx_modelgw_pq_column_t  *column;

    s->n = 1;
    s->first = call->pos;
    s->once = NGX_MODELGW_SHIPMENT_ONCE;

    for (i = 0; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        a = &s->columns[i];
        column = &ngx_modelgw_shipment_columns[i];

        ngx_modelgw_pq_array_begin(a, column->type);
        ngx_modelgw_pq_array_column(a, column, call, 0, 1);

        /* the array does not grow, and so move, while it has one element */

        if (ngx_modelgw_pq_array_next(a, NULL, &value) == NULL) {
            return NGX_ERROR;
        }

        if (i < NGX_MODELGW_SHIPMENT_NUMBERS) {
            s->numbers[i] = ngx_modelgw_pq_read(value.data, value.len);

        } else {
            s->texts[i - NGX_MODELGW_SHIPMENT_NUMBERS] = value;
        }
    }

    return NGX_OK;
}


static void
ngx_modelgw_shipment_column(ngx_modelgw_shipment_t *s, ngx_uint_t i,
    ngx_modelgw_journal_call_t *calls, ngx_uint_t n)
{
    if (s->once & (1 << i)) {

        if (ngx_modelgw_shipment_same(s, i, calls, n)) {
            return;
        }

        ngx_modelgw_shipment_spread(s, i);
    }

    ngx_modelgw_pq_array_column(&s->columns[i],
                                &ngx_modelgw_shipment_columns[i], calls,
                                sizeof(ngx_modelgw_journal_call_t), n);
}


/* Whether all of them have the value that the column has once. */

static ngx_uint_t
ngx_modelgw_shipment_same(ngx_modelgw_shipment_t *s, ngx_uint_t i,
    ngx_modelgw_journal_call_t *calls, ngx_uint_t n)
{
    u_char     *p;
    int64_t     number;
    ngx_str_t  *text;

    p = (u_char *) calls + ngx_modelgw_shipment_columns[i].offset;

    if (i < NGX_MODELGW_SHIPMENT_NUMBERS) {
        number = s->numbers[i];

        while (n && *(int64_t *) p == number) {
            p += sizeof(ngx_modelgw_journal_call_t);
            n--;
        }

        return n == 0;
    }

    text = &s->texts[i - NGX_MODELGW_SHIPMENT_NUMBERS];

    while (n && ngx_modelgw_shipment_equal((ngx_str_t *) p, text)) {
        p += sizeof(ngx_modelgw_journal_call_t);
        n--;
    }

    return n == 0;
}


static void
ngx_modelgw_shipment_spread(ngx_modelgw_shipment_t *s, ngx_uint_t i)
{
    s->once &= ~(1 << i);

    ngx_modelgw_pq_array_repeat(&s->columns[i], s->n - 1);
}


static ngx_inline ngx_uint_t
ngx_modelgw_shipment_equal(ngx_str_t *a, ngx_str_t *b)
{
    return a->len == b->len && ngx_memcmp(a->data, b->data, a->len) == 0;
}
