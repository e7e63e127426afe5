
/*
 * Calls that the writer has just made durable, for the exchanger: so it does
 * not read from the journal what was in memory a moment ago.  The journal is
 * read where they do not follow what was shipped last: after a start, or when
 * the database was away for so long that there was no room for all of them.
 *
 * Those of a batch are only noted.  When they are durable, they are added to
 * the newest shipment in a ring that the exchanger takes the oldest one from;
 * if the batch fails, they are dropped, and noted again.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_exchange.h"
#include "ngx_modelgw_fresh.h"


#define NGX_MODELGW_FRESH_ROWS  64       /* added at once */


static ngx_uint_t ngx_modelgw_fresh_rows(ngx_modelgw_fresh_call_t *calls,
    ngx_uint_t n, ngx_modelgw_journal_call_t *rows);
static void ngx_modelgw_fresh_row(ngx_modelgw_journal_call_t *row,
    ngx_modelgw_fresh_call_t *added);
static void ngx_modelgw_fresh_ready(ngx_modelgw_fresh_t *f,
    ngx_modelgw_journal_call_t *rows, ngx_uint_t n);
static void ngx_modelgw_fresh_swap(ngx_modelgw_shipment_t *a,
    ngx_modelgw_shipment_t *b);


ngx_int_t
ngx_modelgw_fresh_init(ngx_modelgw_fresh_t *f)
{
    ngx_memzero(f, sizeof(ngx_modelgw_fresh_t));

    return (pthread_mutex_init(&f->mutex, NULL) == 0) ? NGX_OK : NGX_ERROR;
}


void
ngx_modelgw_fresh_free(ngx_modelgw_fresh_t *f)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_FRESH; i++) {
        ngx_modelgw_shipment_free(&f->ready[i]);
    }
}


void
ngx_modelgw_fresh_begin(ngx_modelgw_fresh_t *f)
{
    ngx_modelgw_fresh_durable(f, 0);

    pthread_mutex_lock(&f->mutex);

    f->n = 0;
    f->pos = 0;
    f->end = 0;

    pthread_mutex_unlock(&f->mutex);
}


void
ngx_modelgw_fresh_add(void *data, uint64_t pos, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account)
{
    ngx_modelgw_fresh_t *f = data;

    ngx_modelgw_fresh_call_t  *added;

    f->pos = pos;

    if (f->ncalls == NGX_MODELGW_FRESH_CALLS) {
        return;
    }

    added = &f->calls[f->ncalls++];

    added->pos = pos;
    added->call = call;
    added->account = account;
}


void
ngx_modelgw_fresh_durable(ngx_modelgw_fresh_t *f, ngx_uint_t durable)
{
    ngx_uint_t                  i, n;
    ngx_modelgw_journal_call_t  rows[NGX_MODELGW_FRESH_ROWS];

    if (durable) {
        pthread_mutex_lock(&f->mutex);

        for (i = 0; i < f->ncalls; i += n) {
            n = ngx_modelgw_fresh_rows(&f->calls[i], f->ncalls - i, rows);
            ngx_modelgw_fresh_ready(f, rows, n);
        }

        f->end = f->pos;

        pthread_mutex_unlock(&f->mutex);

    } else {
        f->pos = f->end;
    }

    f->ncalls = 0;
}


/* As many as follow one another; returns how many. */

static ngx_uint_t
ngx_modelgw_fresh_rows(ngx_modelgw_fresh_call_t *calls, ngx_uint_t n,
    ngx_modelgw_journal_call_t *rows)
{
    ngx_uint_t  i;

    n = ngx_min(n, NGX_MODELGW_FRESH_ROWS);

    for (i = 0; i < n && calls[i].pos == calls[0].pos + i; i++) {
        ngx_modelgw_fresh_row(&rows[i], &calls[i]);
    }

    return i;
}


