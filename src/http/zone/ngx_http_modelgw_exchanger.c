
/*
 * The exchanger: the thread that exchanges with the database of a cluster, in
 * the process whose thread is the writer of the journal.
 *
 *     AWAY     no connection: connects, with a growing delay
 *     JOINED   connected, and a member: rounds, each at most one exchange
 *     REFUSED  the database or another node says that this node must not work
 *              with it: as AWAY, but calls are refused
 *
 * It is started when its process has become the writer, and ends before that
 * resigns, so there is one exchanger a node, but for processes of a copy of the
 * journal's file: the database knows the process that started last, and a
 * second one that goes on is refused.  One that has just become the exchanger
 * takes over: the former one was killed, or has ended.
 *
 * It never writes the journal, but gives that to the writer, and waits until it
 * is durable.  It reads the journal by a connection of its own: what it reads
 * is durable.  The ledger's lock is never held over a wait.  All waits end soon
 * when the thread is to stop.
 *
 * It may be killed at any point, with its process or with all of them.  Then
 * the next one joins, and what the database says of granted and forced, and
 * the journal, or shared memory, of returned and spent, is put together:
 *
 *     returned has grown in memory      others go on: the database has less,
 *                                       so it is written and said; all killed:
 *                                       it was not said, and is ours again
 *     it is in the journal, not said    the database has less: it is said
 *     it was said, the answer is lost   the database has as much: its granted
 *                                       counts, whatever was in the answer
 *     calls were shipped, the same      the database's position counts: the
 *                                       journal goes on from there
 *     the answer was applied, not in    the journal's granted and forced are
 *     the journal                       replaced by the database's; without it
 *                                       a node has less than it could have: by
 *                                       answers that only grows, and what a
 *                                       join has taken is written down first
 *     a call was held for a claim       its worker, or the sweep after it,
 *                                       settles it as any other
 *     a feed is in the journal, not     node->keys_version is older: it is
 *     published                         read and published again
 *     a change was committed, and not   it is found again in "actions", by its
 *     answered                          time and node; a top-up is written to
 *                                       the journal before it is answered
 *
 * An exchange that arrives late, after another one, is fenced by its position,
 * or says what was said: totals, never differences.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_exchange.h"
#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_pq.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_exchanger.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_EXCHANGER_CONNECT  5000 /* ms */
#define NGX_HTTP_MODELGW_EXCHANGER_RETRY    100  /* ms, after a first failure */
#define NGX_HTTP_MODELGW_EXCHANGER_MAX      2000 /* ms */
#define NGX_HTTP_MODELGW_EXCHANGER_STEP     100  /* ms, of waits without a
                                                    connection */
#define NGX_HTTP_MODELGW_EXCHANGER_LAST     400  /* ms, for the last exchange */
#define NGX_HTTP_MODELGW_EXCHANGER_REPORT   2    /* failures one after another,
                                                    then a line says so */


