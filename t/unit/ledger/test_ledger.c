
/*
 * The ledger: each statement of the header about accounts, keys, calls and
 * workers, in one process.  The writer's side is in test_ledger_queue.c, a
 * long random history in test_ledger_model.c, kills are in test_ledger_kill.c.
 */


#include "unit_ledger.h"


static void
test_room(void **state)
{
    void                       *p;
    size_t                      size, used;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_room_t   room;

    ngx_modelgw_ledger_room(0, NGX_MODELGW_LEDGER_CREDIT, &room);
    assert_int_equal(room.calls + room.keys + room.accounts, 0);

    for (size = 4096; size <= 4096 * 4096; size += (size < 262144) ? 61
                                                                : size / 3)
    {
        ngx_modelgw_ledger_room(size, NGX_MODELGW_LEDGER_CREDIT, &room);

        p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
                 -1, 0);
        assert_true(p != MAP_FAILED);

        l = ngx_modelgw_ledger_create(p, size, 1, 1);

        if (room.accounts == 0 || room.keys == 0 || room.calls == 0) {
            assert_null(l);

        } else {
            assert_non_null(l);
            assert_ptr_equal(l, p);

            used = (u_char *) (l->calls + l->max) - (u_char *) p;
            assert_true(used <= size);
            assert_true(l->held.size >= 2 * l->max + 1);
            assert_true(l->done.size >= l->max);
            assert_true(ngx_modelgw_ledger_writable(l));
        }

        munmap(p, size);
    }

    /* as an operator would configure it */

    ngx_modelgw_ledger_room(32 * 1024 * 1024, NGX_MODELGW_LEDGER_CREDIT, &room);
    assert_true(room.accounts > 40000);
    assert_true(room.keys > 60000);
    assert_true(room.calls > 20000);
}


static void
test_account(void **state)
{
    u_char                         text[80];
    uint32_t                       i, k;
    ngx_str_t                      name;
    ngx_modelgw_ledger_t          *l;
    ngx_modelgw_ledger_account_t  *a;

    l = ledger_create(LEDGER_SIZE, 0, 1);

    assert_true(ngx_modelgw_ledger_credit(l));

    name = unit_str("alice");

    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 0, 5, 7, 0, &i),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_ledger_accounts(l), 0);

    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 1, 5, 7, 1, &i),
                     NGX_DONE);
    assert_int_equal(i, 0);
    assert_int_equal(ngx_modelgw_ledger_stored(l), 1);

    a = ngx_modelgw_ledger_account_at(l, 0);
    assert_int_equal(a->balance, 5);
    assert_int_equal(a->founding, 0);
    assert_int_equal(a->opened, 7);
    unit_assert_str(a->name.data, a->name.len, "alice");

    /* existing accounts do not change */

    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 1, 9, 9, 0, &i),
                     NGX_OK);
    assert_int_equal(i, 0);
    assert_int_equal(a->balance, 5);

    i = ledger_account(l, "alic", EURO);
    assert_int_equal(i, 1);
    assert_int_equal(ngx_modelgw_ledger_account_at(l, i)->founding, EURO);
    assert_int_equal(ngx_modelgw_ledger_stored(l), 1);

    ngx_modelgw_ledger_set_stored(l, 2);
    assert_int_equal(ngx_modelgw_ledger_stored(l), 2);

    /* names of the maximum length, and longer */

    ngx_memset(text, 'x', sizeof(text));
    name.data = text;
    name.len = NGX_MODELGW_LEDGER_NAME + 1;
    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 1, 0, 0, 0, &i),
                     NGX_ERROR);
    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 0, 0, 0, 0, &i),
                     NGX_DECLINED);
    name.len--;
    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 1, 0, 0, 0, &i),
                     NGX_DONE);

    /* until there is no room; all of them are found */

    for (k = 0; l->accounts.n < l->accounts.max; k++) {
        name.len = ngx_sprintf(text, "account-%uD", k) - text;
        assert_int_equal(ngx_modelgw_ledger_account(l, &name, 1, k, 0, 0, &i),
                         NGX_DONE);
        assert_int_equal(i, k + 3);
    }

    name = unit_str("more");
    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 1, 0, 0, 0, &i),
                     NGX_ERROR);

    name.data = text;

    while (k-- > 0) {
        name.len = ngx_sprintf(text, "account-%uD", k) - text;
        assert_int_equal(ngx_modelgw_ledger_account(l, &name, 0, 0, 0, 0, &i),
                         NGX_OK);
        assert_int_equal(ngx_modelgw_ledger_account_at(l, i)->balance, k);
    }

    ledger_destroy(l, LEDGER_SIZE);
}


