
/*
 * What this node has of the limits of keys over all nodes.
 *
 * A key is in the list of those in use from its first call until nothing of it
 * is borrowed: the exchanger looks at these only.
 *
 * have, held and used change together, by the redo record, as a call may end in
 * another process.  The other words are changed one by one: if a process is
 * killed in between, a call may wait in vain, or a chunk is borrowed again
 * while the first one still counts as used.
 *
 * A call that waits makes a ticket for the next ask.  What the answer lends is
 * kept for those calls for a moment, so that a new one does not take it.  After
 * an answer that there is none, calls are refused at once until there may be.
 *
 * What a node has used is counted in the database as of when it was used: of
 * requests, the last one that is said; of tokens, the average of the starts of
 * the calls.  A call's tokens are held until it ends: only then is known what
 * it has used.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


#define NGX_MODELGW_SHARE_MINUTE    60000   /* ms */
#define NGX_MODELGW_SHARE_LAG       100     /* ms that a worker's clock may
                                               lag behind */
#define NGX_MODELGW_SHARE_SCAN      250     /* ms between two looks at what is
                                               not urgent */
#define NGX_MODELGW_SHARE_SAY       500     /* ms: what is used is said */
#define NGX_MODELGW_SHARE_RENEW     3000    /* ms before a chunk expires */
#define NGX_MODELGW_SHARE_DUE       250     /* ms that what was lent is kept for
                                               those who wait */
#define NGX_MODELGW_SHARE_AGAIN     1000    /* ms: a refusal is believed */
#define NGX_MODELGW_SHARE_SILENCE   3000    /* ms, after the database was
                                               reached: it is away */
#define NGX_MODELGW_SHARE_BACK      5000    /* ms, in which all nodes come back
                                               after the database */
#define NGX_MODELGW_SHARE_STEP      256     /* keys looked at under one lock */
#define NGX_MODELGW_SHARE_UNKNOWN   8       /* nodes, if it is not known */


/* one limit of a key */

typedef struct {
    uint64_t                    have;
    uint64_t                    held;
    uint64_t                    used;
    uint64_t                    booked;
    uint64_t                    second;  /* of booked; 0: nothing was said */

    uint64_t                    stamp;   /* when it was used */
    uint64_t                    unsaid;  /* since when there is some */
    uint64_t                    until;   /* "have" can be used */
    uint64_t                    none;    /* until then there is none */
    uint64_t                    fits;    /* when there is "lacked" again */
    uint64_t                    fits_most; /* the same of "lacked_most" */
    uint64_t                    due_until;
    uint64_t                    last;    /* when a call took from it */
    uint64_t                    window;  /* when "count" began */
    uint64_t                    said;    /* when it was asked last */

    uint32_t                    limit;   /* as calls have said last; 0: none */
    uint32_t                    rest;    /* of it, as was said last */
    uint32_t                    need;    /* not asked yet */
    uint32_t                    least;
    uint32_t                    most;
    uint32_t                    lacked;  /* that there was not; 0: nothing */
    uint32_t                    lacked_most;
    uint32_t                    due;     /* kept for those who wait */
    uint32_t                    asked;   /* number of the last ask */
    uint32_t                    answered;
    uint32_t                    count;   /* taken in this window, or the most
                                            calls in flight */
    uint32_t                    rate;    /* the same, of the one before */
    uint32_t                    lacks;   /* calls of other nodes */
    uint32_t                    idle;    /* that they have */
} ngx_modelgw_share_part_t;


typedef struct {
    uint64_t                    listed;
    ngx_modelgw_share_part_t    parts[NGX_MODELGW_SHARE_KINDS];
} ngx_modelgw_share_t;


struct ngx_modelgw_shares_s {
    uint64_t                    n;       /* keys in the list */
    uint64_t                    urgent;  /* used without the lock, too */
    uint64_t                    soon;    /* ms: then it is; 0: not */
    uint64_t                    away;    /* the database does not answer */
    uint64_t                    reached; /* ms; 0: not yet */
    uint64_t                    alone;   /* ms: until then this node keeps to
                                            its part */
    uint64_t                    lapsed;  /* the same of calls in flight */
    uint64_t                    live;
    uint64_t                    rank;
    uint64_t                    scanned; /* ms */
    uint64_t                   *list;
    ngx_modelgw_share_t        *shares;  /* by the index of the key */
};


