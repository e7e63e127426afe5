
/*
 * Calls that the writer has just made durable, for the exchanger: so it does
 * not read from the journal what was in memory a moment ago.  The journal is
 * read where they do not follow what was shipped last: after a start, or when
 * the database was away for so long that there was no room for all of them.
 *
 * A ring with one thread at each end.  What is added counts when the batch is
 * committed; if that fails, it is added again.
 *
 *     sent <= ready <= next      calls that were ever taken, ready, added
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_fresh.h"


/* of a call: the names of the key and the account, the model, the request id */

#define NGX_MODELGW_FRESH_TEXT  (2 * NGX_MODELGW_LEDGER_NAME                  \
                                 + NGX_MODELGW_LEDGER_MODEL                   \
                                 + NGX_MODELGW_LEDGER_REQUEST)


static u_char *ngx_modelgw_fresh_text(ngx_str_t *text, u_char *p, u_char *data,
    size_t len);


ngx_int_t
ngx_modelgw_fresh_init(ngx_modelgw_fresh_t *f)
{
    ngx_memzero(f, sizeof(ngx_modelgw_fresh_t));

    f->calls = malloc(NGX_MODELGW_FRESH * (sizeof(ngx_modelgw_journal_call_t)
                                           + NGX_MODELGW_FRESH_TEXT));
    if (f->calls == NULL) {
        return NGX_ERROR;
    }

    f->texts = (u_char *) &f->calls[NGX_MODELGW_FRESH];

    return NGX_OK;
}


void
ngx_modelgw_fresh_free(ngx_modelgw_fresh_t *f)
{
    free(f->calls);
    f->calls = NULL;
}


void
ngx_modelgw_fresh_begin(ngx_modelgw_fresh_t *f)
{
    f->sent = 0;
    f->ready = 0;
    f->next = 0;
    f->pos = 0;
    f->end = 0;
}


void
ngx_modelgw_fresh_add(void *data, uint64_t pos, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account)
{
    ngx_modelgw_fresh_t *f = data;

    u_char                      *p;
    const char                  *name;
    ngx_uint_t                   i;
    ngx_modelgw_journal_call_t  *copy;

    f->pos = pos;

    if (f->next - __atomic_load_n(&f->sent, __ATOMIC_ACQUIRE)
        == NGX_MODELGW_FRESH)
    {
        return;
    }

    i = f->next++ % NGX_MODELGW_FRESH;

    copy = &f->calls[i];

    copy->pos = pos;
    copy->id = call->id;
    copy->time = call->started;
    copy->ended = call->ended;
    copy->input = call->charge.tokens.input;
    copy->cache_read = call->charge.tokens.cache_read;
    copy->cache_write = call->charge.tokens.cache_write;
    copy->cache_write_1h = call->charge.tokens.cache_write_1h;
    copy->output = call->charge.tokens.output;
    copy->reasoning = call->charge.tokens.reasoning;
    copy->cost = call->charge.cost;
    copy->status = call->seen.status;
    copy->first_byte = (call->first_byte == NGX_MODELGW_LEDGER_NONE)
                       ? -1 : (int64_t) call->first_byte;
    copy->flags = call->flags;
    copy->price = call->price_id;

    p = f->texts + i * NGX_MODELGW_FRESH_TEXT;

    p = ngx_modelgw_fresh_text(&copy->key, p, call->key_name.data,
                               ngx_min(call->key_name.len,
                                       NGX_MODELGW_LEDGER_NAME));
    p = ngx_modelgw_fresh_text(&copy->account, p, account->data,
                               ngx_min(account->len, NGX_MODELGW_LEDGER_NAME));
    p = ngx_modelgw_fresh_text(&copy->model, p, call->model,
                               ngx_min(call->model_len,
                                       NGX_MODELGW_LEDGER_MODEL));
    (void) ngx_modelgw_fresh_text(&copy->request_id, p, call->request_id,
                                  ngx_min(call->request_id_len,
                                          NGX_MODELGW_LEDGER_REQUEST));

    name = ngx_modelgw_outcome_name(call->charge.outcome);
    copy->outcome.data = (u_char *) name;
    copy->outcome.len = ngx_strlen(name);

    name = ngx_modelgw_end_name(call->end);
    copy->end.data = (u_char *) name;
    copy->end.len = ngx_strlen(name);
}


static u_char *
ngx_modelgw_fresh_text(ngx_str_t *text, u_char *p, u_char *data, size_t len)
{
    text->data = p;
    text->len = len;

    return ngx_cpymem(p, data, len);
}


void
ngx_modelgw_fresh_durable(ngx_modelgw_fresh_t *f, ngx_uint_t durable)
{
    if (durable) {
        __atomic_store_n(&f->end, f->pos, __ATOMIC_RELEASE);
        __atomic_store_n(&f->ready, f->next, __ATOMIC_RELEASE);

    } else {
        f->next = f->ready;
        f->pos = f->end;
    }
}


ngx_modelgw_journal_call_t *
ngx_modelgw_fresh_take(ngx_modelgw_fresh_t *f, uint64_t pos, ngx_uint_t max,
    ngx_uint_t *n, uint64_t *end)
{
    uint64_t                     ready;
    ngx_modelgw_journal_call_t  *first;

    ready = __atomic_load_n(&f->ready, __ATOMIC_ACQUIRE);

    while (f->sent < ready
           && f->calls[f->sent % NGX_MODELGW_FRESH].pos <= pos)
    {
        __atomic_store_n(&f->sent, f->sent + 1, __ATOMIC_RELEASE);
    }

    first = &f->calls[f->sent % NGX_MODELGW_FRESH];

    max = ngx_min(max, ready - f->sent);
    max = ngx_min(max, (ngx_uint_t) (&f->calls[NGX_MODELGW_FRESH]
                                     - first));

    for (*n = 0; *n < max && first[*n].pos == pos + 1 + *n; (*n)++) {
        /* void */
    }

    if (*n) {
        *end = __atomic_load_n(&f->end, __ATOMIC_ACQUIRE);
    }

    return first;
}
