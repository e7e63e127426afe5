
/*
 * The ledger compared with a simple model, for 10^5 random steps.
 */


#include "unit_ledger.h"


#define OPS             100000
#define MODEL_CALLS     24
#define MODEL_ACCOUNTS  3
#define MODEL_KEYS      4


typedef struct {
    ngx_modelgw_call_t    *call;
    ngx_modelgw_call_e     state;
    uint32_t               account;
    uint32_t               key;
    int64_t                hold;
    int64_t                n;
} model_call_t;


typedef struct {
    int64_t                balance[MODEL_ACCOUNTS];
    model_call_t           calls[MODEL_CALLS];
    uint64_t               done[4096];
    ngx_uint_t             ndone;
    ngx_uint_t             free;
} model_t;


static uint64_t
dice(uint64_t n)
{
    static uint64_t  x = 88172645463325252;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;

    return x % n;
}


static int64_t
model_held(model_t *m, uint32_t account)
{
    int64_t     held;
    ngx_uint_t  i;

    held = 0;

    for (i = 0; i < MODEL_CALLS; i++) {
        if (m->calls[i].account == account
            && (m->calls[i].state == NGX_MODELGW_CALL_HELD
                || m->calls[i].state == NGX_MODELGW_CALL_SENT))
        {
            held += m->calls[i].hold;
        }
    }

    return held;
}


static ngx_uint_t
model_in_flight(model_t *m, uint32_t key)
{
    ngx_uint_t  i, n;

    n = 0;

    for (i = 0; i < MODEL_CALLS; i++) {
        n += (m->calls[i].state != NGX_MODELGW_CALL_FREE
              && m->calls[i].key == key);
    }

    return n;
}


static void
model_open(model_t *m, ngx_modelgw_ledger_t *l, model_call_t *c)
{
    uint32_t   concurrency;
    ngx_int_t  rc, expected;

    c->key = dice(MODEL_KEYS + 1);
    concurrency = dice(8);

    if (c->key == MODEL_KEYS) {
        c->key = NONE;
    }

    if (c->key != NONE && concurrency
        && model_in_flight(m, c->key) >= concurrency)
    {
        expected = NGX_DECLINED;

    } else if (m->free == 0) {
        expected = NGX_ERROR;

    } else {
        expected = NGX_OK;
    }

    rc = call_open(l, dice(3), c->key, concurrency, &c->call);
    assert_int_equal(rc, expected);

    if (rc == NGX_OK) {
        c->state = NGX_MODELGW_CALL_OPEN;
        c->account = NONE;
        c->n = 0;
        m->free--;
    }
}


static void
model_hold(model_t *m, ngx_modelgw_ledger_t *l, model_call_t *c)
{
    int64_t    available, left;
    uint32_t   account;
    ngx_int_t  rc;

    account = dice(MODEL_ACCOUNTS);
    c->hold = dice(5) ? (int64_t) dice(50) * EURO : 0;
    left = m->balance[account] - model_held(m, account);

    c->call->hold = c->hold;
    c->call->price.output = 1000000000000;

    rc = call_hold(l, c->call, account, &available);

    if (c->hold > left && c->hold > 0) {
        assert_int_equal(rc, NGX_DECLINED);
        assert_int_equal(available, left);
        return;
    }

    assert_int_equal(rc, NGX_OK);
    c->account = account;
    c->state = NGX_MODELGW_CALL_HELD;
}


static void
model_settle(model_t *m, ngx_modelgw_ledger_t *l, model_call_t *c)
{
    if (c->state == NGX_MODELGW_CALL_SENT) {
        m->balance[c->account] -= c->n * EURO;
        m->done[m->ndone++] = c->call->id;

    } else {
        m->free++;
    }

    call_settle(l, c->call, NGX_MODELGW_END_COMPLETE, TIME, 0);

    c->state = NGX_MODELGW_CALL_FREE;
}