/* reading a key's record neither adds nor changes one */

static void
test_key_find(void **state)
{
    uint32_t                  i;
    ngx_str_t                 name, other;
    ngx_modelgw_ledger_t     *l;
    ngx_modelgw_ledger_key_t  key, before;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    ngx_modelgw_ledger_generation(l);

    name = unit_str("alice-1");
    other = unit_str("alice-2");

    assert_int_equal(ngx_modelgw_ledger_key_find(l, &name, &key),
                     NGX_DECLINED);
    assert_int_equal(l->keys.n, 0);

    assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_OK);
    assert_int_equal(ngx_modelgw_ledger_budget_set(l, i,
                                                   NGX_MODELGW_WINDOW_DAY),
                     1);
    ngx_modelgw_ledger_budget_known(l, i);

    before = *ngx_modelgw_ledger_key_at(l, i);
    before.rpm.now = 17;
    ngx_modelgw_ledger_key_at(l, i)->rpm.now = 17;

    assert_int_equal(ngx_modelgw_ledger_key_find(l, &name, &key), NGX_OK);
    assert_memory_equal(&key, &before, sizeof(key));
    assert_int_equal(ngx_modelgw_ledger_key_find(l, &other, &key),
                     NGX_DECLINED);
    assert_int_equal(l->keys.n, 1);

    /* as it would be for the next call: it was not named meanwhile */

    ngx_modelgw_ledger_generation(l);
    assert_int_equal(ngx_modelgw_ledger_key_find(l, &name, &key), NGX_OK);
    assert_int_equal(key.window, NGX_MODELGW_WINDOW_DAY);

    ngx_modelgw_ledger_generation(l);
    assert_int_equal(ngx_modelgw_ledger_key_find(l, &name, &key), NGX_OK);
    assert_int_equal(key.window, NGX_MODELGW_WINDOW_NONE);
    assert_int_equal(key.generation, before.generation);
    assert_memory_equal(ngx_modelgw_ledger_key_at(l, i), &before,
                        sizeof(before));

    ledger_destroy(l, LEDGER_SIZE);
}


/* the number of an existing key, without adding one */

static uint32_t
key_found(ngx_modelgw_ledger_t *l, ngx_str_t *name)
{
    uint32_t                    i, k;
    ngx_modelgw_ledger_name_t  *n;

    for (i = 0; i < l->keys.max; i++) {
        for (k = l->keys.chains[i];
             k != NONE;
             k = ngx_modelgw_ledger_key_at(l, k)->next)
        {
            n = &ngx_modelgw_ledger_key_at(l, k)->name;

            if (n->len == name->len
                && ngx_memcmp(n->data, name->data, n->len) == 0)
            {
                return k;
            }
        }
    }

    return NONE;
}