static ngx_modelgw_share_part_t *ngx_modelgw_share_use_locked(
    ngx_modelgw_ledger_t *l, uint32_t key, ngx_modelgw_share_e kind,
    uint32_t limit, uint64_t time);
static uint64_t ngx_modelgw_share_usable(ngx_modelgw_share_part_t *p,
    ngx_uint_t waited, uint64_t time);
static ngx_int_t ngx_modelgw_share_wait_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_share_part_t *p, uint32_t n, uint32_t lacks, uint64_t time,
    ngx_modelgw_share_ticket_t *ticket);
static ngx_uint_t ngx_modelgw_share_lost(ngx_modelgw_shares_t *s,
    uint64_t since, uint64_t time);
static void ngx_modelgw_share_served(ngx_modelgw_share_part_t *p,
    ngx_modelgw_share_ticket_t *ticket);
static uint32_t ngx_modelgw_share_alone(ngx_modelgw_shares_t *s,
    uint32_t limit);
static ngx_int_t ngx_modelgw_share_own_locked(ngx_modelgw_ledger_t *l,
    uint32_t key, ngx_modelgw_share_e kind, uint32_t n, uint64_t time,
    ngx_modelgw_limit_state_t *state);
static uint64_t ngx_modelgw_share_fits(ngx_modelgw_share_part_t *p,
    uint64_t lacks, uint64_t time);
static void ngx_modelgw_share_report(ngx_modelgw_share_part_t *p,
    ngx_modelgw_limit_t *own, uint64_t time,
    ngx_modelgw_limit_state_t *state);
static ngx_inline ngx_modelgw_limit_t *ngx_modelgw_share_own(
    ngx_modelgw_ledger_t *l, uint32_t key, ngx_modelgw_share_e kind);
static uint64_t ngx_modelgw_share_average(uint64_t one, uint64_t n,
    uint64_t two, uint64_t m);
static uint64_t ngx_modelgw_share_chunk(ngx_modelgw_share_part_t *p);
static void ngx_modelgw_share_back_locked(ngx_modelgw_shares_t *s,
    uint64_t time);
static ngx_uint_t ngx_modelgw_share_ask_key_locked(ngx_modelgw_ledger_t *l,
    uint64_t i, uint64_t time, ngx_modelgw_share_ask_t *asks);
static ngx_uint_t ngx_modelgw_share_ask_locked(ngx_modelgw_ledger_t *l,
    uint32_t key, ngx_modelgw_share_e kind, uint64_t time,
    ngx_modelgw_share_ask_t *ask);
static ngx_uint_t ngx_modelgw_share_minute(ngx_modelgw_share_part_t *p,
    uint64_t time, uint64_t *want);
static ngx_uint_t ngx_modelgw_share_calls(ngx_modelgw_share_part_t *p,
    uint64_t calls, uint64_t time, uint64_t *want);


size_t
ngx_modelgw_shares_size(uint32_t keys)
{
    return sizeof(ngx_modelgw_shares_t)
           + (size_t) keys * (sizeof(ngx_modelgw_share_t) + sizeof(uint64_t));
}


ngx_modelgw_shares_t *
ngx_modelgw_shares_init(void *memory, uint32_t keys)
{
    ngx_modelgw_shares_t  *s;

    s = memory;
    s->list = (uint64_t *) (s + 1);
    s->shares = (ngx_modelgw_share_t *) (s->list + keys);

    return s;
}


/* What was borrowed for the other key expires in the database by itself. */

void
ngx_modelgw_share_forget_locked(ngx_modelgw_ledger_t *l, uint32_t key)
{
    ngx_memzero(l->shares->shares[key].parts,
                sizeof(l->shares->shares[key].parts));
}


