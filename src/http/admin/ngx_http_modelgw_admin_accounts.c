
/*
 * Balances: from shared memory, where they are true to the call, not from the
 * store, which is a flush behind and knows no holds.
 *
 * The lock is taken once a record: calls wait for a copy of it, not for a list.
 * Accounts are added at the end and never go, and their names do not change, so
 * that the list has a length that can be told before.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_document.h"

#include "ngx_http_modelgw_admin.h"


#define NGX_HTTP_MODELGW_ACCOUNTS_HEAD  "{\"accounts\":["
#define NGX_HTTP_MODELGW_ACCOUNTS_TAIL  "]}"
#define NGX_HTTP_MODELGW_ACCOUNT_ID     "{\"id\":"
#define NGX_HTTP_MODELGW_ACCOUNT_BAL    ",\"balance\":"
#define NGX_HTTP_MODELGW_ACCOUNT_HELD   ",\"held\":"
#define NGX_HTTP_MODELGW_ACCOUNT_LEFT   ",\"available\":"
#define NGX_HTTP_MODELGW_ACCOUNT_TOPUP  ",\"topups\":"
#define NGX_HTTP_MODELGW_ACCOUNT_TAIL   "}"

/* of an object, but for its id */
#define NGX_HTTP_MODELGW_ACCOUNT_LEN                                          \
    (sizeof(NGX_HTTP_MODELGW_ACCOUNT_ID NGX_HTTP_MODELGW_ACCOUNT_BAL          \
            NGX_HTTP_MODELGW_ACCOUNT_HELD NGX_HTTP_MODELGW_ACCOUNT_LEFT       \
            NGX_HTTP_MODELGW_ACCOUNT_TAIL) - 1                                \
     + 3 * (2 + NGX_MODELGW_AMOUNT_LEN))


static void ngx_http_modelgw_admin_account_name(
    ngx_modelgw_ledger_account_t *a, ngx_str_t *name);
static u_char *ngx_http_modelgw_admin_account_write(u_char *p,
    ngx_modelgw_ledger_t *ledger, uint32_t index);
static u_char *ngx_http_modelgw_admin_amount(u_char *p, int64_t nano);


ngx_int_t
ngx_http_modelgw_admin_accounts(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    size_t                 len;
    u_char                *p;
    uint32_t               i, n;
    ngx_str_t              name;
    ngx_modelgw_ledger_t  *ledger;

    ledger = job->mmcf->ledger;
    n = ngx_modelgw_ledger_accounts(ledger);

    len = sizeof(NGX_HTTP_MODELGW_ACCOUNTS_HEAD
                 NGX_HTTP_MODELGW_ACCOUNTS_TAIL) - 1;

    for (i = 0; i < n; i++) {
        ngx_http_modelgw_admin_account_name(
                               ngx_modelgw_ledger_account_at(ledger, i), &name);

        len += ngx_modelgw_json_str_len(&name)
               + NGX_HTTP_MODELGW_ACCOUNT_LEN + 1;
    }

    p = ngx_pnalloc(job->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    job->body.data = p;

    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNTS_HEAD,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNTS_HEAD) - 1);

    for (i = 0; i < n; i++) {

        if (i) {
            *p++ = ',';
        }

        p = ngx_http_modelgw_admin_account_write(p, ledger, i);
    }

    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNTS_TAIL,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNTS_TAIL) - 1);

    job->body.len = p - job->body.data;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_account(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    u_char                *p;
    ngx_str_t              name, topups;
    ngx_modelgw_ledger_t  *ledger;

    ledger = job->mmcf->ledger;

    ngx_http_modelgw_admin_account_name(
                    ngx_modelgw_ledger_account_at(ledger, job->account), &name);

    if (ngx_modelgw_store_topups(store, &name, NGX_HTTP_MODELGW_ADMIN_TOPUPS,
                                 &topups, job->pool)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(job->pool, ngx_modelgw_json_str_len(&name)
                               + NGX_HTTP_MODELGW_ACCOUNT_LEN
                               + sizeof(NGX_HTTP_MODELGW_ACCOUNT_TOPUP)
                               + topups.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    job->body.data = p;

    p = ngx_http_modelgw_admin_account_write(p, ledger, job->account);

    p -= sizeof(NGX_HTTP_MODELGW_ACCOUNT_TAIL) - 1;

    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNT_TOPUP,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNT_TOPUP) - 1);
    p = ngx_cpymem(p, topups.data, topups.len);
    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNT_TAIL,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNT_TAIL) - 1);

    job->body.len = p - job->body.data;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_account_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, uint32_t *index)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (ngx_http_modelgw_conf_word(id, NGX_HTTP_MODELGW_ADMIN_ID,
                                   NGX_MODELGW_LEDGER_NAME)
        && ngx_modelgw_ledger_account(mmcf->ledger, id, 0, 0, 0, 0, index)
           == NGX_OK)
    {
        return NGX_OK;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                  "no such account");
}


static void
ngx_http_modelgw_admin_account_name(ngx_modelgw_ledger_account_t *a,
    ngx_str_t *name)
{
    name->len = (size_t) a->name.len;
    name->data = a->name.data;
}


static u_char *
ngx_http_modelgw_admin_account_write(u_char *p, ngx_modelgw_ledger_t *ledger,
    uint32_t index)
{
    int64_t                        balance, held;
    ngx_str_t                      name;
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(ledger, index);

    ngx_modelgw_ledger_lock(ledger);

    balance = a->balance;
    held = a->held;

    ngx_modelgw_ledger_unlock(ledger);

    ngx_http_modelgw_admin_account_name(a, &name);

    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNT_ID,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNT_ID) - 1);
    p = ngx_modelgw_json_str(p, &name);
    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNT_BAL,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNT_BAL) - 1);
    p = ngx_http_modelgw_admin_amount(p, balance);
    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNT_HELD,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNT_HELD) - 1);
    p = ngx_http_modelgw_admin_amount(p, held);
    p = ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNT_LEFT,
                   sizeof(NGX_HTTP_MODELGW_ACCOUNT_LEFT) - 1);
    p = ngx_http_modelgw_admin_amount(p, balance - held);

    return ngx_cpymem(p, NGX_HTTP_MODELGW_ACCOUNT_TAIL,
                      sizeof(NGX_HTTP_MODELGW_ACCOUNT_TAIL) - 1);
}


static u_char *
ngx_http_modelgw_admin_amount(u_char *p, int64_t nano)
{
    *p++ = '"';
    p = ngx_modelgw_amount(p, nano);
    *p++ = '"';

    return p;
}
