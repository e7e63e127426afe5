
/*
 * The ledger and its writer: rings, top-ups, waiting and waking.
 */


#include "unit_ledger.h"

#include <pthread.h>
#include <time.h>


static void
test_rings(void **state)
{
    uint32_t                a;
    uint64_t                id, ids[3];
    ngx_uint_t              i, k, n;
    ngx_modelgw_call_t     *calls[3];
    ngx_modelgw_ledger_t   *l;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    a = ledger_account(l, "alice", 0);

    assert_null(ngx_modelgw_ledger_done(l, 0));
    assert_null(ngx_modelgw_ledger_held(l, 0, &id));

    for (i = 0; i < 3; i++) {
        calls[i] = ledger_sent(l, 0, NONE, a, 0, 0);
        ids[i] = calls[i]->id;
    }

    for (i = 0; i < 3; i++) {
        assert_int_equal(calls[i]->noted, 0);
        assert_ptr_equal(ngx_modelgw_ledger_held(l, i, &id), calls[i]);
        assert_int_equal(id, ids[i]);
        assert_int_equal(calls[i]->noted, 1);
    }

    assert_null(ngx_modelgw_ledger_held(l, 3, &id));

    /* the order is that of the ends */

    call_settle(l, calls[2], NGX_MODELGW_END_COMPLETE, TIME, 0);
    call_settle(l, calls[0], NGX_MODELGW_END_COMPLETE, TIME, 0);
    assert_ptr_equal(ngx_modelgw_ledger_done(l, 0), calls[2]);
    assert_ptr_equal(ngx_modelgw_ledger_done(l, 1), calls[0]);
    assert_null(ngx_modelgw_ledger_done(l, 2));

    /* an account that is not stored yet is waited for, too */

    assert_int_equal(ngx_modelgw_ledger_done_ever(l), 2);
    assert_false(ngx_modelgw_ledger_durable(l, 0));
    ngx_modelgw_ledger_set_stored(l, 1);
    assert_true(ngx_modelgw_ledger_durable(l, 0));
    assert_false(ngx_modelgw_ledger_durable(l, 1));

    ngx_modelgw_ledger_noted(l, 1);
    assert_ptr_equal(ngx_modelgw_ledger_held(l, 0, &id), calls[1]);

    ngx_modelgw_ledger_written(l, 1);
    assert_true(ngx_modelgw_ledger_durable(l, 1));
    assert_false(ngx_modelgw_ledger_durable(l, 2));
    assert_int_equal(calls[2]->state, NGX_MODELGW_CALL_FREE);
    assert_ptr_equal(ngx_modelgw_ledger_done(l, 0), calls[0]);
    ledger_assert(l);

    /* a slot that is reused is recognized */

    assert_ptr_equal(ledger_open(l, 0, NONE), calls[2]);
    assert_ptr_equal(ngx_modelgw_ledger_held(l, 1, &id), calls[2]);
    assert_int_equal(id, 0);
    assert_int_equal(calls[2]->noted, 0);

    /* more than there are */

    ngx_modelgw_ledger_written(l, 100);
    ngx_modelgw_ledger_noted(l, 100);
    assert_int_equal(ngx_modelgw_ledger_done_count(l), 0);
    assert_int_equal(ngx_modelgw_ledger_held_count(l), 0);
    ledger_assert(l);

    /* all slots, repeatedly, freed in parts: a full ring that wraps around */

    n = l->max - 2;

    for (k = 0; k < 4; k++) {
        for (i = 0; i < n; i++) {
            call_settle(l, ledger_sent(l, 0, NONE, a, 0, 0),
                        NGX_MODELGW_END_COMPLETE, TIME, 0);
        }

        assert_int_equal(ngx_modelgw_ledger_done_count(l), n);
        assert_int_equal(ngx_modelgw_ledger_held_count(l), n);
        ledger_assert(l);

        ngx_modelgw_ledger_noted(l, n);
        ngx_modelgw_ledger_written(l, n / 2);
        ledger_assert(l);
        ngx_modelgw_ledger_written(l, n - n / 2);
        ledger_assert(l);
    }

    /* a writer that leaves entries loses holds, not calls */

    for (k = 0; k < 4; k++) {
        for (i = 0; i < n; i++) {
            call_settle(l, ledger_sent(l, 0, NONE, a, 0, 0),
                        NGX_MODELGW_END_COMPLETE, TIME, 0);
        }

        ngx_modelgw_ledger_written(l, n);
        ledger_assert(l);
    }

    assert_int_equal(ngx_modelgw_ledger_held_count(l), l->held.size);

    ledger_destroy(l, LEDGER_SIZE);
}