ngx_int_t
ngx_modelgw_share_take_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, uint32_t limit, uint32_t n, uint64_t time,
    ngx_modelgw_call_t *call, ngx_modelgw_share_ticket_t *ticket,
    ngx_modelgw_limit_state_t *state)
{
    uint64_t                   lent, free;
    ngx_int_t                  rc;
    ngx_modelgw_limit_t       *own;
    ngx_modelgw_share_part_t  *p;

    p = ngx_modelgw_share_use_locked(l, key, kind, limit, time);
    own = ngx_modelgw_share_own(l, key, kind);

    n = ngx_min(n, limit);
    lent = n;

    free = ngx_modelgw_share_usable(p, ticket->since != 0, time);

    if (free < n) {

        rc = ngx_modelgw_share_wait_locked(l, p, n, n - free, time, ticket);

        if (rc == NGX_ABORT) {
            rc = ngx_modelgw_share_own_locked(l, key, kind, n, time, state);
            lent = 0;

        } else if (rc == NGX_DECLINED) {
            ngx_modelgw_share_report(p, own, time, state);
            state->wait = ngx_modelgw_share_fits(p, n - free, time);
        }

        if (rc != NGX_OK) {
            return rc;
        }

    } else {
        ngx_modelgw_limit_correct(own, 0, n, time);
    }

    ngx_modelgw_share_served(p, ticket);

    p->last = time;
    p->count += n;

    ngx_modelgw_redo_add(&l->redo, &p->have, p->have - lent);

    if (kind == NGX_MODELGW_SHARE_TOKENS) {
        ngx_modelgw_redo_add(&l->redo, &p->held, p->held + n);
        ngx_modelgw_redo_add(&l->redo, (uint64_t *) &call->taken, n);

    } else {
        p->unsaid = p->used ? p->unsaid : time;
        p->stamp = time;
        ngx_modelgw_redo_add(&l->redo, &p->used, p->used + n);
    }

    ngx_modelgw_redo_commit(&l->redo);

    if (p->have < ngx_modelgw_share_chunk(p) / 2 && time >= p->none) {
        __atomic_store_n(&l->shares->urgent, 1, __ATOMIC_RELAXED);
    }

    if (lent) {
        state->wait = 0;
        ngx_modelgw_share_report(p, own, time, state);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_share_open_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    uint32_t limit, uint64_t time, ngx_modelgw_share_ticket_t *ticket)
{
    uint64_t                   calls;
    ngx_int_t                  rc;
    ngx_modelgw_shares_t      *s;
    ngx_modelgw_share_part_t  *p;

    s = l->shares;
    p = ngx_modelgw_share_use_locked(l, key, NGX_MODELGW_SHARE_CALLS, limit,
                                     time);

    calls = ngx_modelgw_ledger_key_at(l, key)->calls;

    if (ngx_modelgw_share_usable(p, ticket->since != 0, time) <= calls) {

        rc = ngx_modelgw_share_wait_locked(l, p, 1, 1, time, ticket);

        /* what other nodes were lent may not have expired yet */

        if (rc == NGX_ABORT) {
            rc = ((time >= s->reached + NGX_MODELGW_SHARE_SLOTS
                   || time < s->lapsed)
                  && calls < ngx_modelgw_share_alone(s, limit))
                 ? NGX_OK : NGX_DECLINED;
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    ngx_modelgw_share_served(p, ticket);

    p->last = time;
    p->count = ngx_max(p->count, calls + 1);

    return NGX_OK;
}


static ngx_modelgw_share_part_t *
ngx_modelgw_share_use_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, uint32_t limit, uint64_t time)
{
    ngx_modelgw_share_t       *share;
    ngx_modelgw_shares_t      *s;
    ngx_modelgw_share_part_t  *p;

    s = l->shares;
    share = &s->shares[key];
    p = &share->parts[kind];

    p->limit = limit;

    if (!share->listed) {
        ngx_modelgw_redo_add(&l->redo, &s->list[s->n], key);
        ngx_modelgw_redo_add(&l->redo, &s->n, s->n + 1);
        ngx_modelgw_redo_add(&l->redo, &share->listed, 1);
        ngx_modelgw_redo_commit(&l->redo);
    }

    return p;
}


/* What is there for a call: for one that has waited, what others wait for. */

static uint64_t
ngx_modelgw_share_usable(ngx_modelgw_share_part_t *p, ngx_uint_t waited,
    uint64_t time)
{
    uint64_t  due;

    if (time >= p->until) {
        return 0;
    }

    due = (!waited && time < p->due_until) ? p->due : 0;

    return p->have - ngx_min(due, p->have);
}


/*
 * There is not enough: the call wants n, and lacks so much of it.
 *     NGX_AGAIN     wait for the answer
 *     NGX_DECLINED  the database has none
 *     NGX_ABORT     it does not answer: decide without it
 */

static ngx_int_t
ngx_modelgw_share_wait_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_share_part_t *p, uint32_t n, uint32_t lacks, uint64_t time,
    ngx_modelgw_share_ticket_t *ticket)
{
    uint64_t               first;
    ngx_modelgw_shares_t  *s;

    s = l->shares;

    if (s->away || time < s->alone) {
        ngx_modelgw_share_served(p, ticket);
        return NGX_ABORT;
    }

    first = ticket->first ? ticket->first : time;

    if (ticket->since && (int32_t) (p->answered - ticket->number) >= 0) {
        ngx_modelgw_share_served(p, ticket);

        /*
         * Others have taken what was lent for this call, but there is more; or
         * other nodes have some that is idle, and are to give it back.
         */

        if (lacks > p->rest
            && (p->idle == 0 || time >= first + NGX_MODELGW_SHARE_PATIENCE))
        {
            return NGX_DECLINED;
        }
    }

    if (ngx_modelgw_share_lost(s, ticket->since ? ticket->since : time, time)) {
        s->away = 1;
        ngx_modelgw_share_served(p, ticket);

        return NGX_ABORT;
    }

    if (ticket->since) {
        return NGX_AGAIN;
    }

    if (time < p->none && lacks > p->rest && p->idle == 0
        && lacks <= p->lacked_most)
    {
        return NGX_DECLINED;
    }

    p->least = p->need ? ngx_min(p->least, n) : n;
    p->most = p->need ? ngx_max(p->most, n) : n;
    p->need += n;
    p->last = time;

    ticket->first = first;
    ticket->since = time;
    ticket->number = p->asked + 1;
    ticket->n = n;

    if (time < p->none && p->idle) {
        s->soon = s->soon ? s->soon : time + NGX_MODELGW_SHARE_SCAN;

    } else {
        __atomic_store_n(&s->urgent, 1, __ATOMIC_RELAXED);
    }

    return NGX_AGAIN;
}


/* Without the lock, too. */

static ngx_uint_t
ngx_modelgw_share_lost(ngx_modelgw_shares_t *s, uint64_t since, uint64_t time)
{
    uint64_t  reached;

    reached = ngx_modelgw_ledger_load(&s->reached);

    return ngx_modelgw_ledger_load(&s->away)
           || time >= since + NGX_MODELGW_SHARE_PATIENCE
           || (reached && time >= reached + NGX_MODELGW_SHARE_SILENCE);
}


/* The call waits no more. */

static void
ngx_modelgw_share_served(ngx_modelgw_share_part_t *p,
    ngx_modelgw_share_ticket_t *ticket)
{
    p->due -= ngx_min(p->due, ticket->n);

    ngx_memzero(ticket, sizeof(ngx_modelgw_share_ticket_t));
}


/* the part of a limit that this node has without the database */

static uint32_t
ngx_modelgw_share_alone(ngx_modelgw_shares_t *s, uint32_t limit)
{
    if (s->live == 0) {
        return limit / NGX_MODELGW_SHARE_UNKNOWN;
    }

    return limit / s->live + (s->rank < limit % s->live);
}


static ngx_int_t
ngx_modelgw_share_own_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, uint32_t n, uint64_t time,
    ngx_modelgw_limit_state_t *state)
{
    uint32_t              limit;
    ngx_modelgw_limit_t  *own;

    own = ngx_modelgw_share_own(l, key, kind);

    limit = ngx_modelgw_share_alone(l->shares,
                                  l->shares->shares[key].parts[kind].limit);

    if (limit == 0) {
        state->remaining = 0;
        state->wait = NGX_MODELGW_SHARE_AGAIN;
        state->reset = NGX_MODELGW_SHARE_AGAIN;

        return NGX_DECLINED;
    }

    if (ngx_modelgw_limit_take(own, limit, n, time, state) == NGX_OK) {
        return NGX_OK;
    }

    /* the database is back, and will soon be asked */

    if (!l->shares->away) {
        state->wait = ngx_min(state->wait, l->shares->alone - time);
    }

    return NGX_DECLINED;
}


