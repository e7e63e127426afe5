
/*
 * A round of the exchanger: what is said to the database, and what becomes of
 * its answer.
 *
 * In this order: calls that are settled and durable are taken from the writer,
 * or read from the journal; calls that wait are tried, and their funds asked
 * for; then the other funds that are in use.  Where credit is given back,
 * "returned" is written to the journal before it is said.  After the exchange
 * totals are applied, calls that wait are tried again or refused, and recalls
 * are noted: they are answered in the next round, which follows at once.
 *
 * A call is refused only by an answer to what was asked for it: when its need
 * was not met, and no live node that has something left has still to answer
 * the recall that was raised for it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_exchange.h"
#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_share.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_exchanger.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_ROUND_HURRIES  3    /* one after another, without any
                                                effect on a call that waits */
#define NGX_HTTP_MODELGW_ROUND_SAVE     1000 /* ms, between writes of totals
                                                that nothing depends on */
#define NGX_HTTP_MODELGW_ROUND_IDLE     10000 /* ms, if there are none */


static void ngx_http_modelgw_round_calls(ngx_http_modelgw_exchanger_t *e,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_round_fresh(ngx_http_modelgw_exchanger_t *e,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_round_read(ngx_http_modelgw_exchanger_t *e,
    uint64_t now, ngx_uint_t max);
static ngx_int_t ngx_http_modelgw_round_prices(ngx_http_modelgw_exchanger_t *e,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_round_reader(ngx_http_modelgw_exchanger_t *e,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_round_unread(ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_round_call(void *data,
    ngx_modelgw_journal_call_t *call);
static ngx_int_t ngx_http_modelgw_round_price(void *data,
    ngx_modelgw_store_price_t *price);
static void ngx_http_modelgw_round_claims(ngx_http_modelgw_exchanger_t *e,
    uint64_t time);
static void ngx_http_modelgw_round_funds(ngx_http_modelgw_exchanger_t *e,
    uint64_t time);
static ngx_int_t ngx_http_modelgw_round_ask(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_fund_t *fund, uint64_t time);
static ngx_int_t ngx_http_modelgw_round_open(ngx_http_modelgw_exchanger_t *e);
static ngx_uint_t ngx_http_modelgw_round_open_asks(
    ngx_http_modelgw_exchanger_t *e, ngx_uint_t n);
static void ngx_http_modelgw_round_open_budget(
    ngx_modelgw_exchange_open_t *open, ngx_modelgw_ask_t *ask);
static ngx_int_t ngx_http_modelgw_round_back(ngx_http_modelgw_exchanger_t *e);
static ngx_int_t ngx_http_modelgw_round_say(ngx_http_modelgw_exchanger_t *e);
static int64_t ngx_http_modelgw_round_held(void *data, ngx_str_t *account);
static void ngx_http_modelgw_round_count(ngx_modelgw_lease_node_t *node,
    uint64_t usec);
static void ngx_http_modelgw_round_said(ngx_http_modelgw_exchanger_t *e,
    uint64_t time);
static void ngx_http_modelgw_round_wait(ngx_http_modelgw_exchanger_t *e,
    uint64_t time);
static void ngx_http_modelgw_round_recalls(ngx_http_modelgw_exchanger_t *e,
    uint64_t time);
static void ngx_http_modelgw_round_save(ngx_http_modelgw_exchanger_t *e,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_round_write(ngx_http_modelgw_exchanger_t *e,
    ngx_uint_t n);
static ngx_uint_t ngx_http_modelgw_round_dirty(ngx_http_modelgw_exchanger_t *e);
static ngx_uint_t ngx_http_modelgw_round_totals(
    ngx_http_modelgw_exchanger_t *e, ngx_modelgw_fund_t *fund,
    ngx_modelgw_ask_t *ask);


ngx_int_t
ngx_http_modelgw_round(ngx_http_modelgw_exchanger_t *e)
{
    uint64_t   now, time;
    ngx_int_t  rc, back;

    now = ngx_http_modelgw_writer_clock();
    time = ngx_http_modelgw_exchanger_time();

    e->number++;
    e->hurry = 0;
    e->good = 0;
    e->round.nasks = 0;

    ngx_http_modelgw_round_calls(e, now);
    ngx_http_modelgw_round_claims(e, time);
    ngx_http_modelgw_round_funds(e, time);

    if (ngx_http_modelgw_round_open(e) != NGX_OK) {
        return NGX_AGAIN;
    }

    /*
     * Operators wait until each node has said that it knows a new key; and
     * after a recall others are likely, of calls that came while it was
     * answered: with a beat for each of them they would wait for too long.
     */

    if (e->round.calls.n == 0 && e->round.nasks == 0 && e->nmade == 0
        && e->x.keys_version == e->node->keys_version
        && now - e->last < NGX_HTTP_MODELGW_EXCHANGER_BEAT
        && now >= e->awake)
    {
        return NGX_OK;
    }

    back = ngx_http_modelgw_round_back(e);

    rc = ngx_http_modelgw_round_say(e);

    if (rc != NGX_OK) {
        return rc;
    }

    e->good = 1;
    e->hurry |= e->full;

    time = ngx_http_modelgw_exchanger_time();

    ngx_http_modelgw_round_said(e, time);
    ngx_http_modelgw_round_wait(e, time);
    ngx_http_modelgw_round_recalls(e, time);

    /* what is to be given back is not, while the journal cannot be written */

    if (back != NGX_OK) {
        e->hurry = 0;
        return NGX_OK;
    }

    ngx_http_modelgw_round_save(e, now);

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_round_last(ngx_http_modelgw_exchanger_t *e)
{
    ngx_int_t  rc;

    do {
        e->number++;
        e->round.nasks = 0;
        e->read = 0;

        ngx_http_modelgw_round_calls(e, ngx_http_modelgw_writer_clock());

        if (e->round.calls.n == 0) {
            return NGX_OK;
        }

        rc = ngx_http_modelgw_round_say(e);

        if (rc != NGX_OK) {
            return rc;
        }

    } while (!e->gone);

    return NGX_OK;
}


ngx_uint_t
ngx_http_modelgw_round_due(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t            i;
    ngx_modelgw_claim_t  *claim;

    i = 0;

    if (ngx_http_modelgw_exchanger_asked(e, &i)
        || ngx_modelgw_shares_urgent(e->ledger))
    {
        return 1;
    }

    i = 0;

    for ( ;; ) {
        claim = ngx_modelgw_claim_asked(e->ledger, &i);
        if (claim == NULL) {
            return 0;
        }

        if (claim->ticket > e->ticket) {
            return 1;
        }
    }
}


void
ngx_http_modelgw_round_alone(ngx_http_modelgw_exchanger_t *e)
{
    ngx_http_modelgw_round_wait(e, ngx_http_modelgw_exchanger_time());
}


/* Nothing is read while a failed commit of the writer may be in memory only. */

static void
ngx_http_modelgw_round_calls(ngx_http_modelgw_exchanger_t *e, uint64_t now)
{
    uint64_t    done;
    ngx_int_t   rc;
    ngx_uint_t  durable;

    e->full = 0;
    ngx_modelgw_shipment_clear(&e->round.calls);
    e->round.nprices = 0;
    e->reads = e->shipped;

    done = ngx_modelgw_ledger_done_ever(e->ledger);

    if ((done == e->shipped && now - e->read < NGX_HTTP_MODELGW_EXCHANGER_BEAT)
        || e->shared->unsynced)
    {
        return;
    }

    durable = ngx_modelgw_ledger_durable(e->ledger, done);

    e->text = e->texts;

    rc = ngx_http_modelgw_round_fresh(e, now);

    if (rc == NGX_DECLINED) {
        return;
    }

    if (rc != NGX_OK || ngx_http_modelgw_round_prices(e, now) != NGX_OK) {
        e->full = 0;
        ngx_modelgw_shipment_clear(&e->round.calls);
        e->round.nprices = 0;
        ngx_memzero(e->priced, sizeof(e->priced));
        return;
    }

    if (durable && !e->full) {
        e->reads = done;
    }
}


/*
 * Those that the writer has at hand; or else the journal is read, if there are
 * more, and once a second, as the writer may not know of some that are durable:
 * a commit may have failed after that.  NGX_DECLINED: there are none at hand.
 */

static ngx_int_t
ngx_http_modelgw_round_fresh(ngx_http_modelgw_exchanger_t *e, uint64_t now)
{
    uint64_t  end, gap;

    if (ngx_modelgw_fresh_take(&e->writer->fresh, e->x.pos, &e->round.calls,
                               &end, &gap)
        == NGX_OK)
    {
        e->full = (end > e->x.pos + e->round.calls.n);
        e->round.end = end;
        return NGX_OK;
    }

    if (ngx_max(end, e->x.end) <= e->x.pos
        && now - e->read < NGX_HTTP_MODELGW_EXCHANGER_BEAT)
    {
        return NGX_DECLINED;
    }

    return ngx_http_modelgw_round_read(e, now, ngx_min(gap,
                                               NGX_MODELGW_EXCHANGE_CALLS));
}


static ngx_int_t
ngx_http_modelgw_round_read(ngx_http_modelgw_exchanger_t *e, uint64_t now,
    ngx_uint_t max)
{
    ngx_modelgw_shipment_t  *calls;

    calls = &e->round.calls;

    if (ngx_http_modelgw_round_reader(e, now) != NGX_OK) {
        return NGX_ERROR;
    }

    e->read = now;

    /* the end first: calls that become durable meanwhile are read after it */

    if (ngx_modelgw_journal_end(e->reader, &e->round.end) == NGX_OK
        && ngx_modelgw_journal_calls(e->reader, e->x.pos, max,
                                     ngx_http_modelgw_round_call, e)
           == NGX_OK)
    {
        e->full |= (calls->n == max);

        e->round.end = ngx_max(e->round.end,
                               calls->n ? calls->first + calls->n - 1
                                        : e->x.pos);
        return NGX_OK;
    }

    return ngx_http_modelgw_round_unread(e);
}


/* Prices that the database may not have. */

static ngx_int_t
ngx_http_modelgw_round_prices(ngx_http_modelgw_exchanger_t *e, uint64_t now)
{
    u_char     *p;
    int64_t     id;
    uint64_t   *priced;
    ngx_str_t   element;

    p = NULL;

    while (e->round.calls.n) {
        p = ngx_modelgw_pq_array_next(
                          &e->round.calls.columns[NGX_MODELGW_SHIPMENT_PRICE],
                          p, &element);
        if (p == NULL) {
            break;
        }

        id = ngx_modelgw_pq_read(element.data, element.len);
        priced = &e->priced[id % NGX_HTTP_MODELGW_EXCHANGER_PRICES];

        if (*priced == (uint64_t) id) {
            continue;
        }

        if (ngx_http_modelgw_round_reader(e, now) != NGX_OK) {
            return NGX_ERROR;
        }

        if (ngx_modelgw_journal_price(e->reader, id,
                                      ngx_http_modelgw_round_price, e)
            != NGX_OK)
        {
            return ngx_http_modelgw_round_unread(e);
        }

        /* forgotten, if it is not said or that fails */

        *priced = id;
    }

    return NGX_OK;
}


/* Files may be replaced, so they are opened again from time to time. */

static ngx_int_t
ngx_http_modelgw_round_reader(ngx_http_modelgw_exchanger_t *e, uint64_t now)
{
    if (e->reader
        && now - e->opened >= NGX_HTTP_MODELGW_EXCHANGER_BEAT)
    {
        ngx_modelgw_store_close(e->reader);
        e->reader = NULL;
    }

    if (e->reader == NULL) {
        e->reader = ngx_modelgw_store_open_read(e->path, &e->shared->file,
                                                &e->error);
        e->opened = now;
    }

    return e->reader ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_modelgw_round_unread(ngx_http_modelgw_exchanger_t *e)
{
    ngx_modelgw_store_error(e->reader, &e->error);
    ngx_modelgw_store_close(e->reader);

    e->reader = NULL;

    return NGX_ERROR;
}


/* What does not follow the calls before it is read in the next round. */

static ngx_int_t
ngx_http_modelgw_round_call(void *data, ngx_modelgw_journal_call_t *call)
{
    ngx_http_modelgw_exchanger_t *e = data;

    ngx_int_t  rc;

    rc = ngx_modelgw_shipment_add(&e->round.calls, call, 1);

    e->full |= (rc == NGX_DECLINED);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* There are few. */

static ngx_int_t
ngx_http_modelgw_round_price(void *data, ngx_modelgw_store_price_t *price)
{
    ngx_http_modelgw_exchanger_t *e = data;

    ngx_modelgw_store_price_t  *copy;

    if (e->round.nprices == NGX_MODELGW_EXCHANGE_CALLS
        || price->group.len + price->model.len
           > (size_t) (e->text_end - e->text))
    {
        return NGX_OK;
    }

    copy = &e->prices[e->round.nprices++];

    *copy = *price;

    ngx_http_modelgw_round_text(e, &copy->group);
    ngx_http_modelgw_round_text(e, &copy->model);

    return NGX_OK;
}


void
ngx_http_modelgw_round_text(ngx_http_modelgw_exchanger_t *e, ngx_str_t *text)
{
    u_char  *p;

    p = e->text;
    e->text = ngx_cpymem(p, text->data, text->len);

    text->data = p;
}


static void
ngx_http_modelgw_round_claims(ngx_http_modelgw_exchanger_t *e, uint64_t time)
{
    int64_t               lacks[NGX_MODELGW_FUNDS];
    uint32_t              index[NGX_MODELGW_FUNDS];
    ngx_int_t             rc;
    ngx_uint_t            i, kind;
    ngx_modelgw_fund_t    fund;
    ngx_modelgw_claim_t  *claim;

    i = 0;

    for ( ;; ) {
        claim = ngx_modelgw_claim_asked(e->ledger, &i);
        if (claim == NULL) {
            return;
        }

        ngx_modelgw_ledger_lock(e->ledger);

        rc = ngx_modelgw_claim_try_locked(e->ledger, claim, time, lacks);

        e->ticket = ngx_max(e->ticket, claim->ticket);
        e->resolved += (rc == NGX_OK);

        index[NGX_MODELGW_FUND_ACCOUNT] = claim->account;
        index[NGX_MODELGW_FUND_BUDGET] = claim->key;

        ngx_modelgw_ledger_unlock(e->ledger);

        for (kind = 0; rc == NGX_DECLINED && kind < NGX_MODELGW_FUNDS; kind++) {

            if (lacks[kind] > 0) {
                fund.kind = kind;
                fund.index = index[kind];

                (void) ngx_http_modelgw_round_ask(e, &fund, time);
            }
        }
    }
}


/*
 * Other funds, from where the last round has stopped.  One that has nothing
 * left, and of which there is nothing to say, is not in use any more.
 */

static void
ngx_http_modelgw_round_funds(ngx_http_modelgw_exchanger_t *e, uint64_t time)
{
    ngx_int_t                  rc;
    ngx_uint_t                 n;
    ngx_http_modelgw_funds_t  *funds;

    funds = &e->funds;

    for (n = funds->n; n; n--) {

        if (e->round.nasks == NGX_MODELGW_EXCHANGE_ASKS) {
            return;
        }

        if (funds->next >= funds->n) {
            funds->next = 0;
        }

        rc = ngx_http_modelgw_round_ask(e, &funds->elts[funds->next].fund,
                                        time);

        if (rc == NGX_DONE) {
            ngx_http_modelgw_funds_remove(funds, funds->next);

        } else {
            funds->next++;
        }
    }
}


/*
 *     NGX_OK        it is in this round, or was looked at in it
 *     NGX_DECLINED  there is nothing to say
 *     NGX_DONE      nor is it in use any more
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_round_ask(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_fund_t *fund, uint64_t time)
{
    ngx_int_t                 rc;
    ngx_modelgw_fund_t        copy;
    ngx_http_modelgw_fund_t  *f;

    copy = *fund;

    f = ngx_http_modelgw_funds_add(&e->funds, &copy);
    if (f == NULL) {
        return NGX_ERROR;
    }

    if (f->round == e->number || e->round.nasks == NGX_MODELGW_EXCHANGE_ASKS) {
        return NGX_OK;
    }

    f->round = e->number;

    ngx_modelgw_ledger_lock(e->ledger);

    if (e->round.drain) {
        ngx_modelgw_lease_leave_locked(e->ledger, &copy);
    }

    rc = ngx_modelgw_lease_ask_locked(e->ledger, &copy, time,
                                      &e->asks[e->round.nasks]);

    ngx_modelgw_ledger_unlock(e->ledger);

    if (rc == NGX_OK) {
        e->round.nasks++;
        return NGX_OK;
    }

    return (f->dirty || ngx_modelgw_lease_active(e->ledger, &copy))
           ? NGX_DECLINED : NGX_DONE;
}


/*
 * Accounts of the configuration, once by each process, budgets when they are
 * asked for the first time in their window, and what the database does not
 * have, as it was set back.
 */

static ngx_int_t
ngx_http_modelgw_round_open(ngx_http_modelgw_exchanger_t *e)
{
    uint32_t    i, accounts;
    ngx_uint_t  n;

    accounts = ngx_modelgw_ledger_accounts(e->ledger);

    n = 0;

    for (i = e->accounts;
         i < accounts && n < NGX_MODELGW_EXCHANGE_ASKS / 2;
         i++)
    {
        ngx_http_modelgw_round_open_account(e, &e->opens[n++], i);
    }

    n = ngx_http_modelgw_round_open_asks(e, n);

    if (n == 0) {
        return NGX_OK;
    }

    e->x.age = ngx_http_modelgw_exchanger_boot() - e->loaded;

    if (ngx_modelgw_exchange_open(&e->x, e->opens, n) == NGX_OK) {
        e->accounts = i;
        e->hurry |= (i < accounts);

        return NGX_OK;
    }

    for (n = 0; n < e->round.nasks; n++) {

        if (e->asks[n].fund.kind == NGX_MODELGW_FUND_BUDGET) {
            e->funds.budgets[e->asks[n].fund.index].ends = 0;
        }
    }

    return NGX_AGAIN;
}


static ngx_uint_t
ngx_http_modelgw_round_open_asks(ngx_http_modelgw_exchanger_t *e, ngx_uint_t n)
{
    ngx_uint_t                       i;
    ngx_modelgw_ask_t               *ask;
    ngx_http_modelgw_fund_t         *f;
    ngx_http_modelgw_fund_budget_t  *budget;

    for (i = 0; i < e->round.nasks && n < NGX_MODELGW_EXCHANGE_ASKS; i++) {
        ask = &e->asks[i];

        f = ngx_http_modelgw_funds_find(&e->funds, &ask->fund);

        if (ask->fund.kind == NGX_MODELGW_FUND_ACCOUNT) {

            if (f->unknown) {
                ngx_http_modelgw_round_open_account(e, &e->opens[n++],
                                                    ask->fund.index);
                f->unknown = 0;
            }

            continue;
        }

        budget = &e->funds.budgets[ask->fund.index];

        if (ask->limit == 0
            || (budget->ends == ask->ends && budget->limit == ask->limit
                && !f->unknown))
        {
            continue;
        }

        ngx_http_modelgw_round_open_budget(&e->opens[n++], ask);

        budget->ends = ask->ends;
        budget->limit = ask->limit;
        f->unknown = 0;
    }

    return n;
}


void
ngx_http_modelgw_round_open_account(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_exchange_open_t *open, uint32_t index)
{
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(e->ledger, index);

    ngx_memzero(open, sizeof(ngx_modelgw_exchange_open_t));

    open->name.len = a->name.len;
    open->name.data = a->name.data;
    open->amount = a->founding;
}


/* the name is "#KEY/WINDOW/START", and ids of keys have no slash */

static void
ngx_http_modelgw_round_open_budget(ngx_modelgw_exchange_open_t *open,
    ngx_modelgw_ask_t *ask)
{
    u_char  *p, *last;

    ngx_memzero(open, sizeof(ngx_modelgw_exchange_open_t));

    open->name.len = ask->len;
    open->name.data = ask->name;
    open->amount = ask->limit;
    open->ends = ngx_min(ask->ends, INT64_MAX);

    last = ask->name + ask->len;

    p = ngx_strlchr(ask->name, last, '/');

    if (p == NULL) {
        return;
    }

    open->key.data = ask->name + 1;
    open->key.len = p - open->key.data;

    p = ngx_strlchr(p + 1, last, '/');

    while (p && ++p < last) {
        open->starts = open->starts * 10 + (*p - '0');
    }
}


/*
 * What is given back must be in the journal first: if it was said, and the
 * journal did not have it, a restart would spend it again.  If it cannot be
 * written, it is asked for again in the next round.
 */

static ngx_int_t
ngx_http_modelgw_round_back(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t  i;

    for (i = 0; i < e->round.nasks; i++) {
        if (e->asks[i].back) {
            break;
        }
    }

    if (i < e->round.nasks
        && ngx_http_modelgw_exchanger_write(e, e->asks, e->round.nasks, NULL, 0)
           != NGX_OK)
    {
        e->round.nasks = 0;
        return NGX_AGAIN;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_round_say(ngx_http_modelgw_exchanger_t *e)
{
    uint64_t                       boot, usec;
    ngx_int_t                      rc;
    ngx_modelgw_lease_node_t      *node;
    ngx_modelgw_exchange_round_t  *round;

    node = e->node;
    round = &e->round;

    e->x.keys_version = node->keys_version;

    round->prices = e->prices;
    round->asks = e->asks;
    round->said = e->said;
    round->live = ngx_max(node->live, 1);
    round->held = ngx_http_modelgw_round_held;
    round->data = e;

    boot = ngx_http_modelgw_exchanger_boot();
    usec = ngx_http_modelgw_writer_usec();

    e->last = usec / 1000;

    rc = ngx_modelgw_exchange(&e->x, round);

    if (rc != NGX_OK) {
        return rc;
    }

    usec = ngx_http_modelgw_writer_usec() - usec;

    ngx_http_modelgw_round_count(node, usec);

    round->took = usec / 1000;

    e->shipped = e->reads;

    node->pos = e->x.pos;
    node->end = round->end;
    node->live = ngx_max(round->now_live, 1);
    node->known = round->keys_version;

    __atomic_store_n(&node->exchanged, boot, __ATOMIC_RELEASE);

    return NGX_OK;
}


/* What an account holds now, for operators. */

static int64_t
ngx_http_modelgw_round_held(void *data, ngx_str_t *account)
{
    ngx_http_modelgw_exchanger_t *e = data;

    ngx_modelgw_fund_t  fund;

    if (ngx_modelgw_fund_find(e->ledger, account, &fund, NULL) != NGX_OK) {
        return 0;
    }

    return ngx_modelgw_ledger_account_at(e->ledger, fund.index)->held;
}


static void
ngx_http_modelgw_round_count(ngx_modelgw_lease_node_t *node, uint64_t usec)
{
    uint64_t    limit;
    ngx_uint_t  i;

    limit = 250;

    for (i = 0; i < NGX_MODELGW_EXCHANGE_BUCKETS - 1 && usec > limit; i++) {
        limit *= 2;
    }

    node->exchanges[i]++;
    node->exchange_usec += usec;
}


static void
ngx_http_modelgw_round_said(ngx_http_modelgw_exchanger_t *e, uint64_t time)
{
    ngx_uint_t                    i, early;
    ngx_modelgw_ask_t            *ask;
    ngx_http_modelgw_fund_t      *f;
    ngx_modelgw_claim_said_t      claim;
    ngx_modelgw_exchange_said_t  *said;

    /*
     * after an outage of the database all nodes seem to be away, until they
     * have joined again: a call is not refused for that
     */

    early = (ngx_http_modelgw_writer_clock() - e->since
             < NGX_MODELGW_EXCHANGE_LIVE);

    for (i = 0; i < e->round.nasks; i++) {
        ask = &e->asks[i];
        said = &e->said[i];

        f = ngx_http_modelgw_funds_find(&e->funds, &ask->fund);

        /* a budget whose limit is not known cannot be opened */

        if (!said->found) {
            f->unknown = 1;
            e->hurry |= (ask->fund.kind == NGX_MODELGW_FUND_ACCOUNT
                         || ask->limit);
            continue;
        }

        f->dirty |= (said->granted != ask->granted
                     || said->forced != ask->forced);

        claim.brief = said->brief;
        claim.recall = said->recall;
        claim.silent = said->silent + (early && said->away > 0);
        claim.free = said->free;
        claim.away = said->away;

        ngx_modelgw_ledger_lock(e->ledger);

        ngx_modelgw_lease_said_locked(e->ledger, &ask->fund, ask->ends,
                                      said->granted, said->returned,
                                      said->forced, ask->held);

        if (ngx_modelgw_lease(e->ledger, &ask->fund)->claims) {
            e->resolved += ngx_modelgw_claim_said_locked(e->ledger, ask, &claim,
                                                         time);
        }

        ngx_modelgw_ledger_unlock(e->ledger);

        e->node->recalls += (ask->answered != 0);
    }
}


/*
 * Calls that wait, the oldest first.  If there is one that was not asked for,
 * the next round follows at once.
 */

static void
ngx_http_modelgw_round_wait(ngx_http_modelgw_exchanger_t *e, uint64_t time)
{
    int64_t               lacks[NGX_MODELGW_FUNDS];
    ngx_int_t             rc;
    ngx_uint_t            i, kind, unasked;
    ngx_modelgw_claim_t  *claim;

    i = 0;
    unasked = 0;

    for ( ;; ) {
        claim = ngx_modelgw_claim_asked(e->ledger, &i);
        if (claim == NULL) {
            break;
        }

        ngx_modelgw_ledger_lock(e->ledger);

        rc = ngx_modelgw_claim_try_locked(e->ledger, claim, time, lacks);

        for (kind = 0; rc == NGX_DECLINED && kind < NGX_MODELGW_FUNDS; kind++) {
            unasked |= (lacks[kind] > 0 && claim->recalls[kind] == 0);
        }

        if ((rc == NGX_DECLINED || rc == NGX_BUSY) && time >= claim->deadline) {
            ngx_modelgw_claim_end_locked(e->ledger, claim,
                                         NGX_MODELGW_CLAIM_SILENT);
            rc = NGX_OK;
        }

        ngx_modelgw_ledger_unlock(e->ledger);

        e->resolved += (rc == NGX_OK);
    }

    e->hurries = e->resolved ? 0 : e->hurries + 1;
    e->resolved = 0;

    if (!unasked) {
        e->hurries = 0;

    } else if (e->hurries < NGX_HTTP_MODELGW_ROUND_HURRIES) {
        e->hurry = 1;
    }
}


/* "NAME NO,NAME NO": names have neither blanks nor commas */

static void
ngx_http_modelgw_round_recalls(ngx_http_modelgw_exchanger_t *e, uint64_t time)
{
    u_char              *p, *last;
    uint64_t             no;
    ngx_str_t            name;
    ngx_modelgw_fund_t   fund;

    p = e->round.recalls.data;
    last = p + e->round.recalls.len;

    while (p < last) {

        name.data = p;

        while (p < last && *p != ' ') {
            p++;
        }

        name.len = p - name.data;
        no = 0;

        while (++p < last && *p != ',') {
            no = no * 10 + (*p - '0');
        }

        p++;

        if (ngx_modelgw_fund_find(e->ledger, &name, &fund, NULL) != NGX_OK
            || ngx_http_modelgw_funds_add(&e->funds, &fund) == NULL)
        {
            continue;
        }

        ngx_modelgw_ledger_lock(e->ledger);
        ngx_modelgw_lease_recall_locked(e->ledger, &fund, no, time);
        ngx_modelgw_ledger_unlock(e->ledger);

        e->awake = ngx_http_modelgw_writer_clock() + NGX_MODELGW_LEASE_RECALL;
        e->hurry = 1;
    }
}


/*
 * Once a second, while no call waits: totals that the database has, so that the
 * journal may be behind.  They let a node that starts without the database go
 * on with what was lent.
 */

static void
ngx_http_modelgw_round_save(ngx_http_modelgw_exchanger_t *e, uint64_t now)
{
    ngx_uint_t  n;

    if (e->hurry || now - e->saved < NGX_HTTP_MODELGW_ROUND_SAVE) {
        return;
    }

    n = ngx_http_modelgw_round_dirty(e);

    if (n == 0 && now - e->saved < NGX_HTTP_MODELGW_ROUND_IDLE) {
        return;
    }

    e->saved = now;

    (void) ngx_http_modelgw_round_write(e, n);
}


ngx_int_t
ngx_http_modelgw_round_lowered(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t  n;

    do {
        n = ngx_http_modelgw_round_dirty(e);

        if (ngx_http_modelgw_round_write(e, n) != NGX_OK) {
            return NGX_AGAIN;
        }

    } while (n == NGX_MODELGW_EXCHANGE_ASKS);

    return NGX_OK;
}


/* Totals in e->asks: those that are not written are dirty again. */

static ngx_int_t
ngx_http_modelgw_round_write(ngx_http_modelgw_exchanger_t *e, ngx_uint_t n)
{
    if (ngx_http_modelgw_exchanger_write(e, e->asks, n, NULL, 0) == NGX_OK) {
        return NGX_OK;
    }

    while (n--) {
        ngx_http_modelgw_funds_find(&e->funds, &e->asks[n].fund)->dirty = 1;
    }

    return NGX_AGAIN;
}


static ngx_uint_t
ngx_http_modelgw_round_dirty(ngx_http_modelgw_exchanger_t *e)
{
    ngx_uint_t                i, n;
    ngx_http_modelgw_fund_t  *f;

    n = 0;

    for (i = 0; i < e->funds.n; i++) {
        f = &e->funds.elts[i];

        if (f->dirty && n < NGX_MODELGW_EXCHANGE_ASKS) {
            f->dirty = 0;
            n += ngx_http_modelgw_round_totals(e, &f->fund, &e->asks[n]);
        }
    }

    return n;
}


/* Returns 0 if nothing is known of a budget any more. */

static ngx_uint_t
ngx_http_modelgw_round_totals(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_fund_t *fund, ngx_modelgw_ask_t *ask)
{
    u_char               *p;
    ngx_modelgw_lease_t  *lease;

    ngx_modelgw_ledger_lock(e->ledger);

    lease = ngx_modelgw_lease(e->ledger, fund);

    ask->fund = *fund;
    ask->ends = lease->ends;
    ask->granted = lease->granted;
    ask->returned = lease->returned;
    ask->forced = lease->forced;

    p = ngx_modelgw_fund_name(e->ledger, fund, ask->ends - 1, ask->name);

    ngx_modelgw_ledger_unlock(e->ledger);

    ask->len = p - ask->name;

    return fund->kind == NGX_MODELGW_FUND_ACCOUNT
           || ask->ends > NGX_MODELGW_LEASE_OTHER;
}