static void
test_key(void **state)
{
    u_char                     text[80];
    uint32_t                   i, k, n, again;
    ngx_str_t                  name;
    ngx_modelgw_call_t        *call;
    ngx_modelgw_ledger_t      *l;
    ngx_modelgw_ledger_key_t  *key;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    n = l->keys.max;
    name.data = text;

    ngx_modelgw_ledger_generation(l);

    for (k = 0; k < n; k++) {
        name.len = ngx_sprintf(text, "key-%uD", k) - text;
        assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_OK);
        assert_int_equal(i, k);
        ngx_modelgw_ledger_key_at(l, i)->rpm.now = k;
        (void) ngx_modelgw_ledger_budget_set(l, i, NGX_MODELGW_WINDOW_DAY);
    }

    /* all of this configuration's: there is no room */

    name = unit_str("new");
    assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_ERROR);

    /* the next one names every other key, and as many new ones */

    ngx_modelgw_ledger_generation(l);
    call = ledger_open(l, 0, 1);
    name.data = text;

    for (k = 0; k < n; k += 2) {
        name.len = ngx_sprintf(text, "key-%uD", k) - text;
        assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_OK);
        assert_int_equal(i, k);
        assert_int_equal(ngx_modelgw_ledger_key_at(l, i)->rpm.now, k);
    }

    for (k = 3; k < n; k += 2) {
        name.len = ngx_sprintf(text, "new-%uD", k) - text;
        assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_OK);
        assert_int_equal(i, k);

        key = ngx_modelgw_ledger_key_at(l, i);
        assert_int_equal(key->rpm.now, 0);
        assert_int_equal(key->window, NGX_MODELGW_WINDOW_NONE);
        key->rpm.now = k;
    }

    /* key 1 has a call and stays what it is */

    name = unit_str("one more");
    assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_ERROR);

    name = unit_str("key-1");
    assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_OK);
    assert_int_equal(i, 1);
    assert_int_equal(ngx_modelgw_ledger_key_at(l, i)->calls, 1);

    call_settle(l, call, NGX_MODELGW_END_CLIENT, TIME, 0);
    ngx_modelgw_ledger_generation(l);
    name = unit_str("one more");
    assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_OK);
    assert_int_equal(ngx_modelgw_ledger_key(l, &name, &again), NGX_OK);
    assert_int_equal(i, again);
    assert_int_equal(i, 0);

    /* a reused slot is found by its new name only */

    name.data = text;

    for (k = 3; k < n; k += 2) {
        name.len = ngx_sprintf(text, "new-%uD", k) - text;
        assert_int_equal(key_found(l, &name), k);

        name.len = ngx_sprintf(text, "key-%uD", k) - text;
        assert_int_equal(key_found(l, &name), NONE);
    }

    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_life(void **state)
{
    int64_t                        available;
    uint32_t                       a, k;
    ngx_modelgw_call_t            *call;
    ngx_modelgw_ledger_t          *l;
    ngx_modelgw_ledger_key_t      *key;
    ngx_modelgw_ledger_account_t  *account;

    l = ledger_create(LEDGER_SIZE, 0, 1);
    a = ledger_account(l, "alice", 10 * EURO);
    k = ledger_key(l, "alice-1");
    account = ngx_modelgw_ledger_account_at(l, a);
    key = ngx_modelgw_ledger_key_at(l, k);

    /* open, and given up */

    call = ledger_open(l, 3, k);
    assert_int_equal(call->id, 1);
    assert_int_equal(call->state, NGX_MODELGW_CALL_OPEN);
    assert_int_equal(call->worker, 3);
    assert_int_equal(call->account, NONE);
    assert_int_equal(call->seen.output, -1);
    assert_int_equal(key->calls, 1);

    call_settle(l, call, NGX_MODELGW_END_CLIENT, TIME, 0);
    assert_int_equal(call->state, NGX_MODELGW_CALL_FREE);
    assert_int_equal(key->calls, 0);
    ledger_assert(l);

    /* a hold above the balance */

    call = ledger_open(l, 0, k);
    assert_int_equal(call->id, 2);
    call->hold = 10 * EURO + 1;
    available = -1;

    assert_int_equal(call_hold(l, call, a, &available), NGX_DECLINED);
    assert_int_equal(available, 10 * EURO);
    assert_int_equal(call->state, NGX_MODELGW_CALL_OPEN);
    assert_int_equal(account->held, 0);

    /* the whole balance; then only calls that cost nothing are admitted */

    call->hold = 10 * EURO;
    assert_int_equal(call_hold(l, call, a, &available), NGX_OK);
    assert_int_equal(call->state, NGX_MODELGW_CALL_HELD);
    assert_int_equal(account->held, 10 * EURO);
    assert_int_equal(account->balance, 10 * EURO);
    ledger_assert(l);

    call_settle(l, call, NGX_MODELGW_END_UPSTREAM, TIME, 0);
    assert_int_equal(account->held, 0);
    assert_int_equal(account->balance, 10 * EURO);
    assert_int_equal(ngx_modelgw_ledger_done_count(l), 0);
    assert_int_equal(call->charge.outcome, NGX_MODELGW_UNSENT);
    assert_int_equal(call->charge.cost, 0);

    /* above the hold: below zero, and then only calls that cost nothing */

    call = ledger_sent(l, 0, k, a, 3 * EURO, 11);
    assert_int_equal(call->state, NGX_MODELGW_CALL_SENT);
    assert_int_equal(ngx_modelgw_ledger_held_count(l), 1);
    call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);

    assert_int_equal(call->state, NGX_MODELGW_CALL_DONE);
    assert_int_equal(call->charge.cost, 11 * EURO);
    assert_int_equal(call->end, NGX_MODELGW_END_COMPLETE);
    assert_int_equal(call->ended, TIME);
    assert_int_equal(account->balance, -EURO);
    assert_int_equal(account->held, 0);
    assert_int_equal(key->calls, 0);
    assert_int_equal(ngx_modelgw_ledger_done_count(l), 1);
    ledger_assert(l);

    /* settled only once */

    call_settle(l, call, NGX_MODELGW_END_CLIENT, TIME + 1, 0);
    assert_int_equal(account->balance, -EURO);
    assert_int_equal(call->end, NGX_MODELGW_END_COMPLETE);
    assert_int_equal(ngx_modelgw_ledger_done_count(l), 1);

    call = ledger_open(l, 0, NONE);
    call->hold = 1;
    assert_int_equal(call_hold(l, call, a, &available), NGX_DECLINED);
    assert_int_equal(available, -EURO);
    call->hold = 0;
    assert_int_equal(call_hold(l, call, a, &available), NGX_OK);

    ngx_modelgw_ledger_sent(l, call);
    ngx_modelgw_ledger_sent(l, call);
    assert_int_equal(ngx_modelgw_ledger_held_count(l), 2);
    ledger_assert(l);

    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_concurrency(void **state)
{
    uint32_t               k, i, n;
    ngx_modelgw_call_t   **calls, *call;
    ngx_modelgw_ledger_t  *l;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    k = ledger_key(l, "alice-1");
    n = l->max;
    calls = calloc(n, sizeof(ngx_modelgw_call_t *));
    assert_non_null(calls);

    assert_int_equal(call_open(l, 0, k, 2, &calls[0]), NGX_OK);
    assert_int_equal(call_open(l, 1, k, 2, &calls[1]), NGX_OK);
    assert_int_equal(call_open(l, 2, k, 2, &call), NGX_DECLINED);
    assert_int_equal(call_open(l, 2, k, 3, &calls[2]), NGX_OK);

    for (i = 3; i < n; i++) {
        assert_int_equal(call_open(l, 0, k, 0, &calls[i]), NGX_OK);
    }

    assert_int_equal(ngx_modelgw_ledger_key_at(l, k)->calls, n);
    assert_int_equal(call_open(l, 0, NONE, 0, &call), NGX_ERROR);
    ledger_assert(l);

    call_settle(l, calls[n / 2], NGX_MODELGW_END_CLIENT, TIME, 0);
    assert_int_equal(call_open(l, 0, NONE, 0, &call), NGX_OK);
    assert_int_equal(call_open(l, 0, NONE, 0, &call), NGX_ERROR);
    ledger_assert(l);

    free(calls);
    ledger_destroy(l, LEDGER_SIZE);
}