void
ngx_modelgw_share_state_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, uint32_t limit, uint64_t time,
    ngx_modelgw_limit_state_t *state)
{
    ngx_modelgw_share_part_t  *p;

    p = &l->shares->shares[key].parts[kind];
    p->limit = limit;

    state->wait = (time < p->none && p->rest == 0)
                  ? ngx_modelgw_share_fits(p, 1, time) : 0;

    ngx_modelgw_share_report(p, ngx_modelgw_share_own(l, key, kind), time,
                             state);
}


/* Milliseconds until there is what a call lacks, as was said last. */

static uint64_t
ngx_modelgw_share_fits(ngx_modelgw_share_part_t *p, uint64_t lacks,
    uint64_t time)
{
    uint64_t  fits;

    fits = (lacks <= p->lacked) ? p->fits : p->fits_most;

    return (fits > time) ? fits - time : NGX_MODELGW_SHARE_AGAIN;
}


/*
 * What is left for a new call of this node, as it knows it; all is free again a
 * minute after the last use.
 */

static void
ngx_modelgw_share_report(ngx_modelgw_share_part_t *p, ngx_modelgw_limit_t *own,
    uint64_t time, ngx_modelgw_limit_state_t *state)
{
    uint64_t                   have;
    ngx_modelgw_limit_state_t  alone;

    if (p->second == 0) {
        ngx_modelgw_limit_state(own, p->limit, time, &alone);
        have = alone.remaining;

    } else {
        have = p->rest + ngx_modelgw_share_usable(p, 0, time);
    }

    state->remaining = ngx_min(have, p->limit);
    state->reset = (have < p->limit) ? NGX_MODELGW_SHARE_MINUTE : 0;
}


