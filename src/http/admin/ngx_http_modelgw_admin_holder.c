
/*
 * What the holder of a service key gets from the admin interface: its own
 * account, and no notes of operators.
 *
 * The job runs in a thread, maybe longer than the request, so it has a copy of
 * the key.  Its filters are set to the account, whatever was asked.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_key.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


static ngx_int_t ngx_http_modelgw_holder_copy(ngx_pool_t *pool,
    ngx_modelgw_key_t *key, ngx_modelgw_key_t **copy);
static ngx_uint_t ngx_http_modelgw_holder_is(ngx_str_t *one, ngx_str_t *other);


ngx_int_t
ngx_http_modelgw_admin_holder(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job)
{
    ngx_modelgw_key_t                *key;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    key = client->key;

    if (key == NULL) {
        return NGX_OK;
    }

    /* as if the ledger did not have it */

    if ((job->flags & NGX_HTTP_MODELGW_ADMIN_OWN)
        && !ngx_http_modelgw_holder_is(id, &key->account))
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "No such account");
    }

    return ngx_http_modelgw_holder_copy(job->pool, key, &job->holder);
}


static ngx_int_t
ngx_http_modelgw_holder_copy(ngx_pool_t *pool, ngx_modelgw_key_t *key,
    ngx_modelgw_key_t **copy)
{
    ngx_str_t          *from, *to;
    ngx_uint_t          i;
    ngx_modelgw_key_t  *k;

    k = ngx_palloc(pool, sizeof(ngx_modelgw_key_t));
    if (k == NULL) {
        return NGX_ERROR;
    }

    *k = *key;

    k->id.data = ngx_pstrdup(pool, &key->id);
    k->account.data = ngx_pstrdup(pool, &key->account);

    if (k->id.data == NULL || k->account.data == NULL) {
        return NGX_ERROR;
    }

    if (key->models) {
        k->models = ngx_array_create(pool, key->models->nelts,
                                     sizeof(ngx_str_t));
        if (k->models == NULL) {
            return NGX_ERROR;
        }

        from = key->models->elts;

        for (i = 0; i < key->models->nelts; i++) {
            to = ngx_array_push(k->models);
            if (to == NULL) {
                return NGX_ERROR;
            }

            to->len = from[i].len;
            to->data = ngx_pstrdup(pool, &from[i]);
            if (to->data == NULL) {
                return NGX_ERROR;
            }
        }
    }

    *copy = k;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_holder_query(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job)
{
    ngx_str_t  *account;

    if (job->holder == NULL) {
        return NGX_OK;
    }

    account = &job->holder->account;

    if ((job->filter.account.len
         && !ngx_http_modelgw_holder_is(&job->filter.account, account))
        || (job->keys.account.len
            && !ngx_http_modelgw_holder_is(&job->keys.account, account)))
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                      "This key is of account \"%V\"",
                                      account);
    }

    /* notes are searched, too */

    if (job->keys.q.len) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                      "\"q\" is for operators");
    }

    job->filter.account = *account;
    job->keys.account = *account;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_holder_change(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id)
{
    ngx_str_t                         self;
    ngx_modelgw_key_t                *key;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    key = client->key;

    if (key == NULL || id->len == 0) {
        return NGX_OK;
    }

    ngx_str_set(&self, "self");

    if (!ngx_http_modelgw_holder_is(id, &self)) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                      "A service key can revoke \"self\" only");
    }

    if (!key->managed) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_CONFLICT,
                                      "CONFIGURED_KEY",
                                      "Key \"%V\" is in the configuration: "
                                      "an operator can remove it there",
                                      &key->id);
    }

    *id = key->id;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_modelgw_holder_is(ngx_str_t *one, ngx_str_t *other)
{
    return one->len == other->len
           && ngx_memcmp(one->data, other->data, one->len) == 0;
}