/* tokens are corrected to what the charge says; to none, if it was not sent */

static void
test_tokens(void **state)
{
    uint32_t                   a, k;
    ngx_modelgw_call_t        *call;
    ngx_modelgw_limit_t        expected;
    ngx_modelgw_ledger_t      *l;
    ngx_modelgw_ledger_key_t  *key;

    static const uint64_t      clock = 120000;

    l = ledger_create(LEDGER_SIZE, 1, 1);
    a = ledger_account(l, "alice", 100 * EURO);
    k = ledger_key(l, "alice-1");
    key = ngx_modelgw_ledger_key_at(l, k);

    ngx_modelgw_limit_correct(&key->tpm, 0, 1000, clock);

    call = ledger_open(l, 0, k);
    call->taken = 300;
    expected = key->tpm;
    ngx_modelgw_limit_correct(&expected, 300, 0, clock);
    call_settle(l, call, NGX_MODELGW_END_CLIENT, TIME, clock);
    assert_memory_equal(&key->tpm, &expected, sizeof(ngx_modelgw_limit_t));
    assert_int_equal(key->tpm.now, 700);

    call = ledger_sent(l, 0, k, a, 0, 20);
    call->taken = 10;
    call->seen.input = 1;
    call->seen.cache_read = 2;
    call->seen.cache_write = 7;
    call->seen.cache_write_1h = 3;
    call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, clock);
    ngx_modelgw_limit_correct(&expected, 10, 30, clock);
    assert_memory_equal(&key->tpm, &expected, sizeof(ngx_modelgw_limit_t));
    assert_int_equal(key->tpm.now, 720);

    ledger_destroy(l, LEDGER_SIZE);
}