static ngx_inline ngx_modelgw_limit_t *
ngx_modelgw_share_own(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind)
{
    ngx_modelgw_ledger_key_t  *k;

    k = ngx_modelgw_ledger_key_at(l, key);

    return (kind == NGX_MODELGW_SHARE_TOKENS) ? &k->tpm : &k->rpm;
}


ngx_uint_t
ngx_modelgw_share_answered(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, ngx_modelgw_share_ticket_t *ticket,
    uint64_t time)
{
    ngx_modelgw_share_part_t  *p;

    p = &l->shares->shares[key].parts[kind];

    return (int32_t) (ngx_modelgw_ledger_load(&p->answered) - ticket->number)
               >= 0
           || ngx_modelgw_share_lost(l->shares, ticket->since, time);
}


/* What a call has used was taken when it began. */

void
ngx_modelgw_share_settle_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint64_t used, uint64_t clock)
{
    int64_t                    passed;
    uint64_t                   n, start;
    ngx_modelgw_share_part_t  *p;

    p = &l->shares->shares[call->key].parts[NGX_MODELGW_SHARE_TOKENS];

    /* the record may have been another key's, or the memory a new one */

    n = ngx_min(p->held, (uint64_t) call->taken);

    passed = call->started ? (int64_t) (call->ended - call->started) : 0;
    start = clock - ngx_min((uint64_t) ngx_max(passed, 0), clock);

    if (used) {
        p->unsaid = p->used ? p->unsaid : clock;
        p->stamp = ngx_modelgw_share_average(p->stamp, p->used, start, used);
    }

    ngx_modelgw_redo_add(&l->redo, &p->held, p->held - n);
    ngx_modelgw_redo_add(&l->redo, &p->used, p->used + used);

    if (n > used) {
        ngx_modelgw_redo_add(&l->redo, &p->have, p->have + n - used);
    }
}


/* of two times, by what was used at them */

static uint64_t
ngx_modelgw_share_average(uint64_t one, uint64_t n, uint64_t two, uint64_t m)
{
    double  part;

    part = (double) m / ((double) n + (double) m);

    return one + (int64_t) ((double) (int64_t) (two - one) * part);
}


