
/*
 * modelgw_keys: one line a key.
 *
 * A million keys must load in seconds and stay small.  So the words of the
 * lines go to a pool that is thrown away with the block, as "map" does it, and
 * the words of a line that is done are given back to that pool at once: the
 * parser's garbage does not grow with the file.  What is kept of a key is its
 * record, its id, and an account or a list of models only where they differ
 * from those of the key before, or of any key of the group.
 *
 * A second modelgw_keys block is refused: lines from many files come together
 * by "include" inside of the one, and then all duplicates are seen.
 *
 * A line gives access to a group's models, so a file that others can write, or
 * replace in its directory, is refused as a secret's is.
 */


#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_KEYS_POOL  (256 * 1024)
#define NGX_HTTP_MODELGW_LIMIT_MAX  1000000000


typedef struct {
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_pool_t                       *pool;     /* for what is kept */
    ngx_str_t                         account;  /* of the key before */
    ngx_http_modelgw_place_t          place;    /* of the line; the file's name
                                                   is in cf->temp_pool */
} ngx_http_modelgw_keys_ctx_t;


typedef struct {
    ngx_str_t     name;
    char       *(*set)(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
                       ngx_modelgw_key_t *key, ngx_str_t *value);
} ngx_http_modelgw_key_option_t;


static char *ngx_http_modelgw_keys_line(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_modelgw_key_t *ngx_http_modelgw_keys_add(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_keys_digest(ngx_conf_t *cf, ngx_str_t *id,
    ngx_str_t *text, u_char *digest);
static void ngx_http_modelgw_keys_duplicate(ngx_conf_t *cf, ngx_str_t *id,
    ngx_modelgw_key_t *twin);
static char *ngx_http_modelgw_keys_options(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key);
static char *ngx_http_modelgw_keys_account(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static char *ngx_http_modelgw_keys_models(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static char *ngx_http_modelgw_keys_rpm(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static char *ngx_http_modelgw_keys_tpm(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static char *ngx_http_modelgw_keys_concurrency(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static char *ngx_http_modelgw_keys_expires(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static ngx_int_t ngx_http_modelgw_keys_place(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx);
static void ngx_http_modelgw_keys_reuse(ngx_conf_t *cf);


static ngx_http_modelgw_key_option_t  ngx_http_modelgw_key_options[] = {
    { ngx_string("account="), ngx_http_modelgw_keys_account },
    { ngx_string("models="), ngx_http_modelgw_keys_models },
    { ngx_string("rpm="), ngx_http_modelgw_keys_rpm },
    { ngx_string("tpm="), ngx_http_modelgw_keys_tpm },
    { ngx_string("concurrency="), ngx_http_modelgw_keys_concurrency },
    { ngx_string("expires="), ngx_http_modelgw_keys_expires },
    { ngx_null_string, NULL }
};


char *
ngx_http_modelgw_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    char                         *rv;
    ngx_conf_t                    save;
    ngx_pool_t                   *temp;
    ngx_http_modelgw_keys_ctx_t   ctx;

    if (mmcf->keys) {
        return "is duplicate";
    }

    temp = ngx_create_pool(NGX_HTTP_MODELGW_KEYS_POOL, cf->log);
    if (temp == NULL) {
        return NGX_CONF_ERROR;
    }

    mmcf->keys = ngx_modelgw_keys_create(cf->pool, temp);
    if (mmcf->keys == NULL) {
        ngx_destroy_pool(temp);
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ctx, sizeof(ngx_http_modelgw_keys_ctx_t));

    ctx.mmcf = mmcf;
    ctx.pool = cf->pool;

    if (ngx_http_modelgw_lists_init(cf, mmcf) != NGX_OK) {
        ngx_destroy_pool(temp);
        return NGX_CONF_ERROR;
    }

    save = *cf;
    cf->pool = temp;
    cf->handler = ngx_http_modelgw_keys_line;
    cf->handler_conf = (char *) &ctx;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv == NGX_CONF_OK && ngx_modelgw_keys_ready(mmcf->keys) != NGX_OK) {
        rv = NGX_CONF_ERROR;
    }

    ngx_destroy_pool(temp);

    return rv;
}


static char *
ngx_http_modelgw_keys_line(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_keys_ctx_t *ctx = conf;

    char               *rv;
    ngx_str_t          *value;
    ngx_modelgw_key_t  *key;

    value = cf->args->elts;

    if (ngx_http_modelgw_keys_place(cf, ctx) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2 && ngx_strcmp(value[0].data, "include") == 0) {
        return ngx_conf_include(cf, cmd, conf);
    }

    if (cf->args->nelts < 3) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "key \"%V\" needs an id, a hash and a group",
                           &value[0]);
        return NGX_CONF_ERROR;
    }

    key = ngx_http_modelgw_keys_add(cf, ctx);
    if (key == NULL) {
        return NGX_CONF_ERROR;
    }

    rv = ngx_http_modelgw_keys_options(cf, ctx, key);

    ngx_http_modelgw_keys_reuse(cf);

    return rv;
}


/* The record of the key in the line, with id, digest, group and account. */

static ngx_modelgw_key_t *
ngx_http_modelgw_keys_add(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx)
{
    u_char              digest[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t          *value, id;
    ngx_modelgw_key_t  *key, *twin;

    value = cf->args->elts;

    if (!ngx_http_modelgw_conf_word(&value[0], "._@:-", 64)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid key id \"%V\": it is 1 to 64 letters, "
                           "digits and \"._@:-\"", &value[0]);
        return NULL;
    }

    if (ngx_http_modelgw_keys_digest(cf, &value[0], &value[1], digest)
        != NGX_OK)
    {
        return NULL;
    }

    if (!ngx_http_modelgw_conf_word(&value[2], "_-.", 64)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid group name \"%V\" of key \"%V\"",
                           &value[2], &value[0]);
        return NULL;
    }

    id.len = value[0].len;
    id.data = ngx_pstrdup(ctx->pool, &value[0]);
    if (id.data == NULL) {
        return NULL;
    }

    key = ngx_modelgw_keys_add(ctx->mmcf->keys, digest, &id, &twin);

    if (key == NULL) {
        ngx_http_modelgw_keys_duplicate(cf, &id, twin);
        return NULL;
    }

    key->account = id;

    key->group = ngx_http_modelgw_group_named(ctx->mmcf, &value[2],
                                              &ctx->place);
    if (key->group == NULL) {
        return NULL;
    }

    return key;
}


static ngx_int_t
ngx_http_modelgw_keys_digest(ngx_conf_t *cf, ngx_str_t *id, ngx_str_t *text,
    u_char *digest)
{
    ngx_str_t  hex;

    hex.data = text->data + (sizeof("sha256:") - 1);
    hex.len = text->len - (sizeof("sha256:") - 1);

    if (ngx_strncmp(text->data, "sha256:", sizeof("sha256:") - 1) == 0
        && ngx_modelgw_key_hex(&hex, digest) == NGX_OK)
    {
        return NGX_OK;
    }

    /* what stands in its place may be the key itself: it is not repeated */

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid hash of key \"%V\": it is \"sha256:\" and 64 "
                       "hex digits, as of: printf %%s KEY | sha256sum", id);

    return NGX_DECLINED;
}


static void
ngx_http_modelgw_keys_duplicate(ngx_conf_t *cf, ngx_str_t *id,
    ngx_modelgw_key_t *twin)
{
    if (twin == NULL) {
        return;
    }

    if (twin->id.len == id->len
        && ngx_memcmp(twin->id.data, id->data, id->len) == 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "duplicate key id \"%V\"", id);
        return;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "duplicate hash: keys \"%V\" and \"%V\" have the same",
                       id, &twin->id);
}


static char *
ngx_http_modelgw_keys_options(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key)
{
    char                           *rv;
    uint32_t                        bit, given;
    ngx_str_t                      *value, text;
    ngx_uint_t                      i, missed;
    ngx_http_modelgw_key_option_t  *option;

    given = 0;
    value = cf->args->elts;

    for (i = 3; i < cf->args->nelts; i++) {

        option = ngx_http_modelgw_key_options;

        while (option->name.len
               && ngx_strncmp(option->name.data, value[i].data,
                              option->name.len)
                  != 0)
        {
            option++;
        }

        if (option->name.len == 0) {

            /* the next line's id */

            missed = i + 1 < cf->args->nelts
                     && ngx_strncmp(value[i + 1].data, "sha256:", 7) == 0;

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "unknown option \"%V\" of key \"%V\"%s",
                               &value[i], &key->id,
                               missed ? ": a \";\" is missing before it" : "");
            return NGX_CONF_ERROR;
        }

        bit = 1 << (option - ngx_http_modelgw_key_options);

        text.data = value[i].data + option->name.len;
        text.len = value[i].len - option->name.len;

        rv = (given & bit) ? "is duplicate" : option->set(cf, ctx, key, &text);

        if (rv == NGX_CONF_ERROR) {
            return NGX_CONF_ERROR;
        }

        if (rv != NGX_CONF_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "option \"%V\" of key \"%V\" %s",
                               &value[i], &key->id, rv);
            return NGX_CONF_ERROR;
        }

        given |= bit;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_keys_account(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key, ngx_str_t *value)
{
    if (!ngx_http_modelgw_conf_word(value, "._@:-", 64)) {
        return "is invalid";
    }

    /* the keys of an account mostly stand together */

    if (ctx->account.len != value->len
        || ngx_memcmp(ctx->account.data, value->data, value->len) != 0)
    {
        ctx->account.data = ngx_pstrdup(ctx->pool, value);
        if (ctx->account.data == NULL) {
            return NGX_CONF_ERROR;
        }

        ctx->account.len = value->len;
    }

    key->account = ctx->account;

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_keys_models(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key, ngx_str_t *value)
{
    if (value->len == 0) {
        return "is empty: leave it out to allow all models of the group";
    }

    key->models = ngx_http_modelgw_lists_get(cf, ctx->mmcf, key->group, value,
                                             &ctx->place);

    return key->models ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_modelgw_keys_rpm(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key, ngx_str_t *value)
{
    return ngx_http_modelgw_keys_limit(value, &key->rpm);
}


static char *
ngx_http_modelgw_keys_tpm(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key, ngx_str_t *value)
{
    return ngx_http_modelgw_keys_limit(value, &key->tpm);
}


static char *
ngx_http_modelgw_keys_concurrency(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key, ngx_str_t *value)
{
    return ngx_http_modelgw_keys_limit(value, &key->concurrency);
}


char *
ngx_http_modelgw_keys_limit(ngx_str_t *value, uint32_t *limit)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data, value->len);

    if (n <= 0 || n > NGX_HTTP_MODELGW_LIMIT_MAX) {
        return "is invalid: it is a number from 1 to 1000000000";
    }

    *limit = (uint32_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_keys_expires(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key, ngx_str_t *value)
{
    if (ngx_modelgw_key_date(value, &key->expires) != NGX_OK) {
        return "is invalid: it is a day as YYYY-MM-DD";
    }

    if (key->expires <= ngx_time()) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "key \"%V\" has expired on %V", &key->id, value);
    }

    return NGX_CONF_OK;
}


/*
 * The file's name is in the pool of the block, but a place must live until all
 * is read.  The first line of a file is where the file is checked.
 */

static ngx_int_t
ngx_http_modelgw_keys_place(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx)
{
    size_t   len;
    u_char  *name;

    ctx->place.line = cf->conf_file->line;

    name = cf->conf_file->file.name.data;

    if (ctx->place.file && ngx_strcmp(ctx->place.file, name) == 0) {
        return NGX_OK;
    }

    len = ngx_strlen(name) + 1;

    ctx->place.file = ngx_pnalloc(cf->temp_pool, len);
    if (ctx->place.file == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(ctx->place.file, name, len);

    return ngx_http_modelgw_conf_file(cf, ctx->place.file);
}


/*
 * Gives the words of the line back to the pool, with all that was allocated
 * after them, if they are in the pool's current block.  What must not be given
 * back is the newest entry of the list of large allocations: if it lies behind
 * the words, they are left where they are.
 */

static void
ngx_http_modelgw_keys_reuse(ngx_conf_t *cf)
{
    u_char      *first, *large;
    ngx_str_t   *value;
    ngx_pool_t  *p;

    value = cf->args->elts;
    first = value[0].data;
    large = (u_char *) cf->pool->large;

    p = cf->pool->current;

    if (first < (u_char *) p || first >= p->d.last) {
        return;
    }

    if (large < first || large >= p->d.last) {
        p->d.last = first;
    }
}