/* without credit: calls have charges but no account, and no writer */

static void
test_no_credit(void **state)
{
    int64_t                      available;
    uint32_t                     k, self, other;
    ngx_uint_t                   i;
    ngx_modelgw_call_t          *call, *before;
    ngx_modelgw_ledger_t        *l;
    ngx_modelgw_ledger_ended_t   ended;

    l = ledger_create(LEDGER_SIZE, 41, 0);
    assert_false(ngx_modelgw_ledger_credit(l));
    assert_int_equal(ngx_modelgw_ledger_join(l, &self), NGX_OK);
    k = ledger_key(l, "alice-1");
    before = NULL;
    other = self + 1;

    for (i = 0; i < 3 * l->held.size; i++) {
        call = ledger_sent(l, self, k, (i & 1) ? NONE : 0, 1, i + 1);
        assert_int_equal(call->id, 41 + 3 * i);
        assert_int_equal(call->account, NONE);

        call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);
        assert_int_equal(call->state, NGX_MODELGW_CALL_FREE);

        assert_int_equal(call->charge.cost, (int64_t) (i + 1) * EURO);
        assert_int_equal(call->charge.tokens.output, i + 1);

        /* any process may take the slot next */

        before = ledger_open(l, other, k);
        assert_ptr_equal(before, call);
        call_settle(l, before, NGX_MODELGW_END_CLIENT, TIME, 0);
        before = ledger_sent(l, other, k, NONE, 0, 5);
        call_settle(l, before, NGX_MODELGW_END_CLIENT, TIME, 0);
        assert_ptr_equal(before, call);
    }

    assert_int_equal(ngx_modelgw_ledger_held_count(l), 0);
    assert_int_equal(ngx_modelgw_ledger_done_count(l), 0);
    assert_int_equal(l->fresh, 1);
    ledger_assert(l);

    /* two at a time */

    call = ledger_sent(l, self, k, NONE, 0, 5);
    before = ledger_sent(l, self, k, NONE, 0, 7);
    call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);
    call_settle(l, before, NGX_MODELGW_END_COMPLETE, TIME, 0);
    ledger_assert(l);

    call = ledger_open(l, self, k);
    call->hold = EURO;
    assert_int_equal(call_hold(l, call, NONE, &available), NGX_OK);
    ngx_memzero(&ended, sizeof(ngx_modelgw_ledger_ended_t));
    assert_int_equal(ngx_modelgw_ledger_end_all(l, self,
                                                NGX_MODELGW_END_STOPPED, TIME,
                                                &ended),
                     1);

    ngx_modelgw_ledger_leave(l, self);
    ledger_assert(l);

    ledger_destroy(l, LEDGER_SIZE);
}


