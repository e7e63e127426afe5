
/*
 * What keys have spent of their budgets, from the store: at a start, and for
 * keys that get a budget, or another window, by a reload.
 *
 * Calls end meanwhile, in workers of the configuration before.  So that each is
 * counted once, the store begins to read, and the ring of calls that are not
 * known to be written is copied, under the ledger's lock: what ends after that
 * is added by the ledger itself, what ended before it is in the store as it was
 * then, or in the copy.  No other process uses the new budgets yet: a reload's
 * workers are started after this.
 *
 * If the store cannot be read, calls of these keys are refused until a reload
 * can read it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_BUDGET_MORE  64     /* calls that may end meanwhile */


/* a call that has ended */

typedef struct {
    uint64_t                       id;
    uint64_t                       ended;    /* milliseconds since the Epoch */
    int64_t                        cost;
    ngx_modelgw_ledger_name_t      key;
} ngx_http_modelgw_budget_call_t;


typedef struct {
    ngx_http_modelgw_main_conf_t  *mmcf;
    uint64_t                       time;     /* milliseconds since the Epoch */
    ngx_uint_t                     window;   /* that is read */
    ngx_uint_t                     n;        /* calls */
    ngx_http_modelgw_budget_call_t  *calls;
    ngx_modelgw_store_error_t      error;
    ngx_log_t                     *log;
} ngx_http_modelgw_budget_t;


typedef void (*ngx_http_modelgw_budget_pt)(ngx_http_modelgw_budget_t *b,
    uint32_t index);


static void ngx_http_modelgw_budget_each(ngx_http_modelgw_budget_t *b,
    ngx_http_modelgw_budget_pt handler);
static void ngx_http_modelgw_budget_known(ngx_http_modelgw_budget_t *b,
    uint32_t index);
static void ngx_http_modelgw_budget_begin_locked(ngx_http_modelgw_budget_t *b,
    uint32_t index);
static ngx_int_t ngx_http_modelgw_budget_as_user(void *data);
static ngx_int_t ngx_http_modelgw_budget_begin(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store);
static void ngx_http_modelgw_budget_copy(ngx_http_modelgw_budget_t *b);
static ngx_int_t ngx_http_modelgw_budget_read(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store);
static void ngx_http_modelgw_budget_add(ngx_http_modelgw_budget_t *b,
    ngx_http_modelgw_budget_call_t *call);
static ngx_int_t ngx_http_modelgw_budget_sum(void *data, ngx_str_t *name,
    int64_t sum, uint64_t unused);


void
ngx_http_modelgw_budget_in_force(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_uint_t n, ngx_log_t *log)
{
    ngx_time_t                 *tp;
    ngx_http_modelgw_budget_t   b;

    static ngx_http_modelgw_user_t  user;

    tp = ngx_timeofday();

    ngx_memzero(&b, sizeof(ngx_http_modelgw_budget_t));

    b.mmcf = mmcf;
    b.time = (uint64_t) tp->sec * 1000 + tp->msec;
    b.log = log;

    if (ngx_http_modelgw_user_find(&user, mmcf->cycle, log) != NGX_OK
        || ngx_http_modelgw_user_run(&user, ngx_http_modelgw_budget_as_user, &b,
                                     log)
           != NGX_OK)
    {
        ngx_log_error(NGX_LOG_ALERT, log, 0,
                      "what %ui keys have spent of their budgets cannot be "
                      "read, their calls are refused until a reload: %*s",
                      n, b.error.len, b.error.data);
        return;
    }

    ngx_http_modelgw_budget_each(&b, ngx_http_modelgw_budget_known);
}


/* Calls the handler for the records of those keys. */