ngx_uint_t
ngx_modelgw_shares_urgent(ngx_modelgw_ledger_t *l)
{
    uint64_t  soon;

    soon = ngx_modelgw_ledger_load(&l->shares->soon);

    return ngx_modelgw_ledger_load(&l->shares->urgent)
           || (soon && ngx_modelgw_ledger_clock() >= soon);
}


/* Calls that find more than half of it wait for nothing. */

static uint64_t
ngx_modelgw_share_chunk(ngx_modelgw_share_part_t *p)
{
    uint64_t  n;

    n = ngx_max(p->rate, p->count);
    n = ngx_max(n, p->limit / 32);
    n = ngx_min(n, p->limit / 8);

    return ngx_max(n, 1);
}


/* Workers add to the end of the list meanwhile, but remove nothing. */

ngx_uint_t
ngx_modelgw_shares_asks(ngx_modelgw_ledger_t *l, uint64_t time,
    ngx_modelgw_share_ask_t *asks, ngx_uint_t max)
{
    uint64_t               i;
    ngx_uint_t             n;
    ngx_modelgw_shares_t  *s;

    s = l->shares;

    if (!ngx_modelgw_ledger_load(&s->urgent)
        && !ngx_modelgw_ledger_load(&s->away)
        && time < s->scanned + NGX_MODELGW_SHARE_SCAN)
    {
        return 0;
    }

    n = 0;

    ngx_modelgw_redo_lock(&l->redo);

    s->scanned = time;
    s->urgent = 0;
    s->soon = 0;

    ngx_modelgw_share_back_locked(s, time);

    for (i = s->n; i > 0; i--) {

        if (n + NGX_MODELGW_SHARE_KINDS > max) {
            s->urgent = 1;
            break;
        }

        if (i % NGX_MODELGW_SHARE_STEP == 0) {
            ngx_modelgw_redo_unlock(&l->redo);
            ngx_modelgw_redo_lock(&l->redo);
        }

        n += ngx_modelgw_share_ask_key_locked(l, i - 1, time, asks + n);
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return n;
}


/*
 * The database was away: other nodes have not said yet what they have used
 * meanwhile, and for a while each node keeps to its part.
 */

static void
ngx_modelgw_share_back_locked(ngx_modelgw_shares_t *s, uint64_t time)
{
    uint64_t  passed;

    if (!s->away || s->reached == 0) {
        return;
    }

    passed = time - ngx_min(s->reached, time);

    s->alone = time + ngx_min(passed, NGX_MODELGW_SHARE_BACK);

    if (passed >= NGX_MODELGW_SHARE_SLOTS) {
        s->lapsed = s->alone;
    }
}


/* Removes the key from the list if nothing of it is borrowed. */

static ngx_uint_t
ngx_modelgw_share_ask_key_locked(ngx_modelgw_ledger_t *l, uint64_t i,
    uint64_t time, ngx_modelgw_share_ask_t *asks)
{
    uint32_t                   key;
    ngx_uint_t                 n, in_use;
    ngx_modelgw_share_e        kind;
    ngx_modelgw_shares_t      *s;
    ngx_modelgw_share_part_t  *p;

    s = l->shares;
    key = s->list[i];

    n = 0;
    in_use = 0;

    for (kind = 0; kind < NGX_MODELGW_SHARE_KINDS; kind++) {
        p = &s->shares[key].parts[kind];

        if (p->limit) {
            n += ngx_modelgw_share_ask_locked(l, key, kind, time, asks + n);
        }

        in_use |= p->have || p->held || p->used || p->booked
                  || time < p->last + NGX_MODELGW_SHARE_IDLE;
    }

    if (n == 0 && !in_use) {
        ngx_modelgw_redo_add(&l->redo, &s->list[i], s->list[s->n - 1]);
        ngx_modelgw_redo_add(&l->redo, &s->n, s->n - 1);
        ngx_modelgw_redo_add(&l->redo, &s->shares[key].listed, 0);
        ngx_modelgw_redo_commit(&l->redo);
    }

    return n;
}


static ngx_uint_t
ngx_modelgw_share_ask_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, uint64_t time, ngx_modelgw_share_ask_t *ask)
{
    uint64_t                    due, free;
    ngx_modelgw_limit_state_t   state;
    ngx_modelgw_ledger_key_t   *k;
    ngx_modelgw_share_part_t   *p;

    k = ngx_modelgw_ledger_key_at(l, key);
    p = &l->shares->shares[key].parts[kind];

    if (time >= p->until && p->have) {
        p->have = 0;
    }

    /* nothing is borrowed while other nodes may not have come back */

    if (time < l->shares->alone) {
        p->none = ngx_max(p->none, l->shares->alone);
        p->need = 0;
    }

    if (!(kind == NGX_MODELGW_SHARE_CALLS
          ? ngx_modelgw_share_calls(p, k->calls, time, &ask->want)
          : ngx_modelgw_share_minute(p, time, &ask->want)))
    {
        return 0;
    }

    ask->key = key;
    ask->kind = kind;
    ask->number = p->asked + 1;
    ask->name = k->name;
    ask->limit = p->limit;
    ask->booked = p->booked;
    ask->second = p->second;
    ask->used = p->used;
    ask->unsaid = p->used;
    ask->keep = p->have + p->held;
    ask->waiting = p->need;
    ask->time = time;

    /* the clock of a worker may be a little ahead, or behind */

    ask->age = time - ngx_min(p->stamp + NGX_MODELGW_SHARE_LAG, time);
    ask->age = ngx_min(ask->age, 2 * NGX_MODELGW_SHARE_MINUTE);

    /* after a long time not all of it was used in the last minute */

    if (p->used && time > p->unsaid + NGX_MODELGW_SHARE_CHUNK) {
        ngx_modelgw_limit_state(ngx_modelgw_share_own(l, key, kind),
                                NGX_MAX_UINT32_VALUE, time, &state);
        ask->used = ngx_min(ask->used,
                            NGX_MAX_UINT32_VALUE - state.remaining);
    }

    /* what is free of what it has, for those who wait */

    due = (time < p->due_until) ? p->due : 0;
    free = p->have;

    if (kind == NGX_MODELGW_SHARE_CALLS) {
        ask->keep = ngx_max(p->have, k->calls);

        if (time < l->shares->lapsed) {
            ask->keep = ngx_max(ask->keep, ngx_modelgw_share_alone(l->shares,
                                                                   p->limit));
        }

        free = ask->keep - k->calls;
    }

    free -= ngx_min(due, free);

    ask->need = p->need - ngx_min(free, p->need);
    ask->idle = free - ngx_min(free, p->need);
    ask->most = ngx_min(p->most, ask->need);
    ask->least = (p->least > free) ? p->least - free : 1;
    ask->least = ngx_min(ask->least, ask->need);

    p->asked++;
    p->said = time;
    p->need = 0;

    return 1;
}


