
/*
 * A batch: what one transaction of the store holds.
 *
 * The calls that are DONE are counted before the accounts, so that the accounts
 * of those calls are among them.  New accounts go first, and alone as long as
 * they fill a batch.
 *
 * A short call never costs the row of a hold: only those holds are stored of
 * calls that were sent at the flush before and are open still.  So a flush may
 * have nothing but holds to look at, and no row to write: its transaction
 * begins with the first row.
 *
 * No slot of a call that was sent becomes free but by the writer, so what the
 * ledger gives us to store stays what it is meanwhile, but for its end.
 */


#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_writer.h"


#define NGX_HTTP_MODELGW_BATCH_LOOK  500     /* milliseconds */


typedef struct {
    ngx_uint_t             done;
    ngx_uint_t             held;
    ngx_uint_t             due;              /* holds for the next one */
    ngx_uint_t             begun;            /* the transaction */
    uint32_t               first;            /* of the new accounts */
    uint32_t               last;             /* behind them */
    ngx_uint_t             n;                /* top-ups */
    ngx_modelgw_topup_t   *topups[NGX_MODELGW_LEDGER_TOPUPS];
    ngx_modelgw_topup_e    results[NGX_MODELGW_LEDGER_TOPUPS];
} ngx_http_modelgw_batch_t;