static void
ngx_http_modelgw_budget_each(ngx_http_modelgw_budget_t *b,
    ngx_http_modelgw_budget_pt handler)
{
    uint32_t                *slot;
    ngx_uint_t               i;
    ngx_modelgw_key_t       *key;
    ngx_modelgw_ledger_t    *ledger;
    ngx_modelgw_keys_pos_t   pos;

    ledger = b->mmcf->ledger;
    slot = b->mmcf->managed_slots.elts;

    for (i = 0; i < b->mmcf->managed_slots.nelts; i++) {
        handler(b, slot[i]);
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for ( ;; ) {
        key = ngx_modelgw_keys_next(b->mmcf->keys, &pos);
        if (key == NULL) {
            return;
        }

        if (key->slot != NGX_MODELGW_LEDGER_NONE
            && (ngx_modelgw_ledger_key_at(ledger, key->slot)->window
                & NGX_MODELGW_LEDGER_PENDING))
        {
            handler(b, key->slot);
        }
    }
}


static void
ngx_http_modelgw_budget_known(ngx_http_modelgw_budget_t *b, uint32_t index)
{
    ngx_modelgw_ledger_budget_known(b->mmcf->ledger, index);
}


static void
ngx_http_modelgw_budget_begin_locked(ngx_http_modelgw_budget_t *b,
    uint32_t index)
{
    ngx_modelgw_ledger_budget_begin_locked(b->mmcf->ledger, index, b->time);
}


static ngx_int_t
ngx_http_modelgw_budget_as_user(void *data)
{
    ngx_http_modelgw_budget_t *b = data;

    ngx_int_t             rc;
    ngx_modelgw_store_t  *store;

    store = ngx_modelgw_store_open_read((char *) b->mmcf->ledger_path.data,
                                        &b->mmcf->shared->file, &b->error);
    if (store == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_budget_begin(b, store);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_budget_read(b, store);
    }

    if (rc != NGX_OK) {
        ngx_modelgw_store_error(store, &b->error);
    }

    if (b->calls) {
        ngx_free(b->calls);
    }

    ngx_modelgw_store_close(store);

    return rc;
}


static ngx_int_t
ngx_http_modelgw_budget_begin(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store)
{
    ngx_int_t              rc;
    ngx_uint_t             n;
    ngx_modelgw_ledger_t  *ledger;

    ledger = b->mmcf->ledger;

    /* there must be room for them before the lock is taken */

    for ( ;; ) {
        n = ngx_modelgw_ledger_done_count(ledger)
            + NGX_HTTP_MODELGW_BUDGET_MORE;

        b->calls = ngx_alloc(n * sizeof(ngx_http_modelgw_budget_call_t),
                             b->log);
        if (b->calls == NULL) {
            return NGX_ERROR;
        }

        ngx_modelgw_ledger_lock(ledger);

        if (ngx_modelgw_ledger_done_count(ledger) <= n) {
            break;
        }

        ngx_modelgw_ledger_unlock(ledger);

        ngx_free(b->calls);
    }

    rc = ngx_modelgw_store_snapshot(store);

    ngx_http_modelgw_budget_each(b, ngx_http_modelgw_budget_begin_locked);
    ngx_http_modelgw_budget_copy(b);

    ngx_modelgw_ledger_unlock(ledger);

    return rc;
}


/*
 * The lock is held, so none of them is freed.  A key that had no limits has no
 * record in its calls: they are known by its name.
 */

static void
ngx_http_modelgw_budget_copy(ngx_http_modelgw_budget_t *b)
{
    ngx_uint_t                       i;
    ngx_modelgw_call_t              *call;
    ngx_http_modelgw_budget_call_t  *copy;

    for (i = 0;
         (call = ngx_modelgw_ledger_done(b->mmcf->ledger, i)) != NULL;
         i++)
    {
        copy = &b->calls[b->n++];

        copy->id = call->id;
        copy->ended = call->ended;
        copy->cost = call->charge.cost;
        copy->key = call->key_name;
    }
}


static ngx_int_t
ngx_http_modelgw_budget_read(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store)
{
    ngx_int_t   rc;
    ngx_uint_t  i;

    for (i = 0; i < b->n; i++) {

        rc = ngx_modelgw_store_has_call(store, b->calls[i].id);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ngx_http_modelgw_budget_add(b, &b->calls[i]);
        }
    }

    for (i = NGX_MODELGW_WINDOW_NONE + 1; i < NGX_MODELGW_WINDOWS; i++) {
        b->window = i;

        if (ngx_modelgw_store_spent(store, NGX_MODELGW_BY_KEY,
                                    ngx_modelgw_budget_start(i, b->time),
                                    ngx_http_modelgw_budget_sum, b)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* to the window that the key has; it waits for its sum, or nothing changes */

static void
ngx_http_modelgw_budget_add(ngx_http_modelgw_budget_t *b,
    ngx_http_modelgw_budget_call_t *call)
{
    ngx_str_t   name;
    ngx_uint_t  i;

    name.len = call->key.len;
    name.data = call->key.data;

    for (i = NGX_MODELGW_WINDOW_NONE + 1; i < NGX_MODELGW_WINDOWS; i++) {

        if (call->ended >= ngx_modelgw_budget_start(i, b->time)) {
            ngx_modelgw_ledger_budget_add(b->mmcf->ledger, &name, i,
                                          call->cost);
        }
    }
}


static ngx_int_t
ngx_http_modelgw_budget_sum(void *data, ngx_str_t *name, int64_t sum,
    uint64_t unused)
{
    ngx_http_modelgw_budget_t *b = data;

    ngx_modelgw_ledger_budget_add(b->mmcf->ledger, name, b->window, sum);

    return NGX_OK;
}