static ngx_int_t ngx_http_modelgw_exchanger_threads(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_init(
    ngx_http_modelgw_exchanger_t *e, ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_exchanger_memory(
    ngx_http_modelgw_exchanger_t *e);
static char *ngx_http_modelgw_exchanger_copy(char *text);
static void ngx_http_modelgw_exchanger_free(ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_random(char *id);
static void *ngx_http_modelgw_exchanger_thread(void *data);
static ngx_int_t ngx_http_modelgw_exchanger_journal(
    ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_connect(
    ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_wait_left(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_join(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_lease(void *data, ngx_str_t *name,
    int64_t granted, int64_t returned, int64_t forced, int64_t spent,
    int64_t held);
static ngx_int_t ngx_http_modelgw_exchanger_unknown(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_unknown_fund(
    ngx_http_modelgw_exchanger_t *e, ngx_modelgw_fund_t *fund);
static ngx_int_t ngx_http_modelgw_exchanger_end(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_call(void *data, uint64_t pos,
    uint64_t *id);
static ngx_int_t ngx_http_modelgw_exchanger_known(
    ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_unwritten(
    ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_round(ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_state(ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_exchanger_leave(
    ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_close(ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_lost(ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_refuse(ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_alone(ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_wait(ngx_http_modelgw_exchanger_t *e);
static void ngx_http_modelgw_exchanger_reason(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_pq_error_t *error);
static void ngx_http_modelgw_exchanger_say(ngx_http_modelgw_exchanger_t *e,
    ngx_http_modelgw_line_e what, u_char *text, size_t len);
static uint64_t ngx_http_modelgw_exchanger_ms(clockid_t clock);


static ngx_http_modelgw_exchanger_t  ngx_http_modelgw_exchanger;


void
ngx_http_modelgw_exchanger_start(ngx_http_modelgw_writer_t *w)
{
    uint64_t                       now;
    ngx_http_modelgw_exchanger_t  *e;

    static u_char  text[] = "its thread does not start, for want of memory";

    e = &ngx_http_modelgw_exchanger;
    now = ngx_http_modelgw_writer_clock();

    if (e->writer || now < w->exchange) {
        return;
    }

    if (ngx_http_modelgw_exchanger_init(e, w) == NGX_OK
        && ngx_http_modelgw_exchanger_threads(e) == NGX_OK)
    {
        w->exchange = 0;
        return;
    }

    if (!e->away) {
        ngx_http_modelgw_exchanger_say(e, NGX_HTTP_MODELGW_LINE_AWAY, text,
                                       sizeof(text) - 1);
    }

    ngx_http_modelgw_exchanger_free(e);

    w->exchange = now + NGX_HTTP_MODELGW_EXCHANGER_MAX;
}


static ngx_int_t
ngx_http_modelgw_exchanger_threads(ngx_http_modelgw_exchanger_t *e)
{
    if (ngx_http_modelgw_process_thread(&e->clerk,
                                        ngx_http_modelgw_clerk_thread, e)
        != 0)
    {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_process_thread(&e->thread,
                                        ngx_http_modelgw_exchanger_thread, e)
        == 0)
    {
        return NGX_OK;
    }

    e->stop = 1;

    (void) pthread_join(e->clerk, NULL);

    return NGX_ERROR;
}


void
ngx_http_modelgw_exchanger_stop(ngx_http_modelgw_writer_t *w)
{
    uint64_t                       end;
    ngx_http_modelgw_exchanger_t  *e;

    e = &ngx_http_modelgw_exchanger;

    if (e->writer == NULL) {
        return;
    }

    e->stop = 1;
    ngx_modelgw_exchange_wake(e->ledger);

    end = ngx_http_modelgw_writer_clock() + NGX_HTTP_MODELGW_EXCHANGER_LAST;

    while (!e->ended && ngx_http_modelgw_writer_clock() < end) {
        ngx_msleep(1);
    }

    e->gone = 1;

    (void) pthread_join(e->thread, NULL);
    (void) pthread_join(e->clerk, NULL);

    ngx_http_modelgw_exchanger_free(e);

    w->exchange = 0;
}


static ngx_int_t
ngx_http_modelgw_exchanger_init(ngx_http_modelgw_exchanger_t *e,
    ngx_http_modelgw_writer_t *w)
{
    ngx_memzero(e, sizeof(ngx_http_modelgw_exchanger_t));

    e->writer = w;
    e->shared = w->shared;
    e->ledger = w->ledger;
    e->node = ngx_modelgw_node(w->ledger);
    e->shipped = (uint64_t) -1;

    /* a line says so, if a start before this one has failed */

    e->away = (w->exchange != 0);

    e->path = ngx_http_modelgw_exchanger_copy(w->path);
    e->x.name = ngx_http_modelgw_exchanger_copy(w->cluster->name);
    e->conf.conninfo = ngx_http_modelgw_exchanger_copy(w->cluster->pq.conninfo);
    e->conf.application = ngx_http_modelgw_exchanger_copy(
                                                   w->cluster->pq.application);

    if (e->path == NULL || e->x.name == NULL || e->conf.conninfo == NULL
        || e->conf.application == NULL)
    {
        return NGX_ERROR;
    }

    if (w->cluster->pq.password) {
        e->conf.password = ngx_http_modelgw_exchanger_copy(
                                                      w->cluster->pq.password);
        if (e->conf.password == NULL) {
            return NGX_ERROR;
        }
    }

    e->x.fresh = 1;
    e->loaded = w->cluster->loaded;
    e->x.call = ngx_http_modelgw_exchanger_call;

    return (ngx_http_modelgw_exchanger_random(e->x.process) == NGX_OK)
           ? ngx_http_modelgw_exchanger_memory(e) : NGX_ERROR;
}


static ngx_int_t
ngx_http_modelgw_exchanger_memory(ngx_http_modelgw_exchanger_t *e)
{
    size_t      size;
    ngx_uint_t  i;

    struct {
        void  **memory;
        size_t  size;
    } tables[] = {
        { (void **) &e->texts, NGX_MODELGW_EXCHANGE_CALLS
                               * NGX_HTTP_MODELGW_EXCHANGER_TEXT },
        { (void **) &e->prices, NGX_MODELGW_EXCHANGE_CALLS
                                * sizeof(ngx_modelgw_store_price_t) },
        { (void **) &e->asks, NGX_MODELGW_EXCHANGE_ASKS
                              * sizeof(ngx_modelgw_ask_t) },
        { (void **) &e->said, NGX_MODELGW_EXCHANGE_ASKS
                              * sizeof(ngx_modelgw_exchange_said_t) },
        { (void **) &e->opens, NGX_MODELGW_EXCHANGE_ASKS
                               * sizeof(ngx_modelgw_exchange_open_t) },
        { (void **) &e->topups, NGX_MODELGW_EXCHANGE_ASKS
                                * sizeof(ngx_modelgw_journal_topup_t) },
        { (void **) &e->feed, NGX_HTTP_MODELGW_EXCHANGER_FEED
                              * sizeof(ngx_modelgw_feed_t) }
    };

    for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        size = tables[i].size;

        *tables[i].memory = ngx_calloc(size, ngx_cycle->log);
        if (*tables[i].memory == NULL) {
            return NGX_ERROR;
        }
    }

    e->text_end = e->texts + NGX_MODELGW_EXCHANGE_CALLS
                             * NGX_HTTP_MODELGW_EXCHANGER_TEXT;

    return ngx_http_modelgw_funds_create(&e->funds, e->ledger);
}


/* In single process mode the thread outlives the cycle, and its texts. */

static char *
ngx_http_modelgw_exchanger_copy(char *text)
{
    char    *copy;
    size_t   len;

    len = ngx_strlen(text) + 1;

    copy = ngx_alloc(len, ngx_cycle->log);
    if (copy == NULL) {
        return NULL;
    }

    ngx_memcpy(copy, text, len);

    return copy;
}


static void
ngx_http_modelgw_exchanger_free(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t  i;

    void  *memory[] = { e->path, e->x.name, e->conf.conninfo,
                        e->conf.application, e->conf.password, e->texts,
                        e->prices, e->asks, e->said, e->opens,
                        e->feed, e->seen, e->topups };

    for (i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        if (memory[i]) {
            ngx_free(memory[i]);
        }
    }

    ngx_http_modelgw_funds_free(&e->funds);

    e->writer = NULL;
}


static ngx_int_t
ngx_http_modelgw_exchanger_random(char *id)
{
    u_char  bytes[NGX_MODELGW_RANDOM_ID / 2];

    if (ngx_modelgw_key_random(bytes, sizeof(bytes)) != NGX_OK) {
        return NGX_ERROR;
    }

    *ngx_hex_dump((u_char *) id, bytes, sizeof(bytes)) = '\0';

    return NGX_OK;
}


static void *
ngx_http_modelgw_exchanger_thread(void *data)
{
    ngx_http_modelgw_exchanger_t *e = data;

    while (!e->stop) {

        if (e->journal.id[0] == '\0'
            && ngx_http_modelgw_exchanger_journal(e) != NGX_OK)
        {
            ngx_http_modelgw_exchanger_alone(e);
            continue;
        }

        if (e->joined) {
            ngx_http_modelgw_exchanger_round(e);
            continue;
        }

        if (ngx_http_modelgw_writer_clock() < e->retry) {
            ngx_http_modelgw_exchanger_alone(e);
            continue;
        }

        ngx_http_modelgw_exchanger_connect(e);
    }

    if (e->joined && !e->gone) {
        (void) ngx_http_modelgw_round_last(e);
    }

    ngx_http_modelgw_exchanger_close(e);
    ngx_modelgw_exchange_free(&e->x);
    ngx_modelgw_shipment_free(&e->round.calls);

    if (e->reader) {
        ngx_modelgw_store_close(e->reader);
        e->reader = NULL;
    }

    ngx_memory_barrier();

    e->ended = 1;

    return NULL;
}


/* Whose journal it is, once. */

static ngx_int_t
ngx_http_modelgw_exchanger_journal(ngx_http_modelgw_exchanger_t *e)
{
    ngx_int_t             rc;
    ngx_modelgw_store_t  *store;

    store = ngx_modelgw_store_open_read(e->path, &e->shared->file, &e->error);
    if (store == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_journal_read(store, &e->journal);

    ngx_modelgw_store_close(store);

    if (rc != NGX_OK) {
        e->journal.id[0] = '\0';
        return NGX_ERROR;
    }

    /* what is in it may not be published yet */

    e->journal.keys_version = ngx_min(e->journal.keys_version,
                                      e->node->keys_version);

    ngx_memcpy(e->x.journal, e->journal.id, NGX_MODELGW_RANDOM_ID);
    ngx_memcpy(e->x.cluster, e->journal.cluster, NGX_MODELGW_RANDOM_ID);

    return NGX_OK;
}


static void
ngx_http_modelgw_exchanger_connect(ngx_http_modelgw_exchanger_t *e)
{
    ngx_modelgw_exchange_t  *x;

    x = &e->x;

    x->pq = ngx_modelgw_pq_connect(&e->conf, NGX_HTTP_MODELGW_EXCHANGER_CONNECT,
                                   &e->gone, &x->error);
    if (x->pq == NULL) {
        ngx_http_modelgw_exchanger_lost(e);
        return;
    }

    switch (ngx_http_modelgw_exchanger_join(e)) {

    case NGX_OK:
        e->left = 0;

        /* the clerk knows the cluster by then */

        ngx_memory_barrier();

        e->joined = 1;
        break;

    case NGX_DECLINED:
        ngx_http_modelgw_exchanger_refuse(e);
        break;

    case NGX_BUSY:
        ngx_http_modelgw_exchanger_wait_left(e);
        break;

    default: /* NGX_AGAIN */
        ngx_http_modelgw_exchanger_lost(e);
    }
}


/*
 * The node has left, until an operator lets it come back.  Changes are made
 * here, too: that may be one of them.
 */

static void
ngx_http_modelgw_exchanger_wait_left(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t  i, asked;

    i = 0;
    asked = (ngx_http_modelgw_exchanger_asked(e, &i) != NULL);

    if (ngx_http_modelgw_exchanger_changes(e) != NGX_OK) {
        ngx_http_modelgw_exchanger_lost(e);
        return;
    }

    ngx_http_modelgw_exchanger_close(e);

    e->left = 1;
    e->failures = 0;
    e->retry = ngx_http_modelgw_writer_clock()
               + (asked ? NGX_HTTP_MODELGW_EXCHANGER_STEP
                        : NGX_HTTP_MODELGW_EXCHANGER_MAX);
}


static ngx_int_t
ngx_http_modelgw_exchanger_join(ngx_http_modelgw_exchanger_t *e)
{
    uint64_t            boot;
    ngx_int_t           rc;
    ngx_modelgw_node_e  state;

    e->joins++;
    boot = ngx_http_modelgw_exchanger_boot();

    rc = ngx_http_modelgw_exchanger_end(e);

    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_modelgw_exchange_join(&e->x, ngx_http_modelgw_exchanger_lease, e);

    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_modelgw_exchanger_known(e);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_modelgw_exchanger_unknown(e) != NGX_OK) {
        return NGX_AGAIN;
    }

    if (e->lowered && ngx_http_modelgw_round_lowered(e) != NGX_OK) {
        return ngx_http_modelgw_exchanger_unwritten(e);
    }

    e->lowered = 0;

    e->closed = 1;
    e->compared = 0;

    e->version = e->node->keys_version;
    e->version -= ngx_min(e->version, NGX_HTTP_MODELGW_EXCHANGER_FEED);

    e->again = ngx_http_modelgw_exchanger_time()
               - NGX_MODELGW_JOURNAL_KEEP * 1000;

    e->since = ngx_http_modelgw_writer_clock();
    e->last = 0;
    e->read = 0;
    e->saved = 0;
    e->shipped = (uint64_t) -1;
    ngx_memzero(e->priced, sizeof(e->priced));
    e->round.took = 0;
    e->round.drain = 0;
    e->idle = 0;

    e->node->epoch = e->x.epoch;
    e->node->pos = e->x.pos;

    __atomic_store_n(&e->node->exchanged, boot, __ATOMIC_RELEASE);

    ngx_http_modelgw_exchanger_reason(e, NULL);

    /* else the first exchange tells whether it is still asked to leave */

    state = e->node->state;

    if (state != NGX_MODELGW_NODE_LEFT) {
        ngx_modelgw_node_set(e->ledger, NGX_MODELGW_NODE_MEMBER);
    }

    if (state == NGX_MODELGW_NODE_NEW || state == NGX_MODELGW_NODE_REFUSED
        || (state == NGX_MODELGW_NODE_OFFLINE && !e->away))
    {
        ngx_http_modelgw_exchanger_say(e, NGX_HTTP_MODELGW_LINE_JOINED, NULL,
                                       0);
    }

    return NGX_OK;
}


/* A lease, as the database has it: granted and forced are its word. */

static ngx_int_t
ngx_http_modelgw_exchanger_lease(void *data, ngx_str_t *name, int64_t granted,
    int64_t returned, int64_t forced, int64_t spent, int64_t held)
{
    ngx_http_modelgw_exchanger_t *e = data;

    uint64_t                  ends;
    ngx_modelgw_fund_t        fund;
    ngx_modelgw_lease_t      *lease;
    ngx_http_modelgw_fund_t  *f;

    /* an account that is not here, or a window that is over */

    if (ngx_modelgw_fund_find(e->ledger, name, &fund, &ends) != NGX_OK) {
        return NGX_OK;
    }

    f = ngx_http_modelgw_funds_add(&e->funds, &fund);
    if (f == NULL) {
        return NGX_ERROR;
    }

    f->joined = e->joins;

    ngx_modelgw_ledger_lock(e->ledger);

    lease = ngx_modelgw_lease(e->ledger, &fund);

    /* an exchanger that was killed may not have written down what it knew */

    f->dirty |= (lease->granted != granted || lease->forced != forced
                 || (e->joins == 1 && forced));

    e->lowered |= (lease->granted > granted || lease->forced < forced);

    ngx_modelgw_lease_said_locked(e->ledger, &fund, ends, granted, returned,
                                  forced, held);

    ngx_modelgw_ledger_unlock(e->ledger);

    return NGX_OK;
}


/*
 * Leases that the database does not have: it was set back.  NGX_OK, NGX_AGAIN:
 * no memory, e->x.error is set.
 */

static ngx_int_t
ngx_http_modelgw_exchanger_unknown(ngx_http_modelgw_exchanger_t *e)
{
    uint32_t            n;
    ngx_modelgw_fund_t  fund;

    n = ngx_modelgw_ledger_accounts(e->ledger);
    fund.kind = NGX_MODELGW_FUND_ACCOUNT;

    for (fund.index = 0; fund.index < n; fund.index++) {
        if (ngx_http_modelgw_exchanger_unknown_fund(e, &fund) != NGX_OK) {
            return NGX_AGAIN;
        }
    }

    n = e->funds.max[NGX_MODELGW_FUND_BUDGET];
    fund.kind = NGX_MODELGW_FUND_BUDGET;

    for (fund.index = 0; fund.index < n; fund.index++) {
        if (ngx_http_modelgw_exchanger_unknown_fund(e, &fund) != NGX_OK) {
            return NGX_AGAIN;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_exchanger_unknown_fund(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_fund_t *fund)
{
    ngx_uint_t                used;
    ngx_modelgw_lease_t      *lease;
    ngx_http_modelgw_fund_t  *f;

    ngx_modelgw_ledger_lock(e->ledger);

    lease = ngx_modelgw_lease(e->ledger, fund);

    used = lease->granted || lease->returned || lease->forced || lease->told
           || (fund->kind == NGX_MODELGW_FUND_ACCOUNT
               && ngx_modelgw_ledger_account_at(e->ledger, fund->index)->balance
                  != 0);

    ngx_modelgw_ledger_unlock(e->ledger);

    if (!used) {
        return NGX_OK;
    }

    f = ngx_http_modelgw_funds_add(&e->funds, fund);

    if (f == NULL) {
        e->x.error.len = ngx_sprintf(e->x.error.data, "no memory")
                         - e->x.error.data;
        return NGX_AGAIN;
    }

    if (f->joined == e->joins) {
        return NGX_OK;
    }

    f->dirty = 1;
    e->lowered = 1;

    ngx_modelgw_ledger_lock(e->ledger);

    ngx_modelgw_lease_said_locked(e->ledger, fund, lease->ends, 0, 0, 0, 0);

    ngx_modelgw_ledger_unlock(e->ledger);

    return NGX_OK;
}


/* Up to where the journal has calls: NGX_OK, NGX_AGAIN. */

static ngx_int_t
ngx_http_modelgw_exchanger_end(ngx_http_modelgw_exchanger_t *e)
{
    ngx_int_t             rc;
    ngx_modelgw_store_t  *store;

    store = ngx_modelgw_store_open_read(e->path, &e->shared->file, &e->error);

    rc = store ? ngx_modelgw_journal_end(store, &e->x.end) : NGX_ERROR;

    if (store) {
        ngx_modelgw_store_close(store);
    }

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    e->x.error.len = ngx_sprintf(e->x.error.data, "the journal cannot be read")
                     - e->x.error.data;
    return NGX_AGAIN;
}


/* Which call the journal has at a position: NGX_OK, NGX_ERROR. */

static ngx_int_t
ngx_http_modelgw_exchanger_call(void *data, uint64_t pos, uint64_t *id)
{
    ngx_http_modelgw_exchanger_t *e = data;

    ngx_int_t             rc;
    ngx_modelgw_store_t  *store;

    store = ngx_modelgw_store_open_read(e->path, &e->shared->file, &e->error);
    if (store == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_journal_call(store, pos, id);

    ngx_modelgw_store_close(store);

    return rc;
}


/* Writes down which node it is, before any call is admitted by that. */

static ngx_int_t
ngx_http_modelgw_exchanger_known(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t  renamed;

    renamed = (e->journal.num != e->x.num);

    if (e->node->num != e->x.num) {
        ngx_modelgw_node_ids(e->ledger, e->x.num);
        e->node->num = e->x.num;
    }

    if (!renamed && e->journal.cluster[0]) {
        return NGX_OK;
    }

    e->journal.num = e->x.num;
    ngx_memcpy(e->journal.cluster, e->x.cluster, NGX_MODELGW_RANDOM_ID);

    if (ngx_http_modelgw_exchanger_write(e, NULL, 0, NULL, 0) == NGX_OK) {
        return NGX_OK;
    }

    e->journal.num = 0;

    return ngx_http_modelgw_exchanger_unwritten(e);
}


static ngx_int_t
ngx_http_modelgw_exchanger_unwritten(ngx_http_modelgw_exchanger_t *e)
{
    e->x.error.len = ngx_sprintf(e->x.error.data,
                                 "the journal cannot be written")
                     - e->x.error.data;
    return NGX_AGAIN;
}


static void
ngx_http_modelgw_exchanger_round(ngx_http_modelgw_exchanger_t *e)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_round(e);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_exchanger_more(e);
    }

    if (rc == NGX_OK && e->good) {
        ngx_http_modelgw_exchanger_state(e);
    }

    if (rc == NGX_OK && e->good && e->round.drain) {
        rc = ngx_http_modelgw_exchanger_leave(e);
    }

    if (rc == NGX_OK) {
        ngx_http_modelgw_exchanger_wait(e);
        return;
    }

    if (rc == NGX_DECLINED) {
        e->node->fenced++;
        ngx_http_modelgw_exchanger_say(e, NGX_HTTP_MODELGW_LINE_FENCED, NULL,
                                       0);
    }

    ngx_http_modelgw_exchanger_lost(e);
}


/* An exchange was good. */

static void
ngx_http_modelgw_exchanger_state(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t          left;
    ngx_modelgw_node_e  state;

    e->failures = 0;
    e->refused = 0;

    if (e->away) {
        e->away = 0;
        ngx_http_modelgw_exchanger_say(e, NGX_HTTP_MODELGW_LINE_AGAIN, NULL, 0);
    }

    state = e->round.drain ? NGX_MODELGW_NODE_LEFT : NGX_MODELGW_NODE_MEMBER;

    if (e->node->state == state) {
        return;
    }

    left = (e->node->state == NGX_MODELGW_NODE_LEFT);

    ngx_modelgw_node_set(e->ledger, state);

    if (state == NGX_MODELGW_NODE_LEFT) {
        ngx_http_modelgw_exchanger_say(e, NGX_HTTP_MODELGW_LINE_LEFT, NULL, 0);

    } else if (left) {
        ngx_http_modelgw_exchanger_say(e, NGX_HTTP_MODELGW_LINE_JOINED, NULL,
                                       0);
    }
}


/*
 * A node that was asked to leave has left when its last call has ended, all are
 * shipped, and nothing is lent to it any more.
 */

static ngx_int_t
ngx_http_modelgw_exchanger_leave(ngx_http_modelgw_exchanger_t *e)
{
    ngx_int_t                  rc;
    ngx_modelgw_ledger_room_t  used, max;

    ngx_modelgw_ledger_used(e->ledger, &used, &max);

    e->idle = (used.calls == 0 && e->funds.n == 0 && e->round.calls.n == 0
               && e->shipped == ngx_modelgw_ledger_done_ever(e->ledger))
              ? e->idle + 1 : 0;

    if (e->idle < 2) {
        return NGX_OK;
    }

    rc = ngx_modelgw_exchange_leave(&e->x);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_modelgw_exchanger_close(e);

    e->left = 1;
    e->retry = ngx_http_modelgw_writer_clock() + NGX_HTTP_MODELGW_EXCHANGER_MAX;

    return NGX_OK;
}


static void
ngx_http_modelgw_exchanger_close(ngx_http_modelgw_exchanger_t *e)
{
    e->joined = 0;

    if (e->x.pq) {
        ngx_modelgw_pq_close(e->x.pq);
        e->x.pq = NULL;
    }
}


/* The connection is lost, or there was none: the next try is later. */

static void
ngx_http_modelgw_exchanger_lost(ngx_http_modelgw_exchanger_t *e)
{
    uint64_t  delay;

    ngx_http_modelgw_exchanger_close(e);

    e->node->failures++;
    e->failures++;

    delay = NGX_HTTP_MODELGW_EXCHANGER_RETRY << ngx_min(e->failures - 1, 5);
    delay = ngx_min(delay, NGX_HTTP_MODELGW_EXCHANGER_MAX);
    delay += ngx_random() % (delay / 2);

    e->retry = ngx_http_modelgw_writer_clock() + delay;

    /* of one that is refused the database's reason counts, and is logged */

    if (e->node->state == NGX_MODELGW_NODE_REFUSED) {
        return;
    }

    ngx_http_modelgw_exchanger_reason(e, &e->x.error);

    if (e->node->state == NGX_MODELGW_NODE_MEMBER) {
        ngx_modelgw_node_set(e->ledger, NGX_MODELGW_NODE_AWAY);
    }

    if (e->failures >= NGX_HTTP_MODELGW_EXCHANGER_REPORT && !e->away
        && !e->stop)
    {
        e->away = 1;
        ngx_http_modelgw_exchanger_say(e,
                                       e->node->exchanged
                                       ? NGX_HTTP_MODELGW_LINE_AWAY
                                       : NGX_HTTP_MODELGW_LINE_ALONE,
                                       e->x.error.data, e->x.error.len);
    }
}


/*
 * Not by itself, but an operator may help: it is tried again.  It is written
 * down: a start without the database must not admit calls.
 */

static void
ngx_http_modelgw_exchanger_refuse(ngx_http_modelgw_exchanger_t *e)
{
    uint32_t  hash;

    ngx_http_modelgw_exchanger_reason(e, &e->x.error);
    ngx_modelgw_node_set(e->ledger, NGX_MODELGW_NODE_REFUSED);

    ngx_http_modelgw_exchanger_close(e);

    e->retry = ngx_http_modelgw_writer_clock() + NGX_HTTP_MODELGW_EXCHANGER_MAX;

    /* one that changes is logged, as what was done about it may be wrong */

    hash = ngx_crc32_short(e->x.error.data, e->x.error.len) | 1;

    if (e->refused != hash) {
        e->refused = hash;
        ngx_http_modelgw_exchanger_say(e, NGX_HTTP_MODELGW_LINE_REFUSED,
                                       e->x.error.data, e->x.error.len);

        (void) ngx_http_modelgw_exchanger_write(e, NULL, 0, NULL, 0);
    }
}


/* A while without the database. */

static void
ngx_http_modelgw_exchanger_alone(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t  i;

    ngx_http_modelgw_round_alone(e);
    ngx_http_modelgw_exchanger_fail(e);

    i = 0;

    if (e->left && e->failures == 0
        && ngx_http_modelgw_exchanger_asked(e, &i))
    {
        e->retry = 0;
        return;
    }

    ngx_modelgw_exchange_wait(e->ledger, NGX_HTTP_MODELGW_EXCHANGER_STEP);
}


/* Until the next round. */

static void
ngx_http_modelgw_exchanger_wait(ngx_http_modelgw_exchanger_t *e)
{
    uint64_t  now, end;

    if (e->hurry) {
        return;
    }

    now = ngx_http_modelgw_writer_clock();
    end = now + ngx_max(e->shared->exchange, 1);

    while (now < end && !e->stop && !ngx_http_modelgw_round_due(e)) {
        ngx_modelgw_exchange_wait(e->ledger, end - now);
        now = ngx_http_modelgw_writer_clock();
    }
}


ngx_int_t
ngx_http_modelgw_exchanger_write(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_ask_t *asks, ngx_uint_t nasks, ngx_modelgw_feed_t *feed,
    ngx_uint_t nfeed)
{
    uint64_t                        since;
    ngx_http_modelgw_journal_job_t  job;

    if (e->x.num) {
        e->journal.pos = e->x.pos;
    }

    if (e->refused && !e->joined) {
        e->journal.exchanged = 0;

    } else if (e->node->exchanged) {
        since = ngx_http_modelgw_exchanger_boot() - e->node->exchanged;
        e->journal.exchanged = ngx_http_modelgw_exchanger_time() - since;
    }

    job.journal = &e->journal;
    job.asks = asks;
    job.nasks = nasks;
    job.feed = feed;
    job.nfeed = nfeed;
    job.topup = NULL;

    return ngx_http_modelgw_writer_job(e->writer, &job);
}


/* for operators; NULL: it is a member */

static void
ngx_http_modelgw_exchanger_reason(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_pq_error_t *error)
{
    ngx_http_modelgw_line_t  *reason;

    reason = &e->shared->reason;

    ngx_modelgw_ledger_lock(e->ledger);

    reason->len = error ? ngx_min(error->len, NGX_MODELGW_STORE_ERROR) : 0;

    if (reason->len) {
        ngx_memcpy(reason->text, error->data, reason->len);
    }

    ngx_modelgw_ledger_unlock(e->ledger);
}


static void
ngx_http_modelgw_exchanger_say(ngx_http_modelgw_exchanger_t *e,
    ngx_http_modelgw_line_e what, u_char *text, size_t len)
{
    ngx_http_modelgw_process_report(e->ledger, e->shared, what, text, len);
}


uint64_t
ngx_http_modelgw_exchanger_time(void)
{
    return ngx_http_modelgw_exchanger_ms(CLOCK_REALTIME);
}


uint64_t
ngx_http_modelgw_exchanger_boot(void)
{
    return ngx_http_modelgw_exchanger_ms(CLOCK_BOOTTIME);
}


static uint64_t
ngx_http_modelgw_exchanger_ms(clockid_t clock)
{
    struct timespec  ts;

    (void) clock_gettime(clock, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