static ngx_int_t ngx_http_modelgw_batch_store(ngx_http_modelgw_writer_t *w,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_batch_save(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_batch_open(ngx_http_modelgw_writer_t *w);
static void ngx_http_modelgw_batch_fill(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_write(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_begin(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_accounts(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_topups(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_holds(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_calls(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static void ngx_http_modelgw_batch_durable(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);


ngx_int_t
ngx_http_modelgw_batch(ngx_http_modelgw_writer_t *w, uint64_t now)
{
    ngx_http_modelgw_batch_t  b;

    if (ngx_http_modelgw_batch_store(w, now) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_batch_fill(w, &b);

    if (ngx_http_modelgw_batch_write(w, &b) != NGX_OK) {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    if (b.begun && ngx_modelgw_store_beside(w->store) != NGX_OK) {
        w->look = 0;

        if (ngx_http_modelgw_batch_store(w, now) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_modelgw_batch_durable(w, &b);

    return NGX_OK;
}


/* It is open, and its files where they were. */

static ngx_int_t
ngx_http_modelgw_batch_store(ngx_http_modelgw_writer_t *w, uint64_t now)
{
    if (w->store == NULL) {
        return ngx_http_modelgw_batch_open(w);
    }

    if (now < w->look && !w->lost) {
        return NGX_OK;
    }

    w->lost = (ngx_modelgw_store_known(w->store, &w->shared->file) != NGX_OK);

    if (w->lost) {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    w->look = now + NGX_HTTP_MODELGW_BATCH_LOOK;

    return (ngx_modelgw_store_beside(w->store) == NGX_OK)
           ? NGX_OK : ngx_http_modelgw_batch_save(w);
}


/*
 * A file beside the ledger was removed or replaced, so that what was committed
 * would be lost with us.  It is moved to the ledger, out of the file that we
 * have open, and new files are made.  A reader may be in the way of that: then
 * it is tried again, and nothing passes for durable meanwhile.
 */

static ngx_int_t
ngx_http_modelgw_batch_save(ngx_http_modelgw_writer_t *w)
{
    ngx_modelgw_store_error(w->store, &w->error);

    w->lost = 1;

    if (ngx_modelgw_store_checkpoint(w->store) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_writer_say(w, NGX_HTTP_MODELGW_LINE_SAVED);

    ngx_modelgw_store_close(w->store);

    return ngx_http_modelgw_batch_open(w);
}


/*
 * What a writer before us, or we, could not make durable may be in the WAL all
 * the same, as the kernel's memory has it; the batch is found to be there then,
 * and its commit writes nothing.  So none is made before that is moved to the
 * file, if something failed; if a writer was merely killed, an fsync() does.
 */

static ngx_int_t
ngx_http_modelgw_batch_open(ngx_http_modelgw_writer_t *w)
{
    w->lost = 0;

    w->store = ngx_modelgw_store_open_known(w->path, &w->shared->file,
                                            &w->error);

    if (w->store == NULL) {
        return NGX_ERROR;
    }

    if ((w->shared->doubt
         && ngx_modelgw_store_checkpoint(w->store) != NGX_OK)
        || ngx_modelgw_store_probe(w->store) != NGX_OK)
    {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    w->shared->doubt = 0;

    return NGX_OK;
}


static void
ngx_http_modelgw_batch_fill(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t            i, held;
    ngx_modelgw_topup_t  *topup;

    held = ngx_modelgw_ledger_held_count(w->ledger);

    b->done = ngx_min(ngx_modelgw_ledger_done_count(w->ledger),
                      NGX_HTTP_MODELGW_BATCH_CALLS);
    b->held = ngx_min(w->due, NGX_HTTP_MODELGW_BATCH_CALLS);
    b->due = held - b->held;
    b->begun = 0;
    b->n = 0;

    b->first = ngx_modelgw_ledger_stored(w->ledger);
    b->last = ngx_modelgw_ledger_accounts(w->ledger);

    if (b->last - b->first > NGX_HTTP_MODELGW_BATCH_ACCOUNTS) {
        b->last = b->first + NGX_HTTP_MODELGW_BATCH_ACCOUNTS;
        b->done = 0;
        b->held = 0;
        b->due = w->due;
        return;
    }

    i = 0;

    for ( ;; ) {
        topup = ngx_modelgw_ledger_topup_asked(w->ledger, &i);
        if (topup == NULL) {
            return;
        }

        if (topup->account < b->last) {
            b->topups[b->n++] = topup;
        }
    }
}


static ngx_int_t
ngx_http_modelgw_batch_write(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  i;

    if (ngx_http_modelgw_batch_accounts(w, b) != NGX_OK
        || ngx_http_modelgw_batch_topups(w, b) != NGX_OK
        || ngx_http_modelgw_batch_holds(w, b) != NGX_OK
        || ngx_http_modelgw_batch_calls(w, b) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!b->begun) {
        return NGX_OK;
    }

    for (i = 0; i < b->n; i++) {
        ngx_modelgw_ledger_topup_tried(b->topups[i]);
    }

    return ngx_modelgw_store_commit(w->store);
}


static ngx_int_t
ngx_http_modelgw_batch_begin(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    if (b->begun) {
        return NGX_OK;
    }

    b->begun = 1;

    return ngx_modelgw_store_begin(w->store);
}


static ngx_int_t
ngx_http_modelgw_batch_accounts(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    uint32_t                       i;
    ngx_modelgw_ledger_account_t  *a;

    for (i = b->first; i < b->last; i++) {
        a = ngx_modelgw_ledger_account_at(w->ledger, i);

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_account(w->store, a) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_batch_topups(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t                     i;
    ngx_modelgw_topup_t           *topup;
    ngx_modelgw_ledger_account_t  *a;

    for (i = 0; i < b->n; i++) {
        topup = b->topups[i];
        a = ngx_modelgw_ledger_account_at(w->ledger, topup->account);

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_topup(w->store, topup, &a->name,
                                       &b->results[i])
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_batch_holds(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    uint64_t                       id;
    ngx_uint_t                     i;
    ngx_modelgw_call_t            *call;
    ngx_modelgw_ledger_account_t  *a;

    for (i = 0; i < b->held; i++) {
        call = ngx_modelgw_ledger_held(w->ledger, i, &id);

        if (id == 0) {
            continue;
        }

        a = ngx_modelgw_ledger_account_at(w->ledger, call->account);

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_hold(w->store, call, &a->name) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_batch_calls(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t                     i;
    ngx_modelgw_call_t            *call;
    ngx_modelgw_ledger_account_t  *a;

    for (i = 0; i < b->done; i++) {
        call = ngx_modelgw_ledger_done(w->ledger, i);

        if (call == NULL || call->account == NGX_MODELGW_LEDGER_NONE) {
            continue;
        }

        a = ngx_modelgw_ledger_account_at(w->ledger, call->account);

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_call(w->store, call, &a->name) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_batch_durable(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  i;

    if (b->last != b->first) {
        ngx_modelgw_ledger_set_stored(w->ledger, b->last);
    }

    for (i = 0; i < b->n; i++) {
        ngx_modelgw_ledger_topup_answer(w->ledger, b->topups[i],
                                        b->results[i]);
    }

    /* in this order: who gets a slot that is freed finds room in the ring */

    if (b->held) {
        ngx_modelgw_ledger_noted(w->ledger, b->held);
    }

    if (b->done) {
        ngx_modelgw_ledger_written(w->ledger, b->done);
    }

    w->due = b->due;
}


/*
 * Nobody knows whether a commit that failed is on the disk after all: what was
 * in it is asked for again, and stays without an answer until then.
 */

void
ngx_http_modelgw_batch_failed(ngx_http_modelgw_writer_t *w)
{
    ngx_uint_t            i;
    ngx_modelgw_topup_t  *topup;

    i = 0;

    for ( ;; ) {
        topup = ngx_modelgw_ledger_topup_asked(w->ledger, &i);
        if (topup == NULL) {
            return;
        }

        if (topup->tried) {
            continue;
        }

        ngx_modelgw_ledger_topup_answer(w->ledger, topup,
                                        NGX_MODELGW_TOPUP_FAILED);
    }
}


ngx_uint_t
ngx_http_modelgw_batch_more(ngx_http_modelgw_writer_t *w)
{
    return ngx_modelgw_ledger_done_count(w->ledger)
           >= NGX_HTTP_MODELGW_BATCH_CALLS
           || ngx_modelgw_ledger_stored(w->ledger)
              < ngx_modelgw_ledger_accounts(w->ledger);
}