/* Whether something is to be said of requests or tokens. */

static ngx_uint_t
ngx_modelgw_share_minute(ngx_modelgw_share_part_t *p, uint64_t time,
    uint64_t *want)
{
    uint64_t  chunk;

    if (time >= p->window + 1000) {
        p->rate = (uint64_t) p->count * 1000 / (time - p->window);
        p->count = 0;
        p->window = time;
    }

    *want = 0;
    chunk = ngx_modelgw_share_chunk(p);

    if (time >= p->last + NGX_MODELGW_SHARE_IDLE) {
        p->have = 0;

    } else if (p->have < (chunk + 1) / 2 && time >= p->none) {
        *want = chunk - p->have;
    }

    return *want || p->need
           || (p->used && time >= p->said + NGX_MODELGW_SHARE_SAY)
           || p->booked > p->have + p->held + p->used
           || (p->have + p->held
               && time + NGX_MODELGW_SHARE_RENEW >= p->until);
}


/*
 * The same of calls in flight.  What was in use lately is kept, but not if
 * other nodes lack it.
 */

static ngx_uint_t
ngx_modelgw_share_calls(ngx_modelgw_share_part_t *p, uint64_t calls,
    uint64_t time, uint64_t *want)
{
    uint64_t  keep, had;

    if (time >= p->window + NGX_MODELGW_SHARE_IDLE / 2) {
        p->rate = p->count;
        p->count = calls;
        p->window = time;
    }

    *want = ngx_min(p->need, p->limit / 8);

    keep = p->lacks ? calls : ngx_max(ngx_max(p->rate, p->count), calls);
    had = p->have;

    /* those that it was lent for may not have come yet */

    if (time < p->due_until) {
        keep = ngx_max(keep, calls + p->due);
    }

    p->have = ngx_min(p->have, keep);

    /* idle ones are said again soon: the answer has what others lack */

    return p->need || p->have < had
           || (p->have > calls && time >= p->said + NGX_MODELGW_SHARE_AGAIN)
           || (calls > p->have && time < p->last + NGX_MODELGW_SHARE_IDLE)
           || (p->have && time + NGX_MODELGW_SHARE_SLOTS
                          - NGX_MODELGW_SHARE_RENEW >= p->until);
}


