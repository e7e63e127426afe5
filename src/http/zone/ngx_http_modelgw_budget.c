
/*
 * What keys have spent of their budgets, from the store: at a start, for keys
 * that get a budget, or another window, by a reload, and for those that an
 * operator gives one while nginx runs.
 *
 * Calls end meanwhile.  So that each is counted once, the store begins to be
 * read, and the ring of calls that are not known to be written is copied, under
 * the ledger's lock: what ends after that is added by the ledger itself, what
 * ended before it is in the store as it was then, or in the copy.  Until the
 * sum is known calls on these budgets are refused: a reload's workers are
 * started after it, and the writer answers a change after it.
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
    ngx_modelgw_ledger_t            *ledger;
    char                            *path;   /* of the store */
    ngx_modelgw_store_file_t        *file;
    ngx_http_modelgw_pending_t      *pending;
    uint64_t                         time;   /* milliseconds since the Epoch */
    ngx_uint_t                       window; /* that is read */
    ngx_uint_t                       n;      /* calls */
    ngx_http_modelgw_budget_call_t  *calls;
    ngx_modelgw_store_error_t       *error;
} ngx_http_modelgw_budget_t;


static ngx_int_t ngx_http_modelgw_budget_as_user(void *data);
static ngx_int_t ngx_http_modelgw_budget_read(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store);
static ngx_int_t ngx_http_modelgw_budget_begin(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store);
static void ngx_http_modelgw_budget_copy(ngx_http_modelgw_budget_t *b);
static ngx_int_t ngx_http_modelgw_budget_sums(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store);
static ngx_uint_t ngx_http_modelgw_budget_wanted(ngx_http_modelgw_budget_t *b,
    ngx_uint_t window);
static void ngx_http_modelgw_budget_add(ngx_http_modelgw_budget_t *b,
    ngx_http_modelgw_budget_call_t *call);
static ngx_int_t ngx_http_modelgw_budget_sum(void *data, ngx_str_t *name,
    int64_t sum, uint64_t unused);


void
ngx_http_modelgw_budget_window(ngx_modelgw_ledger_t *ledger, uint32_t slot,
    ngx_uint_t window, ngx_http_modelgw_pending_t *pending)
{
    if (ngx_modelgw_ledger_budget_set(ledger, slot, window)
        && pending->n < pending->max)
    {
        pending->slots[pending->n++] = slot;
    }
}


void
ngx_http_modelgw_budget_in_force(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_pending_t *pending, ngx_log_t *log)
{
    ngx_modelgw_store_error_t   error;
    ngx_http_modelgw_budget_t   b;

    static ngx_http_modelgw_user_t  user;

    ngx_memzero(&b, sizeof(ngx_http_modelgw_budget_t));
    error.len = ngx_sprintf(error.data, "no memory") - error.data;

    b.ledger = mmcf->ledger;
    b.path = (char *) mmcf->ledger_path.data;
    b.file = &mmcf->shared->file;
    b.pending = pending;
    b.error = &error;

    if (ngx_http_modelgw_user_find(&user, mmcf->cycle, log) != NGX_OK
        || ngx_http_modelgw_user_run(&user, ngx_http_modelgw_budget_as_user, &b,
                                     log)
           != NGX_OK)
    {
        ngx_log_error(NGX_LOG_ALERT, log, 0,
                      "what %ui keys have spent of their budgets cannot be "
                      "read, their calls are refused until a reload: %*s",
                      pending->n, error.len, error.data);
    }
}


ngx_int_t
ngx_http_modelgw_budget_find(ngx_modelgw_ledger_t *ledger, char *path,
    ngx_modelgw_store_file_t *file, ngx_http_modelgw_pending_t *pending,
    ngx_modelgw_store_error_t *error)
{
    ngx_http_modelgw_budget_t  b;

    ngx_memzero(&b, sizeof(ngx_http_modelgw_budget_t));

    b.ledger = ledger;
    b.path = path;
    b.file = file;
    b.pending = pending;
    b.error = error;

    return ngx_http_modelgw_budget_as_user(&b);
}