/* One that is opened and held, then settled before it is sent. */

static void
give_up(ngx_modelgw_ledger_t *l, uint32_t a)
{
    int64_t              n;
    ngx_modelgw_call_t  *call;

    call = ledger_open(l, 0, NONE);
    assert_int_equal(call_hold(l, call, a, &n), NGX_OK);
    call_settle(l, call, NGX_MODELGW_END_CLIENT, TIME, 0);
}


/*
 * A call is in the ring from SENT on: none that was not sent is in it, and
 * however many were given up, there is room for one that was sent, and it is
 * read.
 */

static void
test_given_up(void **state)
{
    int64_t                n;
    uint32_t               a;
    uint64_t               id;
    ngx_uint_t             i;
    ngx_modelgw_call_t    *first, *call;
    ngx_modelgw_ledger_t  *l;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    a = ledger_account(l, "alice", 0);

    first = ledger_open(l, 0, NONE);
    assert_int_equal(call_hold(l, first, a, &n), NGX_OK);
    assert_int_equal(ngx_modelgw_ledger_held_count(l), 0);

    for (i = 0; i < 3 * l->held.size; i++) {
        give_up(l, a);
    }

    assert_int_equal(ngx_modelgw_ledger_held_count(l), 0);

    call = ledger_sent(l, 0, NONE, a, 0, 0);
    ngx_modelgw_ledger_sent(l, first);

    for (i = 0; i < 3 * l->held.size; i++) {
        give_up(l, a);
    }

    assert_int_equal(ngx_modelgw_ledger_held_count(l), 2);
    assert_ptr_equal(ngx_modelgw_ledger_held(l, 0, &id), call);
    assert_int_equal(id, call->id);
    assert_ptr_equal(ngx_modelgw_ledger_held(l, 1, &id), first);
    assert_int_equal(id, first->id);
    assert_int_equal(first->noted, 1);
    ledger_assert(l);

    /* one that is settled before the writer looks has nothing to store */

    call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);
    assert_ptr_equal(ngx_modelgw_ledger_held(l, 0, &id), call);
    assert_int_equal(id, 0);

    ngx_modelgw_ledger_noted(l, 2);
    assert_int_equal(ngx_modelgw_ledger_held_count(l), 0);
    assert_null(ngx_modelgw_ledger_held(l, 0, &id));
    assert_int_equal(id, 0);

    /* nor is a call without an account in it */

    (void) ledger_sent(l, 0, NONE, NONE, 0, 0);
    assert_int_equal(ngx_modelgw_ledger_held_count(l), 0);
    ledger_assert(l);

    ledger_destroy(l, LEDGER_SIZE);
}


/* Slots are used again before their entries are looked at. */