static void
model_write(model_t *m, ngx_modelgw_ledger_t *l)
{
    ngx_uint_t  i, n;

    n = dice(m->ndone + 1);

    for (i = 0; i < m->ndone; i++) {
        assert_int_equal(ngx_modelgw_ledger_done(l, i)->id, m->done[i]);
    }

    assert_null(ngx_modelgw_ledger_done(l, i));

    ngx_modelgw_ledger_noted(l, ngx_modelgw_ledger_held_count(l));
    ngx_modelgw_ledger_written(l, n);

    m->ndone -= n;
    m->free += n;
    ngx_memmove(m->done, m->done + n, m->ndone * sizeof(uint64_t));
}


static void
model_topup(model_t *m, ngx_modelgw_ledger_t *l)
{
    int64_t               amount;
    uint32_t              account;
    ngx_str_t             id;
    ngx_modelgw_change_t  *t;

    amount = (int64_t) dice(200) * EURO;
    account = dice(MODEL_ACCOUNTS);
    id = unit_str("t");

    t = ledger_topup(l, 0, account, &id, amount, TIME);
    assert_non_null(t);
    ngx_modelgw_ledger_change_answer(l, t, NGX_MODELGW_CHANGE_MADE);
    ngx_modelgw_ledger_change_free(l, t);

    m->balance[account] += amount;
}


static void
model_step(model_t *m, ngx_modelgw_ledger_t *l)
{
    model_call_t  *c;

    c = &m->calls[dice(MODEL_CALLS)];

    switch (dice(40)) {
    case 0:
        model_topup(m, l);
        return;
    case 1:
    case 2:
        model_write(m, l);
        return;
    case 3:
        if (c->state != NGX_MODELGW_CALL_FREE) {
            model_settle(m, l, c);
        }
        return;
    }

    switch (c->state) {
    case NGX_MODELGW_CALL_FREE:
        model_open(m, l, c);
        break;
    case NGX_MODELGW_CALL_OPEN:
        model_hold(m, l, c);
        break;
    case NGX_MODELGW_CALL_HELD:
        ngx_modelgw_ledger_sent(l, c->call);
        c->n = dice(60);
        c->call->seen.status = 200;
        c->call->seen.input = 0;
        c->call->seen.output = c->n;
        c->call->seen.flags = NGX_MODELGW_SEEN_FINAL;
        c->state = NGX_MODELGW_CALL_SENT;
        break;
    default:
        model_settle(m, l, c);
    }
}


static void
test_model(void **state)
{
    model_t               *m;
    ngx_uint_t             i, k;
    ngx_modelgw_ledger_t  *l;

    l = ledger_create(24 * 1024 + sizeof(ngx_modelgw_ledger_t), 1, 1);
    m = calloc(1, sizeof(model_t));
    assert_non_null(m);
    assert_true(l->max < MODEL_CALLS);

    for (i = 0; i < MODEL_ACCOUNTS; i++) {
        m->balance[i] = 1000 * EURO;
        (void) ledger_account(l, (const char *[]) { "a", "b", "c" }[i],
                              m->balance[i]);
    }

    for (i = 0; i < MODEL_KEYS; i++) {
        (void) ledger_key(l, (const char *[]) { "k", "l", "m", "n" }[i]);
    }

    m->free = l->max;

    for (i = 0; i < OPS; i++) {
        model_step(m, l);

        for (k = 0; k < MODEL_ACCOUNTS; k++) {
            assert_int_equal(ngx_modelgw_ledger_account_at(l, k)->balance,
                             m->balance[k]);
            assert_int_equal(ngx_modelgw_ledger_account_at(l, k)->held,
                             model_held(m, k));
        }

        for (k = 0; k < MODEL_KEYS; k++) {
            assert_int_equal(ngx_modelgw_ledger_key_at(l, k)->calls,
                             model_in_flight(m, k));
        }

        if (i % 16 == 0) {
            ledger_assert(l);
        }
    }

    free(m);
    ledger_destroy(l, 24 * 1024 + sizeof(ngx_modelgw_ledger_t));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