static void
ngx_modelgw_fresh_row(ngx_modelgw_journal_call_t *row,
    ngx_modelgw_fresh_call_t *added)
{
    ngx_modelgw_call_t         *call;
    ngx_modelgw_ledger_name_t  *account;

    call = added->call;
    account = added->account;

    row->pos = added->pos;
    row->id = call->id;
    row->time = call->started;
    row->ended = call->ended;
    row->input = call->charge.tokens.input;
    row->cache_read = call->charge.tokens.cache_read;
    row->cache_write = call->charge.tokens.cache_write;
    row->cache_write_1h = call->charge.tokens.cache_write_1h;
    row->output = call->charge.tokens.output;
    row->reasoning = call->charge.tokens.reasoning;
    row->cost = call->charge.cost;
    row->status = call->seen.status;
    row->first_byte = (call->first_byte == NGX_MODELGW_LEDGER_NONE)
                      ? -1 : (int64_t) call->first_byte;
    row->flags = call->flags;
    row->price = call->price_id;

    row->key.data = call->key_name.data;
    row->key.len = ngx_min(call->key_name.len, NGX_MODELGW_LEDGER_NAME);
    row->account.data = account->data;
    row->account.len = ngx_min(account->len, NGX_MODELGW_LEDGER_NAME);
    row->model.data = call->model;
    row->model.len = ngx_min(call->model_len, NGX_MODELGW_LEDGER_MODEL);
    row->request_id.data = call->request_id;
    row->request_id.len = ngx_min(call->request_id_len,
                                  NGX_MODELGW_LEDGER_REQUEST);

    row->outcome.data = (u_char *) ngx_modelgw_outcome_name(
                                                         call->charge.outcome);
    row->outcome.len = ngx_strlen(row->outcome.data);
    row->end.data = (u_char *) ngx_modelgw_end_name(call->end);
    row->end.len = ngx_strlen(row->end.data);
}


/* What there is no room for is dropped. */

static void
ngx_modelgw_fresh_ready(ngx_modelgw_fresh_t *f,
    ngx_modelgw_journal_call_t *rows, ngx_uint_t n)
{
    ngx_modelgw_shipment_t  *newest;

    if (f->n == 0) {
        f->oldest = 0;                   /* whose memory was used last */

    } else {
        newest = &f->ready[(f->oldest + f->n - 1) % NGX_MODELGW_FRESH];

        if (newest->n
            && newest->n + n <= NGX_MODELGW_EXCHANGE_CALLS
            && ngx_modelgw_shipment_add(newest, rows, n) != NGX_DECLINED)
        {
            return;
        }
    }

    if (f->n < NGX_MODELGW_FRESH) {
        newest = &f->ready[(f->oldest + f->n) % NGX_MODELGW_FRESH];

        ngx_modelgw_shipment_clear(newest);
        (void) ngx_modelgw_shipment_add(newest, rows, n);
        f->n++;
    }
}


ngx_int_t
ngx_modelgw_fresh_take(ngx_modelgw_fresh_t *f, uint64_t pos,
    ngx_modelgw_shipment_t *shipment, uint64_t *end, uint64_t *gap)
{
    ngx_int_t                rc;
    ngx_modelgw_shipment_t  *oldest;

    rc = NGX_DECLINED;
    *gap = NGX_MAX_INT_T_VALUE;

    pthread_mutex_lock(&f->mutex);

    *end = f->end;

    while (f->n) {
        oldest = &f->ready[f->oldest];

        if (oldest->n && oldest->first > pos + 1) {
            *gap = oldest->first - pos - 1;
            break;
        }

        f->oldest = (f->oldest + 1) % NGX_MODELGW_FRESH;
        f->n--;

        if (oldest->n && oldest->first == pos + 1) {
            ngx_modelgw_fresh_swap(shipment, oldest);
            rc = NGX_OK;
            break;
        }
    }

    pthread_mutex_unlock(&f->mutex);

    return rc;
}


static void
ngx_modelgw_fresh_swap(ngx_modelgw_shipment_t *a, ngx_modelgw_shipment_t *b)
{
    ngx_modelgw_shipment_t  c;

    c = *a;
    *a = *b;
    *b = c;
}