static void
test_taken_over(void **state)
{
    int64_t                n;
    uint32_t               a;
    uint64_t               id;
    ngx_modelgw_call_t    *call;
    ngx_modelgw_ledger_t  *l;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    a = ledger_account(l, "alice", 0);

    call = ledger_sent(l, 0, NONE, a, 0, 0);
    call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);
    ngx_modelgw_ledger_written(l, 1);

    /* by a call that is HELD, then SENT: the second entry is for this call */

    assert_ptr_equal(ledger_open(l, 0, NONE), call);
    assert_int_equal(call_hold(l, call, a, &n), NGX_OK);

    assert_ptr_equal(ngx_modelgw_ledger_held(l, 0, &id), call);
    assert_int_equal(id, 0);
    assert_null(ngx_modelgw_ledger_held(l, 1, &id));

    ngx_modelgw_ledger_sent(l, call);

    assert_ptr_equal(ngx_modelgw_ledger_held(l, 0, &id), call);
    assert_int_equal(id, 0);
    assert_int_equal(call->noted, 0);

    assert_ptr_equal(ngx_modelgw_ledger_held(l, 1, &id), call);
    assert_int_equal(id, call->id);
    assert_int_equal(call->noted, 1);

    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_topup(void **state)
{
    uint32_t               a, worker;
    ngx_str_t              id;
    ngx_uint_t             i;
    ngx_modelgw_change_t  *t, *all[NGX_MODELGW_LEDGER_CHANGES];
    ngx_modelgw_ledger_t  *l;
    ngx_modelgw_ledger_account_t  *account;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    a = ledger_account(l, "alice", -5);
    account = ngx_modelgw_ledger_account_at(l, a);
    assert_int_equal(ngx_modelgw_ledger_join(l, &worker), NGX_OK);
    id = unit_str("t-1");

    i = 0;
    assert_null(ngx_modelgw_ledger_change_asked(l, &i));

    t = ledger_topup(l, worker, a, &id, 20, TIME);
    assert_non_null(t);
    assert_int_equal(t->state, NGX_MODELGW_CHANGE_ASKED);
    assert_int_equal(t->time, TIME);
    unit_assert_str(t->id.data, t->id.len, "t-1");

    i = 0;
    assert_ptr_equal(ngx_modelgw_ledger_change_asked(l, &i), t);
    assert_null(ngx_modelgw_ledger_change_asked(l, &i));

    /* the "tried" state lasts until it is answered */

    assert_int_equal(t->tried, 0);
    ngx_modelgw_ledger_change_tried(t);
    assert_int_equal(t->tried, 1);

    ngx_modelgw_ledger_change_answer(l, t, NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(t->state, NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(account->balance, 15);

    /* answered only once */

    ngx_modelgw_ledger_change_answer(l, t, NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(account->balance, 15);
    ngx_modelgw_ledger_change_free(l, t);
    assert_int_equal(t->state, NGX_MODELGW_CHANGE_FREE);

    /* no two have the same time; other answers credit nothing */

    t = ledger_topup(l, worker, a, &id, 20, TIME);
    assert_int_equal(t->time, TIME + 1);
    assert_int_equal(t->tried, 0);
    ngx_modelgw_ledger_change_answer(l, t, NGX_MODELGW_CHANGE_KNOWN);
    assert_int_equal(t->state, NGX_MODELGW_CHANGE_KNOWN);
    assert_int_equal(account->balance, 15);
    ngx_modelgw_ledger_change_free(l, t);

    /* one without an owner is made, and its slot is not reused before */

    t = ledger_topup(l, worker, a, &id, 20, TIME);
    ngx_modelgw_ledger_change_free(l, t);
    assert_int_equal(t->state, NGX_MODELGW_CHANGE_ASKED);
    assert_ptr_not_equal(ledger_topup(l, worker, a, &id, 1, TIME), t);
    ngx_modelgw_ledger_change_answer(l, t, NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(t->state, NGX_MODELGW_CHANGE_FREE);
    assert_int_equal(account->balance, 35);

    /* as many as there are; an end of the range */

    for (i = 1; i < NGX_MODELGW_LEDGER_CHANGES; i++) {
        all[i] = ledger_topup(l, worker, a, &id, INT64_MAX / 2, TIME);
        assert_non_null(all[i]);
    }

    assert_null(ledger_topup(l, worker, a, &id, 1, TIME));

    for (i = 1; i < NGX_MODELGW_LEDGER_CHANGES; i++) {
        ngx_modelgw_ledger_change_answer(l, all[i], NGX_MODELGW_CHANGE_MADE);
    }

    assert_int_equal(account->balance, INT64_MAX);

    /* a worker that leaves keeps only top-ups that are ASKED */

    ngx_modelgw_ledger_leave(l, worker);

    for (i = 0; i < NGX_MODELGW_LEDGER_CHANGES; i++) {
        assert_true(l->changes[i].state == NGX_MODELGW_CHANGE_FREE
                    || (l->changes[i].state == NGX_MODELGW_CHANGE_ASKED
                        && l->changes[i].worker == NONE));
    }

    ledger_destroy(l, LEDGER_SIZE);
}


/* an account that a change opens: its place is reserved */

static void
test_change_account(void **state)
{
    uint32_t               i, free;
    ngx_str_t              name;
    ngx_modelgw_ledger_t  *l;
    ngx_modelgw_change_t   wanted, *one, *two, *three;
    ngx_modelgw_ledger_account_t  *a;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    name = unit_str("bob");

    while (ngx_modelgw_ledger_accounts_free(l) > 3) {
        char  text[32];

        sprintf(text, "a-%u", ngx_modelgw_ledger_accounts_free(l));
        (void) ledger_account(l, text, 0);
    }

    ngx_modelgw_ledger_change_after(l, TIME + 7);

    memset(&wanted, 0, sizeof(wanted));
    wanted.kind = NGX_MODELGW_CHANGE_ACCOUNT_NEW;
    wanted.account = NONE;
    wanted.owner.len = 3;
    memcpy(wanted.owner.data, "bob", 3);
    wanted.amount = 5;
    wanted.time = TIME;

    assert_int_equal(ngx_modelgw_ledger_change(l, &wanted, &one), NGX_OK);
    assert_int_equal(one->time, TIME + 8);
    assert_int_equal(ngx_modelgw_ledger_change_time(l, TIME), TIME + 9);
    assert_int_equal(ngx_modelgw_ledger_change(l, &wanted, &two), NGX_OK);
    assert_int_equal(two->time, TIME + 10);
    assert_int_equal(ngx_modelgw_ledger_change_time(l, TIME + 20), TIME + 20);

    /* the time before is that of its account */

    wanted.kind = NGX_MODELGW_CHANGE_KEY_NEW;
    assert_int_equal(ngx_modelgw_ledger_change(l, &wanted, &three), NGX_OK);
    assert_int_equal(three->time, TIME + 22);
    assert_int_equal(ngx_modelgw_ledger_change(l, &wanted, &three),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_ledger_accounts_free(l), 0);

    /* not there until it is made, and then once */

    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 0, 0, 0, 0, &i),
                     NGX_DECLINED);
    ngx_modelgw_ledger_change_answer(l, one, NGX_MODELGW_CHANGE_MADE);
    ngx_modelgw_ledger_change_answer(l, two, NGX_MODELGW_CHANGE_OTHER);
    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 0, 0, 0, 0, &i),
                     NGX_OK);
    a = ngx_modelgw_ledger_account_at(l, i);
    assert_int_equal(a->balance, 5);
    free = ngx_modelgw_ledger_accounts_free(l);
    assert_int_equal(free, 1);

    /* a configuration was first, with another founding credit */

    name = unit_str("carol");
    i = ledger_account(l, "carol", 9);
    three->owner.len = 5;
    memcpy(three->owner.data, "carol", 5);
    ngx_modelgw_ledger_change_answer(l, three, NGX_MODELGW_CHANGE_MADE);
    a = ngx_modelgw_ledger_account_at(l, i);
    assert_int_equal(a->balance, 5);
    assert_int_equal(a->founding, 5);
    assert_int_equal(ngx_modelgw_ledger_accounts_free(l), 1);

    /* closed, and open again */

    ngx_modelgw_ledger_change_free(l, one);
    wanted.kind = NGX_MODELGW_CHANGE_ACCOUNT_SET;
    wanted.account = i;
    wanted.sets = NGX_MODELGW_CHANGE_STATE;
    wanted.closed = 1;
    assert_int_equal(ngx_modelgw_ledger_change(l, &wanted, &one), NGX_OK);
    ngx_modelgw_ledger_change_answer(l, one, NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(a->closed, 1);
    assert_int_equal(a->balance, 5);

    ledger_destroy(l, LEDGER_SIZE);
}


/* runs next to test_wait(): a writer that counts its rounds */

typedef struct {
    ngx_modelgw_ledger_t  *ledger;
    uint64_t               rounds;
    uint64_t               stop;
    ngx_msec_t             timeout;
} waiter_t;


static void *
waiter(void *data)
{
    waiter_t  *w = data;

    (void) ngx_modelgw_ledger_elect(w->ledger);

    while (!__atomic_load_n(&w->stop, __ATOMIC_SEQ_CST)) {
        ngx_modelgw_ledger_wait(w->ledger, w->timeout);

        ngx_modelgw_ledger_written(w->ledger,
                                   ngx_modelgw_ledger_done_count(w->ledger));
        ngx_modelgw_ledger_noted(w->ledger,
                                 ngx_modelgw_ledger_held_count(w->ledger));

        __atomic_add_fetch(&w->rounds, 1, __ATOMIC_SEQ_CST);
    }

    return NULL;
}


static ngx_msec_t
msec(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


/*
 * A writer that is not woken would wait a minute: each call that ends here is
 * freed at once.  The race is run 2000 times.
 */

static void
test_wait(void **state)
{
    uint32_t               a;
    waiter_t               w;
    pthread_t              thread;
    ngx_uint_t             i;
    ngx_msec_t             start;
    ngx_modelgw_ledger_t  *l;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    a = ledger_account(l, "alice", 0);
    ngx_modelgw_ledger_set_stored(l, 1);

    /* it was woken when the account was created; then the timeout expires */

    start = msec();
    ngx_modelgw_ledger_wait(l, 60000);
    assert_true(msec() - start < 10000);

    start = msec();
    ngx_modelgw_ledger_wait(l, 30);
    assert_true(msec() - start >= 29);

    /* woken before it waits */

    ngx_modelgw_ledger_wake(l);
    ngx_modelgw_ledger_wait(l, 60000);
    assert_true(msec() - start < 10000);

    w.ledger = l;
    w.rounds = 0;
    w.stop = 0;
    w.timeout = 60000;

    assert_int_equal(pthread_create(&thread, NULL, waiter, &w), 0);

    for (i = 0; i < 2000; i++) {
        start = msec();
        call_settle(l, ledger_sent(l, 0, NONE, a, 0, 0),
                    NGX_MODELGW_END_COMPLETE, TIME, 0);

        while (ngx_modelgw_ledger_done_count(l)) {
            assert_true(msec() - start < 20000);
            sched_yield();
        }
    }

    __atomic_store_n(&w.stop, 1, __ATOMIC_SEQ_CST);
    ngx_modelgw_ledger_wake(l);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(w.rounds > 0);

    /* it has not resigned: a dead writer does not block the next */

    (void) ngx_modelgw_ledger_elect(l);
    ngx_modelgw_ledger_resign(l);
    (void) ngx_modelgw_ledger_elect(l);
    ngx_modelgw_ledger_resign(l);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


/* while a flush is stalled, the store counts as failed */

static void
test_stalled(void **state)
{
    ngx_modelgw_ledger_t  *l;

    l = ledger_create(LEDGER_SIZE, 1, 1);

    ngx_modelgw_ledger_flushing(l, 1);
    assert_int_equal(ngx_modelgw_ledger_stalled(l), 0);
    assert_true(ngx_modelgw_ledger_writable(l));

    l->flush -= NGX_MODELGW_LEDGER_STALL + 100;
    assert_true(ngx_modelgw_ledger_stalled(l) > NGX_MODELGW_LEDGER_STALL);
    assert_false(ngx_modelgw_ledger_writable(l));
    assert_false(ngx_modelgw_ledger_failed(l));

    ngx_modelgw_ledger_flushing(l, 0);
    assert_int_equal(ngx_modelgw_ledger_stalled(l), 0);
    assert_true(ngx_modelgw_ledger_writable(l));

    ngx_modelgw_ledger_set_writable(l, 0);
    assert_false(ngx_modelgw_ledger_writable(l));
    assert_true(ngx_modelgw_ledger_failed(l));
    ngx_modelgw_ledger_set_writable(l, 1);

    /* a flush is over when its writer has exited */

    ngx_modelgw_ledger_flushing(l, 1);
    assert_int_equal(ngx_modelgw_ledger_elect(l), 0);
    assert_int_equal(l->flush, 0);
    ngx_modelgw_ledger_resign(l);

    /* but a stalled one stays stalled until a flush of the next writer ends */

    ngx_modelgw_ledger_flushing(l, 1);
    l->flush -= NGX_MODELGW_LEDGER_STALL + 100;
    assert_true(ngx_modelgw_ledger_elect(l) > NGX_MODELGW_LEDGER_STALL);
    assert_false(ngx_modelgw_ledger_writable(l));
    ngx_modelgw_ledger_flushing(l, 1);
    assert_false(ngx_modelgw_ledger_writable(l));
    ngx_modelgw_ledger_flushing(l, 0);
    assert_true(ngx_modelgw_ledger_writable(l));
    ngx_modelgw_ledger_resign(l);

    ledger_destroy(l, LEDGER_SIZE);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_taken_over),
        cmocka_unit_test(test_topup),
        cmocka_unit_test(test_change_account),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_stalled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