/* only for calls that were sent, with their charge */

static void
count_sent(ngx_modelgw_call_t *call, void *data)
{
    ngx_uint_t  *sent = data;

    assert_int_equal(call->end, NGX_MODELGW_END_KILLED);
    assert_int_equal(call->ended, TIME);

    (*sent)++;
}


static void
test_join(void **state)
{
    pid_t                        pid;
    int                          status;
    uint32_t                     i, a, worker, self;
    ngx_uint_t                   n, sent;
    ngx_modelgw_ledger_t        *l;
    ngx_modelgw_ledger_ended_t   ended;

    l = ledger_create(16 * LEDGER_SIZE, 1, 1);
    assert_int_equal(l->nworkers, NGX_MODELGW_LEDGER_WORKERS);

    assert_int_equal(ngx_modelgw_ledger_join(l, &self), NGX_OK);

    /* a live worker is not swept; it leaves, and its number is reused */

    assert_int_equal(ngx_modelgw_ledger_join(l, &worker), NGX_OK);
    assert_int_not_equal(worker, self);
    (void) ledger_open(l, worker, NONE);
    ngx_memzero(&ended, sizeof(ngx_modelgw_ledger_ended_t));
    assert_int_equal(ngx_modelgw_ledger_sweep(l, self, TIME, &ended), 0);
    assert_int_equal(ngx_modelgw_ledger_end_all(l, worker,
                                                NGX_MODELGW_END_STOPPED, TIME,
                                                &ended),
                     1);
    ngx_modelgw_ledger_leave(l, worker);
    assert_int_equal(ngx_modelgw_ledger_join(l, &i), NGX_OK);
    assert_int_equal(i, worker);
    ngx_modelgw_ledger_leave(l, i);

    /* the others are taken by a process that is killed */

    pid = fork();
    assert_true(pid >= 0);

    if (pid == 0) {
        for (n = 0; ngx_modelgw_ledger_join(l, &worker) == NGX_OK; n++) {
            (void) ledger_open(l, worker, NONE);
        }
        _exit(n == l->nworkers - 1 ? 0 : 1);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);

    /* not before it is swept up */

    sent = 0;
    ended.handler = count_sent;
    ended.data = &sent;

    assert_int_equal(ngx_modelgw_ledger_join(l, &worker), NGX_DECLINED);
    assert_int_equal(ngx_modelgw_ledger_sweep(l, self, TIME, &ended),
                     (int) l->nworkers - 1);
    assert_int_equal(ended.charged, 0);
    assert_int_equal(sent, 0);
    assert_int_equal(ngx_modelgw_ledger_join(l, &worker), NGX_OK);
    ledger_assert(l);

    ngx_modelgw_ledger_leave(l, worker);

    /* a live worker waits for the charge of a dead one's call */

    a = ledger_account(l, "alice", EURO);
    pid = fork();
    assert_true(pid >= 0);

    if (pid == 0) {
        i = (ngx_modelgw_ledger_join(l, &worker) == NGX_OK);
        (void) ledger_sent(l, worker, NONE, a, 0, 0);
        _exit(i ? 0 : 1);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);

    assert_int_equal(ngx_modelgw_ledger_sweep(l, self, TIME, &ended), 1);
    assert_int_equal(sent, 1);
    assert_non_null(ngx_modelgw_ledger_done(l, 0));
    assert_int_equal(ngx_modelgw_ledger_done_ever(l), 1);
    ledger_assert(l);

    ngx_modelgw_ledger_leave(l, self);

    ledger_destroy(l, 16 * LEDGER_SIZE);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_account),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_key_find),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_concurrency),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_no_credit),
        cmocka_unit_test(test_join),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
