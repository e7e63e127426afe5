
/*
 * What models cost, and have cost: a price has an id, which calls have, too.
 * The one that counts for a model is in "marks".
 *
 * A configuration's prices may reach the store late, if the writer is a worker
 * of the one before, or never, if there is a third by then.  So a call brings
 * its own price, unless it is known.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_MEGA  1000     /* pico-euro per token is nano-euro per
                                            thousand tokens */

/* the name of the mark; ?1: the group, ?2: the model */

#define NGX_MODELGW_STORE_PRICE_MARK  "'price:' || ?1 || '/' || ?2"


static ngx_int_t ngx_modelgw_store_price_last(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price, uint64_t *id, ngx_modelgw_price_t *old);
static ngx_int_t ngx_modelgw_store_price_insert(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price);
static ngx_int_t ngx_modelgw_store_price_mark(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price);
static void ngx_modelgw_store_bind_rates(ngx_modelgw_stmt_t *stmt, int i,
    ngx_modelgw_price_t *rates);


ngx_int_t
ngx_modelgw_store_price(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price, ngx_modelgw_price_t *old)
{
    uint64_t  id;

    if (ngx_modelgw_store_price_last(s, price, &id, old) != NGX_OK) {
        return NGX_ERROR;
    }

    if (id == price->id) {
        return NGX_OK;
    }

    if (ngx_modelgw_store_price_insert(s, price) != NGX_OK
        || ngx_modelgw_store_price_mark(s, price) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return id ? NGX_DONE : NGX_OK;
}


/* id 0: the model has had model */

static ngx_int_t
ngx_modelgw_store_price_last(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price, uint64_t *id, ngx_modelgw_price_t *old)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s,
            "SELECT id, input, output, cache_read, cache_write, cache_write_1h"
            " FROM marks JOIN prices ON id = value"
            " WHERE name = " NGX_MODELGW_STORE_PRICE_MARK, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, &price->group);
    ngx_modelgw_stmt_bind_str(&stmt, 2, &price->model);

    *id = 0;
    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        *id = ngx_modelgw_stmt_int(&stmt, 0);
        old->input = ngx_modelgw_stmt_int(&stmt, 1);
        old->output = ngx_modelgw_stmt_int(&stmt, 2);
        old->cache_read = ngx_modelgw_stmt_int(&stmt, 3);
        old->cache_write = ngx_modelgw_stmt_int(&stmt, 4);
        old->cache_write_1h = ngx_modelgw_stmt_int(&stmt, 5);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* a price that came with a call lacks what calls do not know */

static ngx_int_t
ngx_modelgw_store_price_insert(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price)
{
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s,
            "INSERT INTO prices VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
            " ON CONFLICT (id) DO UPDATE SET \"group\" = excluded.\"group\","
            " model = excluded.model", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, price->id);
    ngx_modelgw_stmt_bind_str(&stmt, 2, &price->group);
    ngx_modelgw_stmt_bind_str(&stmt, 3, &price->model);
    ngx_modelgw_stmt_bind_int(&stmt, 4, price->time);
    ngx_modelgw_store_bind_rates(&stmt, 5, &price->rates);

    return ngx_modelgw_store_once(s, &stmt, 1,
                                  "failed: a price was not stored");
}


static ngx_int_t
ngx_modelgw_store_price_mark(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price)
{
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s,
            "INSERT INTO marks VALUES (" NGX_MODELGW_STORE_PRICE_MARK ", ?3)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, &price->group);
    ngx_modelgw_stmt_bind_str(&stmt, 2, &price->model);
    ngx_modelgw_stmt_bind_int(&stmt, 3, price->id);

    return ngx_modelgw_store_once(s, &stmt, 1,
                                  "failed: a price was not stored");
}


ngx_int_t
ngx_modelgw_store_price_of(ngx_modelgw_store_t *s, ngx_modelgw_call_t *call)
{
    uint64_t            *known;
    ngx_str_t            model;
    ngx_modelgw_stmt_t   stmt;

    known = &s->prices[call->price_id % NGX_MODELGW_STORE_PRICES];

    if (call->price_id == *known) {
        return NGX_OK;
    }

    if (ngx_modelgw_store_ready(s,
            "INSERT INTO prices VALUES (?1, '', ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            " ON CONFLICT (id) DO UPDATE SET \"from\" = \"from\"", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    model.data = call->model;
    model.len = ngx_min(call->model_len, NGX_MODELGW_LEDGER_MODEL);

    ngx_modelgw_stmt_bind_int(&stmt, 1, call->price_id);
    ngx_modelgw_stmt_bind_str(&stmt, 2, &model);
    ngx_modelgw_stmt_bind_int(&stmt, 3, call->started);
    ngx_modelgw_store_bind_rates(&stmt, 4, &call->price);

    if (ngx_modelgw_store_once(s, &stmt, 1, "failed: a price was not stored")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    *known = call->price_id;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_price_action(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price, ngx_modelgw_price_t *old,
    uint64_t time)
{
    u_char              before[NGX_MODELGW_STORE_RATES];
    u_char              after[NGX_MODELGW_STORE_RATES];
    ngx_str_t           text;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s,
            "INSERT INTO actions VALUES (?1, ?1, 'configuration', '', 'price',"
            " ?2 || '/' || ?3, ?4, ?5)", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, time);
    ngx_modelgw_stmt_bind_str(&stmt, 2, &price->group);
    ngx_modelgw_stmt_bind_str(&stmt, 3, &price->model);

    text.data = before;
    text.len = ngx_modelgw_store_rates(before, old) - before;
    ngx_modelgw_stmt_bind_str(&stmt, 4, &text);

    text.data = after;
    text.len = ngx_modelgw_store_rates(after, &price->rates) - after;
    ngx_modelgw_stmt_bind_str(&stmt, 5, &text);

    return ngx_modelgw_store_once(s, &stmt, 1,
                                  "failed: an action was not stored");
}


u_char *
ngx_modelgw_store_rates(u_char *p, ngx_modelgw_price_t *rates)
{
    ngx_uint_t  i;

    static struct {
        const char  *name;
        size_t       offset;
    } names[] = {
        { "{\"input\":\"", offsetof(ngx_modelgw_price_t, input) },
        { "\",\"output\":\"", offsetof(ngx_modelgw_price_t, output) },
        { "\",\"cache_read\":\"", offsetof(ngx_modelgw_price_t, cache_read) },
        { "\",\"cache_write\":\"", offsetof(ngx_modelgw_price_t, cache_write) },
        { "\",\"cache_write_1h\":\"",
          offsetof(ngx_modelgw_price_t, cache_write_1h) }
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        p = ngx_cpymem(p, names[i].name, ngx_strlen(names[i].name));
        p = ngx_modelgw_amount(p, *(uint64_t *)
                                  ((u_char *) rates + names[i].offset)
                                  * NGX_MODELGW_STORE_MEGA);
    }

    return ngx_cpymem(p, "\"}", 2);
}


static void
ngx_modelgw_store_bind_rates(ngx_modelgw_stmt_t *stmt, int i,
    ngx_modelgw_price_t *rates)
{
    ngx_modelgw_stmt_bind_int(stmt, i++, rates->input);
    ngx_modelgw_stmt_bind_int(stmt, i++, rates->output);
    ngx_modelgw_stmt_bind_int(stmt, i++, rates->cache_read);
    ngx_modelgw_stmt_bind_int(stmt, i++, rates->cache_write);
    ngx_modelgw_stmt_bind_int(stmt, i, rates->cache_write_1h);
}
