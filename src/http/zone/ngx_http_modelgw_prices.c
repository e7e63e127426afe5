
/*
 * Prices of models: what a configuration has changed is logged, and the store
 * keeps what each model has cost since when.  A call has the id of its price.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


/* a model of a configuration */

typedef struct {
    ngx_http_modelgw_group_t  *group;
    ngx_http_modelgw_model_t  *model;
    ngx_uint_t                 i;        /* of the next one: its group, and its
                                            place in that */
    ngx_uint_t                 j;
} ngx_http_modelgw_prices_pos_t;


static size_t ngx_http_modelgw_prices_size(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_uint_t *n);
static u_char *ngx_http_modelgw_prices_text(u_char *p, ngx_str_t *to,
    ngx_str_t *from);
static ngx_int_t ngx_http_modelgw_prices_batch(
    ngx_modelgw_store_price_t *prices, ngx_modelgw_store_t *store,
    ngx_modelgw_ledger_t *ledger, ngx_log_t *log);
static ngx_int_t ngx_http_modelgw_prices_next(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_prices_pos_t *pos);
static void ngx_http_modelgw_prices_notice(ngx_log_t *log, ngx_str_t *group,
    ngx_str_t *model, ngx_modelgw_price_t *before, ngx_modelgw_price_t *after);


ngx_modelgw_store_price_t *
ngx_http_modelgw_prices_copy(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log)
{
    u_char                         *p;
    ngx_uint_t                      n;
    ngx_modelgw_store_price_t      *prices, *price;
    ngx_http_modelgw_prices_pos_t   pos;

    prices = ngx_alloc(ngx_http_modelgw_prices_size(mmcf, &n), log);
    if (prices == NULL) {
        return NULL;
    }

    p = (u_char *) &prices[n + 1];

    ngx_memzero(&pos, sizeof(ngx_http_modelgw_prices_pos_t));

    for (price = prices;
         ngx_http_modelgw_prices_next(mmcf, &pos) == NGX_OK;
         price++)
    {
        price->id = pos.model->price_id;
        price->rates = pos.model->price;
        price->time = (uint64_t) ngx_time() * 1000;

        p = ngx_http_modelgw_prices_text(p, &price->group, &pos.group->name);
        p = ngx_http_modelgw_prices_text(p, &price->model, &pos.model->id);
    }

    price->id = 0;

    return prices;
}


/* bytes of a copy of all prices, *n of them */

static size_t
ngx_http_modelgw_prices_size(ngx_http_modelgw_main_conf_t *mmcf, ngx_uint_t *n)
{
    size_t                         size;
    ngx_http_modelgw_prices_pos_t  pos;

    ngx_memzero(&pos, sizeof(ngx_http_modelgw_prices_pos_t));

    size = sizeof(ngx_modelgw_store_price_t);

    for (*n = 0; ngx_http_modelgw_prices_next(mmcf, &pos) == NGX_OK; (*n)++) {
        size += sizeof(ngx_modelgw_store_price_t) + pos.group->name.len
                + pos.model->id.len;
    }

    return size;
}


static u_char *
ngx_http_modelgw_prices_text(u_char *p, ngx_str_t *to, ngx_str_t *from)
{
    to->data = p;
    to->len = from->len;

    return ngx_cpymem(p, from->data, from->len);
}


ngx_int_t
ngx_http_modelgw_prices_store(ngx_modelgw_store_price_t *prices,
    ngx_modelgw_store_t *store, ngx_modelgw_ledger_t *ledger, ngx_log_t *log)
{
    if (ngx_modelgw_store_begin(store) != NGX_OK
        || ngx_http_modelgw_prices_batch(prices, store, ledger, log)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_commit(store);
}


static ngx_int_t
ngx_http_modelgw_prices_batch(ngx_modelgw_store_price_t *prices,
    ngx_modelgw_store_t *store, ngx_modelgw_ledger_t *ledger, ngx_log_t *log)
{
    ngx_int_t                   rc;
    ngx_modelgw_price_t         old;
    ngx_modelgw_store_price_t  *price;

    for (price = prices; price->id; price++) {

        rc = ngx_modelgw_store_price(store, price, &old);

        if (rc == NGX_OK) {
            continue;
        }

        if (rc != NGX_DONE
            || ngx_modelgw_store_price_action(store, price, &old,
                   ngx_modelgw_ledger_change_time(ledger, price->time))
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (log) {
            ngx_http_modelgw_prices_notice(log, &price->group, &price->model,
                                           &old, &price->rates);
        }
    }

    return NGX_OK;
}


void
ngx_http_modelgw_prices_changed(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_main_conf_t *old, ngx_log_t *log)
{
    ngx_http_modelgw_prices_pos_t  now, was;

    ngx_memzero(&now, sizeof(ngx_http_modelgw_prices_pos_t));

    while (ngx_http_modelgw_prices_next(mmcf, &now) == NGX_OK) {

        ngx_memzero(&was, sizeof(ngx_http_modelgw_prices_pos_t));

        while (ngx_http_modelgw_prices_next(old, &was) == NGX_OK) {

            if (was.model->price_id != now.model->price_id
                && was.group->name.len == now.group->name.len
                && ngx_memcmp(was.group->name.data, now.group->name.data,
                              now.group->name.len) == 0
                && was.model->id.len == now.model->id.len
                && ngx_memcmp(was.model->id.data, now.model->id.data,
                              now.model->id.len) == 0)
            {
                ngx_http_modelgw_prices_notice(log, &now.group->name,
                                               &now.model->id,
                                               &was.model->price,
                                               &now.model->price);
            }
        }
    }
}


/* The next model that has a price: NGX_OK, NGX_DONE. */

static ngx_int_t
ngx_http_modelgw_prices_next(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_prices_pos_t *pos)
{
    ngx_array_t                *models;
    ngx_http_modelgw_model_t   *model;
    ngx_http_modelgw_group_t  **group;

    group = mmcf->groups.elts;

    /* listed models and patterns of a group follow each other */

    while (pos->i < mmcf->groups.nelts * 2) {

        pos->group = group[pos->i / 2];
        models = (pos->i % 2) ? &pos->group->patterns : &pos->group->models;
        model = models->elts;

        while (pos->j < models->nelts) {
            pos->model = &model[pos->j++];

            if (pos->model->price_id) {
                return NGX_OK;
            }
        }

        pos->i++;
        pos->j = 0;
    }

    return NGX_DONE;
}


static void
ngx_http_modelgw_prices_notice(ngx_log_t *log, ngx_str_t *group,
    ngx_str_t *model, ngx_modelgw_price_t *before, ngx_modelgw_price_t *after)
{
    u_char  *last, *end;
    u_char   from[NGX_MODELGW_STORE_RATES], to[NGX_MODELGW_STORE_RATES];

    last = ngx_modelgw_store_rates(from, before);
    end = ngx_modelgw_store_rates(to, after);

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "price of model \"%V\" of group \"%V\" changed from %*s to "
                  "%*s", model, group, (size_t) (last - from), from,
                  (size_t) (end - to), to);
}
