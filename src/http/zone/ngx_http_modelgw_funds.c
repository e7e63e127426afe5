
/*
 * The funds that are in use on this node: an array, and for each account and
 * key its place there.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_http_modelgw_exchanger.h"


#define NGX_HTTP_MODELGW_FUNDS_SIZE  64      /* at first */


static ngx_int_t ngx_http_modelgw_funds_grow(ngx_http_modelgw_funds_t *funds);


ngx_int_t
ngx_http_modelgw_funds_create(ngx_http_modelgw_funds_t *funds,
    ngx_modelgw_ledger_t *ledger)
{
    ngx_uint_t                 i;
    ngx_modelgw_ledger_room_t  used, max;

    ngx_memzero(funds, sizeof(ngx_http_modelgw_funds_t));

    ngx_modelgw_ledger_used(ledger, &used, &max);

    funds->max[NGX_MODELGW_FUND_ACCOUNT] = max.accounts;
    funds->max[NGX_MODELGW_FUND_BUDGET] = max.keys;

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {
        funds->places[i] = ngx_calloc(funds->max[i] * sizeof(uint32_t) + 1,
                                      ngx_cycle->log);
        if (funds->places[i] == NULL) {
            return NGX_ERROR;
        }
    }

    funds->budgets = ngx_calloc(max.keys
                                * sizeof(ngx_http_modelgw_fund_budget_t) + 1,
                                ngx_cycle->log);
    if (funds->budgets == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_funds_grow(funds);
}


void
ngx_http_modelgw_funds_free(ngx_http_modelgw_funds_t *funds)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {
        if (funds->places[i]) {
            ngx_free(funds->places[i]);
        }
    }

    if (funds->budgets) {
        ngx_free(funds->budgets);
    }

    if (funds->elts) {
        ngx_free(funds->elts);
    }

    ngx_memzero(funds, sizeof(ngx_http_modelgw_funds_t));
}


static ngx_int_t
ngx_http_modelgw_funds_grow(ngx_http_modelgw_funds_t *funds)
{
    ngx_uint_t                size;
    ngx_http_modelgw_fund_t  *elts;

    size = funds->size ? funds->size * 2 : NGX_HTTP_MODELGW_FUNDS_SIZE;

    elts = ngx_alloc(size * sizeof(ngx_http_modelgw_fund_t), ngx_cycle->log);
    if (elts == NULL) {
        return NGX_ERROR;
    }

    if (funds->elts) {
        ngx_memcpy(elts, funds->elts,
                   funds->n * sizeof(ngx_http_modelgw_fund_t));
        ngx_free(funds->elts);
    }

    funds->elts = elts;
    funds->size = size;

    return NGX_OK;
}


ngx_http_modelgw_fund_t *
ngx_http_modelgw_funds_find(ngx_http_modelgw_funds_t *funds,
    ngx_modelgw_fund_t *fund)
{
    uint32_t  place;

    if (fund->index >= funds->max[fund->kind]) {
        return NULL;
    }

    place = funds->places[fund->kind][fund->index];

    return place ? &funds->elts[place - 1] : NULL;
}


ngx_http_modelgw_fund_t *
ngx_http_modelgw_funds_add(ngx_http_modelgw_funds_t *funds,
    ngx_modelgw_fund_t *fund)
{
    ngx_http_modelgw_fund_t  *f;

    f = ngx_http_modelgw_funds_find(funds, fund);

    if (f || fund->index >= funds->max[fund->kind]) {
        return f;
    }

    if (funds->n == funds->size
        && ngx_http_modelgw_funds_grow(funds) != NGX_OK)
    {
        return NULL;
    }

    f = &funds->elts[funds->n++];

    ngx_memzero(f, sizeof(ngx_http_modelgw_fund_t));

    f->fund = *fund;
    funds->places[fund->kind][fund->index] = funds->n;

    return f;
}


void
ngx_http_modelgw_funds_remove(ngx_http_modelgw_funds_t *funds, ngx_uint_t i)
{
    ngx_modelgw_fund_t  *fund;

    fund = &funds->elts[i].fund;

    funds->places[fund->kind][fund->index] = 0;

    if (i != --funds->n) {
        funds->elts[i] = funds->elts[funds->n];

        fund = &funds->elts[i].fund;

        funds->places[fund->kind][fund->index] = i + 1;
    }
}