void
ngx_modelgw_share_said_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_share_ask_t *ask, ngx_modelgw_share_said_t *said,
    uint64_t time)
{
    uint64_t                   lasts;
    ngx_modelgw_share_part_t  *p;

    p = &l->shares->shares[ask->key].parts[ask->kind];

    if (p->asked != ask->number) {
        return;
    }

    if (ask->kind == NGX_MODELGW_SHARE_CALLS) {
        lasts = NGX_MODELGW_SHARE_SLOTS;
        p->have = ask->keep + said->took;
        p->lacks = said->lacks;
        p->idle = (said->took < ask->need) ? said->idle : 0;

        /* those are given back at once */

        if (p->lacks && p->have > ngx_modelgw_ledger_key_at(l, ask->key)->calls)
        {
            l->shares->urgent = 1;
        }

    } else {
        lasts = NGX_MODELGW_SHARE_CHUNK;
        p->booked = ask->keep + said->took;

        ngx_modelgw_redo_add(&l->redo, &p->have, p->have + said->took);
        ngx_modelgw_redo_add(&l->redo, &p->used,
                             p->used - ngx_min(p->used, ask->unsaid));
        ngx_modelgw_redo_commit(&l->redo);
    }

    p->second = said->second;
    p->until = ask->time + lasts - NGX_MODELGW_SHARE_LAG;
    p->rest = ngx_min(said->rest, NGX_MAX_UINT32_VALUE);

    p->none = 0;
    p->lacked = 0;
    p->lacked_most = 0;

    if (said->took < ask->need + ask->want) {
        p->none = ask->time + NGX_MODELGW_SHARE_AGAIN;
    }

    if (said->took < ask->need) {
        p->lacked = ask->least;
        p->lacked_most = ask->most;
        p->fits = ask->time + (said->wait ? said->wait
                                          : NGX_MODELGW_SHARE_AGAIN);
        p->fits_most = ask->time + ngx_max(said->wait_most, said->wait);
        p->none = ngx_min(p->none, p->fits);
    }

    p->due = ask->waiting + ((time < p->due_until) ? p->due : 0);
    p->due_until = time + NGX_MODELGW_SHARE_DUE;

    __atomic_store_n(&p->answered, ask->number, __ATOMIC_RELEASE);
}


/*
 * What it was booked as may have been moved: it expires there by itself, and
 * what the node has is booked again.
 */

void
ngx_modelgw_share_unsaid_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_share_ask_t *ask)
{
    ngx_modelgw_share_part_t  *p;

    p = &l->shares->shares[ask->key].parts[ask->kind];

    if (p->asked == ask->number) {
        p->booked = 0;
    }

    l->shares->away = 1;
}


void
ngx_modelgw_shares_reached(ngx_modelgw_ledger_t *l, uint64_t time,
    uint64_t live, uint64_t rank)
{
    ngx_modelgw_shares_t  *s;

    s = l->shares;

    ngx_modelgw_redo_lock(&l->redo);

    s->reached = time;
    s->away = 0;

    if (live) {
        s->live = live;
        s->rank = rank;
    }

    ngx_modelgw_redo_unlock(&l->redo);
}