static ngx_int_t
ngx_http_modelgw_budget_as_user(void *data)
{
    ngx_http_modelgw_budget_t *b = data;

    ngx_int_t             rc;
    ngx_uint_t            i;
    ngx_modelgw_store_t  *store;

    store = ngx_modelgw_store_open_read(b->path, b->file, b->error);
    if (store == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_budget_read(b, store);

    if (rc != NGX_OK) {
        ngx_modelgw_store_error(store, b->error);
    }

    if (b->calls) {
        ngx_free(b->calls);
    }

    ngx_modelgw_store_close(store);

    for (i = 0; i < b->pending->n && rc == NGX_OK; i++) {
        ngx_modelgw_ledger_budget_known(b->ledger, b->pending->slots[i]);
    }

    return rc;
}


static ngx_int_t
ngx_http_modelgw_budget_read(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store)
{
    ngx_int_t   rc;
    ngx_uint_t  i;

    if (ngx_http_modelgw_budget_begin(b, store) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0; i < b->n; i++) {

        rc = ngx_modelgw_store_has_call(store, b->calls[i].id);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ngx_http_modelgw_budget_add(b, &b->calls[i]);
        }
    }

    return ngx_http_modelgw_budget_sums(b, store);
}


static ngx_int_t
ngx_http_modelgw_budget_begin(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store)
{
    ngx_int_t        rc;
    ngx_uint_t       i, n;
    struct timespec  ts;

    /* there must be room for them before the lock is taken */

    for ( ;; ) {
        n = ngx_modelgw_ledger_done_count(b->ledger)
            + NGX_HTTP_MODELGW_BUDGET_MORE;

        b->calls = ngx_alloc(n * sizeof(ngx_http_modelgw_budget_call_t),
                             ngx_cycle->log);
        if (b->calls == NULL) {
            return NGX_ERROR;
        }

        ngx_modelgw_ledger_lock(b->ledger);

        if (ngx_modelgw_ledger_done_count(b->ledger) <= n) {
            break;
        }

        ngx_modelgw_ledger_unlock(b->ledger);

        ngx_free(b->calls);
    }

    rc = ngx_modelgw_store_snapshot(store);

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    b->time = (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;

    for (i = 0; i < b->pending->n; i++) {
        ngx_modelgw_ledger_budget_begin_locked(b->ledger, b->pending->slots[i],
                                               b->time);
    }

    ngx_http_modelgw_budget_copy(b);

    ngx_modelgw_ledger_unlock(b->ledger);

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
         (call = ngx_modelgw_ledger_done(b->ledger, i)) != NULL;
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
ngx_http_modelgw_budget_sums(ngx_http_modelgw_budget_t *b,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t  i;

    for (i = NGX_MODELGW_WINDOW_NONE + 1; i < NGX_MODELGW_WINDOWS; i++) {
        if (!ngx_http_modelgw_budget_wanted(b, i)) {
            continue;
        }

        b->window = i;

        if (ngx_modelgw_store_spent(store, NGX_MODELGW_BY_KEY, NULL,
                                    ngx_modelgw_budget_start(i, b->time),
                                    ngx_http_modelgw_budget_sum, b)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* whether one of the keys has that window */

static ngx_uint_t
ngx_http_modelgw_budget_wanted(ngx_http_modelgw_budget_t *b, ngx_uint_t window)
{
    ngx_uint_t                 i;
    ngx_modelgw_ledger_key_t  *key;

    for (i = 0; i < b->pending->n; i++) {
        key = ngx_modelgw_ledger_key_at(b->ledger, b->pending->slots[i]);

        if (key->window == (window | NGX_MODELGW_LEDGER_PENDING)) {
            return 1;
        }
    }

    return 0;
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
            ngx_modelgw_ledger_budget_add(b->ledger, &name, i,
                                          call->cost);
        }
    }
}


static ngx_int_t
ngx_http_modelgw_budget_sum(void *data, ngx_str_t *name, int64_t sum,
    uint64_t unused)
{
    ngx_http_modelgw_budget_t *b = data;

    ngx_modelgw_ledger_budget_add(b->ledger, name, b->window, sum);

    return NGX_OK;
}
