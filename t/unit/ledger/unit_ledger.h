
/*
 * What the tests of the ledger share: creation and consistency checks.
 */


#ifndef _UNIT_LEDGER_H_INCLUDED_
#define _UNIT_LEDGER_H_INCLUDED_


#include "unit.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "ledger_calls.h"
#include "ngx_modelgw_ledger_private.h"


#define LEDGER_SIZE  (256 * 1024)
#define NONE         NGX_MODELGW_LEDGER_NONE
#define EURO         ((int64_t) 1000000000)
#define TIME         1700000000000


static ngx_inline ngx_modelgw_ledger_t *
ledger_create(size_t size, uint64_t id, ngx_uint_t credit)
{
    void                  *p;
    ngx_modelgw_ledger_t  *l;

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);

    l = ngx_modelgw_ledger_create(p, size, id, credit);
    assert_non_null(l);

    return l;
}


static ngx_inline void
ledger_destroy(ngx_modelgw_ledger_t *l, size_t size)
{
    assert_int_equal(munmap(l, size), 0);
}


static ngx_inline uint32_t
ledger_account(ngx_modelgw_ledger_t *l, const char *name, int64_t balance)
{
    uint32_t   i;
    ngx_str_t  s;

    s = unit_str(name);

    assert_int_equal(ngx_modelgw_ledger_account(l, &s, 1, balance, 1, 0, &i),
                     NGX_DONE);

    return i;
}


/* asks for a top-up; NULL: too many are pending */

static ngx_inline ngx_modelgw_change_t *
ledger_topup(ngx_modelgw_ledger_t *l, uint32_t worker, uint32_t account,
    ngx_str_t *id, int64_t amount, uint64_t time)
{
    ngx_modelgw_change_t   wanted, *change;

    memset(&wanted, 0, sizeof(ngx_modelgw_change_t));

    wanted.kind = NGX_MODELGW_CHANGE_TOPUP;
    wanted.worker = worker;
    wanted.account = account;
    wanted.amount = amount;
    wanted.time = time;
    wanted.id.len = id->len;
    memcpy(wanted.id.data, id->data, id->len);

    return ngx_modelgw_ledger_change(l, &wanted, &change) == NGX_OK ? change
                                                                    : NULL;
}


static ngx_inline uint32_t
ledger_key(ngx_modelgw_ledger_t *l, const char *name)
{
    uint32_t   i;
    ngx_str_t  s;

    s = unit_str(name);

    assert_int_equal(ngx_modelgw_ledger_key(l, &s, &i), NGX_OK);

    return i;
}


static ngx_inline ngx_modelgw_call_t *
ledger_open(ngx_modelgw_ledger_t *l, uint32_t worker, uint32_t key)
{
    ngx_modelgw_call_t  *call;

    assert_int_equal(call_open(l, worker, key, 0, &call), NGX_OK);

    return call;
}


/* a call at 1 euro per output token, which has reported n of them */

static ngx_inline ngx_modelgw_call_t *
ledger_sent(ngx_modelgw_ledger_t *l, uint32_t worker, uint32_t key,
    uint32_t account, int64_t hold, int64_t n)
{
    int64_t              available;
    ngx_modelgw_call_t  *call;

    call = ledger_open(l, worker, key);
    call->hold = hold;
    call->price.output = 1000000000000;

    assert_int_equal(call_hold(l, call, account, &available), NGX_OK);
    ngx_modelgw_ledger_sent(l, call);

    call->seen.status = 200;
    call->seen.input = 0;
    call->seen.output = n;
    call->seen.flags = NGX_MODELGW_SEEN_FINAL;

    return call;
}


/*
 * What is wrong with it, or NULL.  Each slot is in one place: it has a call,
 * or is in the list of free ones, or was never used.  Holds and counts are
 * those of the existing calls; both rings are within their size, and that of
 * DONE has each DONE call once.  No other process is active.
 */

static ngx_inline const char *
ledger_check_slots(ngx_modelgw_ledger_t *l, u_char *seen)
{
    uint64_t  i, n;

    n = 0;

    for (i = l->free; i != NONE; i = l->calls[i].next) {
        if (i >= l->fresh || seen[i] || ++n > l->max) {
            return "the list of free slots is broken";
        }
        seen[i] = 1;
    }

    for (i = l->done.head; i != l->done.tail; i++) {
        n = l->done.entries[i % l->done.size].slot;

        if (n >= l->fresh || seen[n]
            || l->calls[n].state != NGX_MODELGW_CALL_DONE)
        {
            return "the ring of those DONE is broken";
        }
        seen[n] = 2;
    }

    for (i = 0; i < l->fresh; i++) {
        if ((l->calls[i].state == NGX_MODELGW_CALL_FREE) != (seen[i] == 1)) {
            return "a slot is lost";
        }
        if ((l->calls[i].state == NGX_MODELGW_CALL_DONE) != (seen[i] == 2)) {
            return "a call is not to be written";
        }
    }

    return NULL;
}


static ngx_inline const char *
ledger_check_sums(ngx_modelgw_ledger_t *l)
{
    uint32_t             i, k, calls;
    int64_t              held;
    ngx_modelgw_call_t  *call;

    for (i = 0; i < l->accounts.n; i++) {
        held = 0;

        for (k = 0; k < l->fresh; k++) {
            call = &l->calls[k];

            if (call->account == i && (call->state == NGX_MODELGW_CALL_HELD
                                       || call->state
                                          == NGX_MODELGW_CALL_SENT))
            {
                held += call->hold;
            }
        }

        if (ngx_modelgw_ledger_account_at(l, i)->held != held) {
            return "held is not the sum of the holds";
        }
    }

    for (i = 0; i < l->keys.n; i++) {
        calls = 0;
        held = 0;

        for (k = 0; k < l->fresh; k++) {
            call = &l->calls[k];

            calls += (call->key == i && call->state != NGX_MODELGW_CALL_FREE
                      && call->state != NGX_MODELGW_CALL_DONE);

            if (call->key == i && call->account != NONE
                && (call->state == NGX_MODELGW_CALL_HELD
                    || call->state == NGX_MODELGW_CALL_SENT))
            {
                held += call->hold;
            }
        }

        if (ngx_modelgw_ledger_key_at(l, i)->calls != calls) {
            return "a key's count is not that of its calls";
        }

        if (ngx_modelgw_ledger_key_at(l, i)->held != held) {
            return "what a key holds is not the sum of its holds";
        }
    }

    return NULL;
}


static ngx_inline const char *
ledger_check(ngx_modelgw_ledger_t *l)
{
    u_char      *seen;
    const char  *wrong;

    if (l->redo.committed) {
        return "a change is not made";
    }

    if (l->done.tail - l->done.head > l->done.size
        || l->held.tail - l->held.head > l->held.size)
    {
        return "a ring has overflown";
    }

    seen = calloc(1, l->max);
    if (seen == NULL) {
        return "no memory";
    }

    wrong = ledger_check_slots(l, seen);
    free(seen);

    return wrong ? wrong : ledger_check_sums(l);
}


static ngx_inline void
ledger_assert(ngx_modelgw_ledger_t *l)
{
    const char  *wrong;

    wrong = ledger_check(l);

    if (wrong) {
        print_error("ledger: %s\n", wrong);
        fail();
    }
}


#endif /* _UNIT_LEDGER_H_INCLUDED_ */
