
/*
 * What a batch charges to accounts: summed up in memory, and one UPDATE an
 * account at its end, because calls of the same account come in crowds.  If
 * there are too many accounts for the table, what it has is written, and it
 * begins anew.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


static uint16_t *ngx_modelgw_store_slot(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *name);


ngx_int_t
ngx_modelgw_store_charge(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount)
{
    uint16_t                   *slot;
    ngx_modelgw_store_delta_t  *delta;

    slot = ngx_modelgw_store_slot(s, account);

    if (*slot) {
        delta = &s->deltas[*slot - 1];

        if (!__builtin_add_overflow(delta->amount, amount, &delta->amount)) {
            return NGX_OK;
        }

        (void) ngx_modelgw_store_fail_text(s, "failed: a balance overflows");
        return ngx_modelgw_store_abandon(s);
    }

    if (s->ndeltas == NGX_MODELGW_STORE_DELTAS) {

        if (ngx_modelgw_store_flush(s) != NGX_OK) {
            return NGX_ERROR;
        }

        slot = ngx_modelgw_store_slot(s, account);
    }

    delta = &s->deltas[s->ndeltas++];
    *slot = s->ndeltas;

    delta->amount = amount;
    delta->name.len = ngx_min(account->len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(delta->name.data, account->data, delta->name.len);

    return NGX_OK;
}


int64_t
ngx_modelgw_store_charged(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account)
{
    uint16_t  *slot;

    slot = ngx_modelgw_store_slot(s, account);

    return *slot ? s->deltas[*slot - 1].amount : 0;
}


/* that of the name, or the free one where it belongs; it is never full */

static uint16_t *
ngx_modelgw_store_slot(ngx_modelgw_store_t *s, ngx_modelgw_ledger_name_t *name)
{
    size_t                      len;
    uint32_t                    i;
    ngx_modelgw_ledger_name_t  *known;

    len = ngx_min(name->len, NGX_MODELGW_LEDGER_NAME);

    for (i = ngx_murmur_hash2(name->data, len); /* void */ ; i++) {
        i %= NGX_MODELGW_STORE_SLOTS;

        if (s->slots[i] == 0) {
            break;
        }

        known = &s->deltas[s->slots[i] - 1].name;

        if (known->len == len && ngx_memcmp(known->data, name->data, len) == 0)
        {
            break;
        }
    }

    return &s->slots[i];
}


ngx_int_t
ngx_modelgw_store_flush(ngx_modelgw_store_t *s)
{
    ngx_uint_t     i, changes;
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_CHARGE];

    for (i = 0; i < s->ndeltas; i++) {
        ngx_modelgw_store_bind_name(stmt, 1, &s->deltas[i].name);
        (void) sqlite3_bind_int64(stmt, 2, s->deltas[i].amount);

        if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_CHARGE, &changes)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (changes == 0) {
            (void) ngx_modelgw_store_fail_text(s,
                                      "failed: it lacks an account of a call");
            return ngx_modelgw_store_abandon(s);
        }
    }

    ngx_modelgw_store_forget(s);

    return NGX_OK;
}


void
ngx_modelgw_store_forget(ngx_modelgw_store_t *s)
{
    if (s->ndeltas) {
        s->ndeltas = 0;
        ngx_memzero(s->slots, sizeof(s->slots));
    }
}
