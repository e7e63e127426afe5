
/*
 * What the exchanger does between two exchanges: it reads keys and accounts
 * that have changed, and makes changes by operators in the database.
 *
 * A change is made in a transaction of its own.  If its commit is not known, it
 * is made again: then it is found by its time and node.  One of a key or an
 * account is answered when all live nodes know it, or after a while.  This node
 * learns of it as the others do.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_exchange.h"
#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_limits.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_pq.h"
#include "ngx_modelgw_share.h"
#include "ngx_modelgw_store.h"
#include "ngx_modelgw_store_cluster.h"
#include "ngx_http_modelgw_exchanger.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_EXCHANGER_KNOWN  2000   /* ms, until a change is
                                                    answered */


static ngx_int_t ngx_http_modelgw_exchanger_feed(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_again(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_topup(void *data,
    ngx_modelgw_journal_topup_t *topup);
static ngx_int_t ngx_http_modelgw_exchanger_closed(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_seen(
    ngx_http_modelgw_exchanger_t *e, ngx_uint_t n);
static ngx_int_t ngx_http_modelgw_exchanger_gone(
    ngx_http_modelgw_exchanger_t *e);
static uint64_t ngx_http_modelgw_exchanger_hash(ngx_modelgw_ledger_name_t *id);
static int ngx_libc_cdecl ngx_http_modelgw_exchanger_cmp(const void *one,
    const void *two);
static ngx_int_t ngx_http_modelgw_exchanger_change(
    ngx_http_modelgw_exchanger_t *e, ngx_modelgw_change_t *change);
static ngx_int_t ngx_http_modelgw_exchanger_make(
    ngx_http_modelgw_exchanger_t *e, ngx_modelgw_change_t *change,
    ngx_modelgw_change_e *result, uint64_t *version);
static ngx_int_t ngx_http_modelgw_exchanger_note(
    ngx_http_modelgw_exchanger_t *e, ngx_modelgw_change_t *change,
    ngx_modelgw_change_e result);
static void ngx_http_modelgw_exchanger_answer(ngx_http_modelgw_exchanger_t *e,
    uint64_t known);
static ngx_modelgw_store_t *ngx_http_modelgw_exchanger_attach(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_failed(
    ngx_http_modelgw_exchanger_t *e, ngx_modelgw_store_t *store);


ngx_int_t
ngx_http_modelgw_exchanger_more(ngx_http_modelgw_exchanger_t *e)
{
    if (e->good) {
        ngx_http_modelgw_exchanger_answer(e, e->round.now_known);
    }

    if (ngx_http_modelgw_exchanger_again(e) != NGX_OK
        || ngx_http_modelgw_exchanger_changes(e) != NGX_OK
        || ngx_http_modelgw_exchanger_feed(e) != NGX_OK)
    {
        return NGX_AGAIN;
    }

    /* by limits, it is also known that the database is reached */

    if (e->good || ngx_modelgw_shares_urgent(e->ledger)) {

        if (ngx_modelgw_limits_exchange(e->x.pq, e->ledger, e->x.num,
                                        e->node->live, &e->x.error)
            != NGX_OK)
        {
            return NGX_AGAIN;
        }
    }

    return NGX_OK;
}


/*
 * After a connection was lost another server may be the database, which does
 * not have the last commits: the top-ups in the journal are said again, a part
 * of them a round, and do nothing, if they are there.
 */

static ngx_int_t
ngx_http_modelgw_exchanger_again(ngx_http_modelgw_exchanger_t *e)
{
    uint64_t              last;
    ngx_int_t             rc;
    ngx_modelgw_store_t  *store;

    if (e->again == (uint64_t) -1) {
        return NGX_OK;
    }

    e->text = e->texts;
    e->ntopups = 0;

    store = ngx_modelgw_store_open_read(e->path, &e->shared->file, &e->error);
    if (store == NULL) {
        return NGX_OK;
    }

    rc = ngx_modelgw_journal_topups(store, e->again, NGX_MODELGW_EXCHANGE_ASKS,
                                    ngx_http_modelgw_exchanger_topup, e);

    ngx_modelgw_store_close(store);

    if (rc != NGX_OK) {
        return NGX_OK;
    }

    if (e->ntopups
        && (ngx_modelgw_exchange_open(&e->x, e->opens, e->ntopups) != NGX_OK
            || ngx_modelgw_exchange_topups(&e->x, e->topups, e->ntopups)
               != NGX_OK))
    {
        return NGX_AGAIN;
    }

    if (e->ntopups < NGX_MODELGW_EXCHANGE_ASKS) {
        e->again = (uint64_t) -1;
        return NGX_OK;
    }

    /* others of the last one's time may not have been read */

    last = e->topups[e->ntopups - 1].time;

    e->again = ngx_max(last - 1, e->again + 1);
    e->hurry = 1;

    return NGX_OK;
}


/* Copies a top-up; its account may be lost as well, and is opened before. */

static ngx_int_t
ngx_http_modelgw_exchanger_topup(void *data,
    ngx_modelgw_journal_topup_t *topup)
{
    ngx_http_modelgw_exchanger_t *e = data;

    size_t                         len;
    uint32_t                       index;
    ngx_modelgw_exchange_open_t   *open;
    ngx_modelgw_journal_topup_t  *copy;

    len = topup->id.len + topup->account.len + topup->reason.len;

    if (len > (size_t) (e->text_end - e->text)) {
        return NGX_ERROR;
    }

    open = &e->opens[e->ntopups];
    copy = &e->topups[e->ntopups++];

    *copy = *topup;

    ngx_http_modelgw_round_text(e, &copy->id);
    ngx_http_modelgw_round_text(e, &copy->account);
    ngx_http_modelgw_round_text(e, &copy->reason);

    if (ngx_modelgw_ledger_account(e->ledger, &copy->account, 0, 0, 0, 0,
                                   &index)
        == NGX_OK)
    {
        ngx_http_modelgw_round_open_account(e, open, index);
        return NGX_OK;
    }

    ngx_memzero(open, sizeof(ngx_modelgw_exchange_open_t));

    open->name = copy->account;

    return NGX_OK;
}


/*
 * A part of what has changed.  Versions of a database that was set back are
 * given again, for other changes: then everything is read.  What was read may
 * be later than what the last exchange has told of.
 */

static ngx_int_t
ngx_http_modelgw_exchanger_feed(ngx_http_modelgw_exchanger_t *e)
{
    ngx_int_t             rc;
    ngx_uint_t            n;
    ngx_modelgw_store_t  *store;

    if (e->version > e->round.keys_version
        || (!e->setback && e->node->keys_version > e->round.keys_version))
    {
        e->version = 0;
        e->setback = 1;
        e->nseen = 0;
        e->checked = 0;
    }

    if (e->version == e->round.keys_version) {
        __atomic_store_n(&e->node->current, 1, __ATOMIC_RELEASE);

        if (e->setback) {
            return ngx_http_modelgw_exchanger_gone(e);
        }

        return e->closed ? ngx_http_modelgw_exchanger_closed(e) : NGX_OK;
    }

    store = ngx_http_modelgw_exchanger_attach(e);
    if (store == NULL) {
        return NGX_AGAIN;
    }

    rc = ngx_modelgw_store_feed(store, e->version, e->feed,
                                NGX_HTTP_MODELGW_EXCHANGER_FEED, &n);

    if (rc != NGX_OK) {
        (void) ngx_http_modelgw_exchanger_failed(e, store);
        return NGX_AGAIN;
    }

    ngx_modelgw_store_close(store);

    /* what this exchange has told of is in the feed, which is read after it */

    e->journal.keys_version = n ? e->feed[n - 1].version
                                : e->round.keys_version;

    if (ngx_http_modelgw_exchanger_write(e, NULL, 0, e->feed, n) != NGX_OK
        || (e->setback && ngx_http_modelgw_exchanger_seen(e, n) != NGX_OK))
    {
        return NGX_OK;
    }

    e->version = e->journal.keys_version;
    e->round.keys_version = ngx_max(e->round.keys_version, e->version);
    e->hurry = 1;

    return NGX_OK;
}


/*
 * Once in each connection, when all changes are known here: an account that is
 * closed here and open in the database was closed by an operator in a part that
 * a failover has lost.  It is closed again, which is logged, a part of them a
 * round.  One that was opened since has a later version, and is open
 * here, too.
 */

static ngx_int_t
ngx_http_modelgw_exchanger_closed(ngx_http_modelgw_exchanger_t *e)
{
    u_char                        *p, text[NGX_MODELGW_STORE_ERROR];
    ngx_str_t                      names;
    ngx_uint_t                     n, accounts;
    ngx_modelgw_ledger_account_t  *a;

    n = 0;
    accounts = ngx_modelgw_ledger_accounts(e->ledger);

    while (e->compared < accounts && n < NGX_MODELGW_EXCHANGE_ASKS) {
        a = ngx_modelgw_ledger_account_at(e->ledger, e->compared++);

        if (__atomic_load_n(&a->closed, __ATOMIC_ACQUIRE)) {
            e->opens[n].name.len = a->name.len;
            e->opens[n++].name.data = a->name.data;
        }
    }

    e->closed = (e->compared < accounts);
    e->hurry |= e->closed;

    if (n == 0) {
        return NGX_OK;
    }

    names.data = text;
    names.len = sizeof(text) / 2;

    if (ngx_modelgw_exchange_close(&e->x, e->opens, n, e->version, &names)
        != NGX_OK)
    {
        return NGX_AGAIN;
    }

    if (names.len) {
        p = ngx_slprintf(text + names.len, text + sizeof(text), ": these"
                         " accounts are closed again, the database has lost"
                         " that they were");

        ngx_http_modelgw_process_report(e->ledger, e->shared,
                                        NGX_HTTP_MODELGW_LINE_CLUSTER, text,
                                        p - text);
    }

    return NGX_OK;
}


/* Notes which keys the database has: NGX_OK, NGX_ERROR (no memory). */

static ngx_int_t
ngx_http_modelgw_exchanger_seen(ngx_http_modelgw_exchanger_t *e, ngx_uint_t n)
{
    uint64_t    *seen;
    ngx_uint_t   i;

    if (e->nseen + n > e->seen_size) {
        e->seen_size = (e->nseen + n) * 2;

        seen = ngx_alloc(e->seen_size * sizeof(uint64_t), ngx_cycle->log);
        if (seen == NULL) {
            e->seen_size = 0;
            e->nseen = 0;
            e->version = 0;
            return NGX_ERROR;
        }

        if (e->seen) {
            ngx_memcpy(seen, e->seen, e->nseen * sizeof(uint64_t));
            ngx_free(e->seen);
        }

        e->seen = seen;
    }

    for (i = 0; i < n; i++) {

        if (!e->feed[i].account) {
            e->seen[e->nseen++] = ngx_http_modelgw_exchanger_hash(
                                                         &e->feed[i].key.id);
        }
    }

    return NGX_OK;
}


/*
 * The database was set back, and all that it has was read: a key that it does
 * not have any more is revoked here, a part of them at a time.
 */

static ngx_int_t
ngx_http_modelgw_exchanger_gone(ngx_http_modelgw_exchanger_t *e)
{
    uint64_t                    hash;
    ngx_uint_t                  i, n, max;
    ngx_modelgw_managed_key_t  *key;

    if (e->checked == 0) {
        ngx_qsort(e->seen, e->nseen, sizeof(uint64_t),
                  ngx_http_modelgw_exchanger_cmp);
    }

    n = 0;
    max = e->shared->managed ? ngx_modelgw_managed_max(e->shared->managed) : 0;

    for (i = e->checked; i < max && n < NGX_HTTP_MODELGW_EXCHANGER_FEED; i++) {
        key = &e->feed[n].key;

        if (ngx_modelgw_managed_at(e->shared->managed, i, key) != NGX_OK) {
            continue;
        }

        hash = ngx_http_modelgw_exchanger_hash(&key->id);

        if (e->nseen && bsearch(&hash, e->seen, e->nseen, sizeof(uint64_t),
                                ngx_http_modelgw_exchanger_cmp))
        {
            continue;
        }

        key->state = NGX_MODELGW_KEY_REVOKED;

        e->feed[n].version = e->version;
        e->feed[n++].account = 0;
    }

    e->journal.keys_version = e->version;

    if ((n || e->node->keys_version != e->version)
        && ngx_http_modelgw_exchanger_write(e, NULL, 0, e->feed, n) != NGX_OK)
    {
        return NGX_OK;
    }

    e->checked = i;
    e->setback = (i < max);
    e->hurry |= e->setback;

    return NGX_OK;
}


static uint64_t
ngx_http_modelgw_exchanger_hash(ngx_modelgw_ledger_name_t *id)
{
    return (uint64_t) ngx_murmur_hash2(id->data, id->len) << 32
           | ngx_crc32_short(id->data, id->len);
}


static int ngx_libc_cdecl
ngx_http_modelgw_exchanger_cmp(const void *one, const void *two)
{
    uint64_t  first, second;

    first = *(const uint64_t *) one;
    second = *(const uint64_t *) two;

    return (first > second) - (first < second);
}


/* One at a time, in any order: an operator waits for each. */

ngx_int_t
ngx_http_modelgw_exchanger_changes(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t             i;
    ngx_modelgw_change_t  *change;

    i = 0;

    for ( ;; ) {
        change = ngx_http_modelgw_exchanger_asked(e, &i);
        if (change == NULL) {
            return NGX_OK;
        }

        if (ngx_http_modelgw_exchanger_change(e, change) != NGX_OK) {
            return NGX_AGAIN;
        }
    }
}


ngx_modelgw_change_t *
ngx_http_modelgw_exchanger_asked(ngx_http_modelgw_exchanger_t *e, ngx_uint_t *i)
{
    ngx_uint_t             n;
    ngx_modelgw_change_t  *change;

    for ( ;; ) {
        change = ngx_modelgw_ledger_change_asked(e->ledger, i);
        if (change == NULL) {
            return NULL;
        }

        for (n = 0; n < e->nmade; n++) {
            if (e->made[n].change == change
                && e->made[n].time == change->time)
            {
                break;
            }
        }

        if (n == e->nmade) {
            return change;
        }
    }
}


static ngx_int_t
ngx_http_modelgw_exchanger_change(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_change_t *change)
{
    uint64_t                  version;
    ngx_int_t                 rc;
    ngx_modelgw_change_e      result;
    ngx_http_modelgw_made_t  *made;

    rc = ngx_http_modelgw_exchanger_make(e, change, &result, &version);

    if (rc != NGX_OK) {
        return rc;
    }

    /* the exchanger that follows finds it, and answers it */

    if (ngx_http_modelgw_exchanger_note(e, change, result) == NGX_DECLINED) {
        return NGX_OK;
    }

    if (version == 0 || e->nmade == NGX_MODELGW_LEDGER_CHANGES) {
        ngx_modelgw_ledger_change_answer(e->ledger, change, result);
        return NGX_OK;
    }

    made = &e->made[e->nmade++];

    made->change = change;
    made->time = change->time;
    made->result = result;
    made->version = version;
    made->until = ngx_http_modelgw_writer_clock()
                  + NGX_HTTP_MODELGW_EXCHANGER_KNOWN;

    e->round.keys_version = ngx_max(e->round.keys_version, version);

    return NGX_OK;
}


/*
 *     NGX_OK     *result is set, of a failure without a commit, too
 *     NGX_AGAIN  the connection is lost: it is made again
 */

static ngx_int_t
ngx_http_modelgw_exchanger_make(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_change_t *change, ngx_modelgw_change_e *result,
    uint64_t *version)
{
    ngx_uint_t            tried;
    ngx_modelgw_store_t  *store;

    store = ngx_http_modelgw_exchanger_attach(e);
    if (store == NULL) {
        return NGX_AGAIN;
    }

    tried = 0;
    *version = 0;

    if (ngx_modelgw_store_begin(store) == NGX_OK
        && ngx_modelgw_store_change(store, change, result) == NGX_OK)
    {
        if (*result == NGX_MODELGW_CHANGE_MADE) {
            ngx_modelgw_ledger_change_tried(change);
            tried = 1;
        }

        if (ngx_modelgw_store_commit(store) == NGX_OK) {
            *version = ngx_modelgw_store_keys_version(store);

            ngx_modelgw_store_close(store);

            return NGX_OK;
        }
    }

    if (ngx_http_modelgw_exchanger_failed(e, store) != NGX_OK || tried) {
        return NGX_AGAIN;
    }

    *result = NGX_MODELGW_CHANGE_FAILED;

    return change->tried ? NGX_AGAIN : NGX_OK;
}


/*
 * Has credit that was given written to the journal, to be said again.  It is
 * the database's in any case: that the journal cannot be written is no failure.
 *     NGX_OK, NGX_AGAIN, NGX_DECLINED, as of the writer
 */

static ngx_int_t
ngx_http_modelgw_exchanger_note(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_change_t *change, ngx_modelgw_change_e result)
{
    ngx_uint_t                      made, known;
    ngx_http_modelgw_journal_job_t  job;

    made = (result == NGX_MODELGW_CHANGE_MADE);

    /* the node that has made it may be the one that is lost */

    known = (result == NGX_MODELGW_CHANGE_KNOWN);

    if (change->kind == NGX_MODELGW_CHANGE_TOPUP
        ? !made && !known
        : !made || !ngx_modelgw_ledger_change_opens(change)
          || change->amount == 0)
    {
        return NGX_OK;
    }

    ngx_memzero(&job, sizeof(ngx_http_modelgw_journal_job_t));

    job.journal = &e->journal;
    job.topup = change;

    return ngx_http_modelgw_writer_job(e->writer, &job);
}


/* Answers those that all live nodes know, or that have waited long enough. */

static void
ngx_http_modelgw_exchanger_answer(ngx_http_modelgw_exchanger_t *e,
    uint64_t known)
{
    uint64_t                  now;
    ngx_uint_t                i;
    ngx_http_modelgw_made_t  *made;

    now = ngx_http_modelgw_writer_clock();

    for (i = 0; i < e->nmade; /* void */ ) {
        made = &e->made[i];

        if (known < made->version && now < made->until) {
            i++;
            continue;
        }

        if (made->change->time == made->time) {
            ngx_modelgw_ledger_change_answer(e->ledger, made->change,
                                             made->result);
        }

        *made = e->made[--e->nmade];
    }
}


void
ngx_http_modelgw_exchanger_fail(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t             i;
    ngx_modelgw_change_t  *change;

    ngx_http_modelgw_exchanger_answer(e, 0);

    if (e->failures < 2 && !e->refused) {
        return;
    }

    i = 0;

    for ( ;; ) {
        change = ngx_http_modelgw_exchanger_asked(e, &i);
        if (change == NULL) {
            return;
        }

        if (!change->tried) {
            ngx_modelgw_ledger_change_answer(e->ledger, change,
                                             NGX_MODELGW_CHANGE_FAILED);
        }
    }
}


/* NULL: no memory, e->x.error is set */

static ngx_modelgw_store_t *
ngx_http_modelgw_exchanger_attach(ngx_http_modelgw_exchanger_t *e)
{
    ngx_modelgw_store_t  *store;

    store = ngx_modelgw_store_attach(e->x.pq, e->x.num);

    if (store == NULL) {
        e->x.error.len = ngx_sprintf(e->x.error.data, "no memory")
                         - e->x.error.data;
    }

    return store;
}


/* NGX_OK: the connection can be used */

static ngx_int_t
ngx_http_modelgw_exchanger_failed(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_store_t *store)
{
    ngx_modelgw_store_error(store, &e->error);
    ngx_modelgw_store_close(store);

    e->x.error.len = ngx_min(e->error.len, NGX_MODELGW_PQ_ERROR);
    ngx_memcpy(e->x.error.data, e->error.data, e->x.error.len);

    return ngx_modelgw_pq_alive(e->x.pq) ? NGX_OK : NGX_AGAIN;
}
