
/*
 * modelgw_keys: one line for each key.
 *
 * A million keys must load in seconds and stay small.  So the words of a line
 * are in a pool that is destroyed with the block, as "map" does it, and their
 * memory is reused for the next line.  A key keeps its record, its id, and its
 * account or list of models if those differ from the previous key's or from
 * all lists of its group.
 *
 * A second modelgw_keys block is refused: several files are joined by
 * "include" in one block, so all duplicates are found.
 *
 * A line gives access to a group's models, so a file that other users can
 * write or replace is refused, as with files of secrets.
 *
 * Most models= lists are equal, so those of a group are kept once and found by
 * their text.  A group may be declared after its keys, so lists are checked at
 * the end of the http block, once for all keys that share a list; an error
 * names the first of these keys.  The tree of lists is in cf->temp_pool, the
 * lists are in the cycle's pool.
 *
 * keys_* read the lines, lists_* keep the lists.
 */


#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_KEYS_POOL  (256 * 1024)


typedef struct {
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_pool_t                       *pool;     /* the cycle's */
    ngx_str_t                         account;  /* of the previous key */
    ngx_http_modelgw_place_t          place;    /* of the line; file is in
                                                   cf->temp_pool */
} ngx_http_modelgw_keys_ctx_t;


/* the options of a line */

typedef struct {
    ngx_str_t                         account;  /* data NULL: not given */
    ngx_str_t                         models;   /* data NULL: not given */
    uint32_t                          rpm;      /* 0: not given */
    uint32_t                          tpm;      /* 0: not given */
    uint32_t                          concurrency;  /* 0: not given */
    ngx_modelgw_budget_t              budget;   /* limit 0: not given */
    time_t                            expires;  /* 0: not given */
} ngx_http_modelgw_keys_given_t;


typedef struct ngx_http_modelgw_list_s  ngx_http_modelgw_list_t;

struct ngx_http_modelgw_list_s {
    ngx_str_node_t                    sn;    /* "GROUP a,b" */
    ngx_http_modelgw_group_t         *group;
    ngx_array_t                      *models;  /* of ngx_str_t */
    ngx_http_modelgw_place_t          place;
    ngx_http_modelgw_list_t          *next;
};


struct ngx_http_modelgw_lists_s {
    ngx_rbtree_t                      rbtree;
    ngx_rbtree_node_t                 sentinel;
    ngx_http_modelgw_list_t          *first;
    ngx_pool_t                       *pool;  /* the cycle's */
};


static char *ngx_http_modelgw_keys_line(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static void ngx_http_modelgw_keys_reuse(ngx_conf_t *cf);
static ngx_int_t ngx_http_modelgw_keys_place(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_keys_replaceable(ngx_file_info_t *file,
    u_char *dir, ngx_file_info_t *info);
static ngx_modelgw_key_t *ngx_http_modelgw_keys_add(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx);
static void ngx_http_modelgw_keys_duplicate(ngx_conf_t *cf, ngx_str_t *id,
    ngx_modelgw_key_t *twin);
static char *ngx_http_modelgw_keys_options(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key);
static ngx_int_t ngx_http_modelgw_keys_account(
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static ngx_int_t ngx_http_modelgw_keys_list(ngx_conf_t *cf,
    ngx_http_modelgw_keys_ctx_t *ctx, ngx_modelgw_key_t *key,
    ngx_str_t *value);
static ngx_int_t ngx_http_modelgw_keys_text(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_lists_init(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_array_t *ngx_http_modelgw_lists_get(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_group_t *group,
    ngx_str_t *value, ngx_http_modelgw_place_t *place);
static ngx_http_modelgw_list_t *ngx_http_modelgw_lists_add(ngx_pool_t *temp,
    ngx_http_modelgw_lists_t *lists, ngx_str_t *text, uint32_t hash);
static ngx_int_t ngx_http_modelgw_lists_check_one(ngx_conf_t *cf,
    ngx_http_modelgw_list_t *list);


#define ngx_http_modelgw_keys_field(name)                                     \
    offsetof(ngx_http_modelgw_keys_given_t, name)

static ngx_http_modelgw_option_t  ngx_http_modelgw_keys_table[] = {
    { ngx_string("account="), ngx_http_modelgw_option_id,
      ngx_http_modelgw_keys_field(account), NGX_HTTP_MODELGW_ID_TAKES, NULL },
    { ngx_string("models="), ngx_http_modelgw_keys_text,
      ngx_http_modelgw_keys_field(models), NULL, NULL },
    { ngx_string("rpm="), ngx_http_modelgw_option_limit,
      ngx_http_modelgw_keys_field(rpm), NGX_HTTP_MODELGW_COUNT_TAKES, NULL },
    { ngx_string("tpm="), ngx_http_modelgw_option_limit,
      ngx_http_modelgw_keys_field(tpm), NGX_HTTP_MODELGW_COUNT_TAKES, NULL },
    { ngx_string("concurrency="), ngx_http_modelgw_option_limit,
      ngx_http_modelgw_keys_field(concurrency), NGX_HTTP_MODELGW_COUNT_TAKES,
      NULL },
    { ngx_string("budget="), ngx_http_modelgw_option_budget,
      ngx_http_modelgw_keys_field(budget), NGX_HTTP_MODELGW_BUDGET_TAKES,
      NULL },
    { ngx_string("expires="), ngx_http_modelgw_keys_day,
      ngx_http_modelgw_keys_field(expires), NGX_HTTP_MODELGW_DAY_TAKES, NULL },
    { ngx_null_string, NULL, 0, NULL, NULL }
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


/*
 * Frees the words of the line, and all that was allocated after them, if they
 * are in the pool's current block.  The newest entry of the list of large
 * allocations must not be freed: if it is after the words, nothing is.
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


/*
 * The file's name is in the block's pool, and a place must live until the end
 * of the http block.  A file is checked at its first line.
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

    return ngx_http_modelgw_keys_file(cf, "keys", ctx->place.file);
}


ngx_int_t
ngx_http_modelgw_keys_file(ngx_conf_t *cf, const char *what, u_char *name)
{
    size_t            len;
    u_char           *dir;
    ngx_file_info_t   info, *file;

    file = &cf->conf_file->file.info;

    if (ngx_file_access(file) & S_IWOTH) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s file \"%s\" can be written by others: "
                           "chmod o-w", what, name);
        return NGX_ERROR;
    }

    /* nginx keeps full names of configuration files */

    for (len = ngx_strlen(name); len && name[len - 1] != '/'; len--) {
        /* void */
    }

    dir = ngx_pnalloc(cf->temp_pool, len + 1);
    if (dir == NULL) {
        return NGX_ERROR;
    }

    ngx_cpystrn(dir, name, len + 1);

    if (ngx_file_info(dir, &info) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_file_info_n " \"%s\" failed", dir);
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_keys_replaceable(file, dir, &info)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s file \"%s\" is in a directory that others "
                           "can write: chmod o-w \"%s\"", what, name, dir);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * In a directory with the sticky bit, such as /tmp, others can add files, but
 * cannot replace those of root or of the user that runs nginx.  On a read-only
 * file system modes do not matter: Kubernetes mounts its volumes read-only
 * with mode 0777.
 */

static ngx_uint_t
ngx_http_modelgw_keys_replaceable(ngx_file_info_t *file, u_char *dir,
    ngx_file_info_t *info)
{
    if (!(info->st_mode & S_IWOTH)) {
        return 0;
    }

    if ((info->st_mode & S_ISVTX)
        && (file->st_uid == 0 || file->st_uid == geteuid()))
    {
        return 0;
    }

    return access((char *) dir, W_OK) == 0 || ngx_errno != EROFS;
}


/* Adds the key of the line, with its id, digest and group. */

static ngx_modelgw_key_t *
ngx_http_modelgw_keys_add(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx)
{
    u_char              digest[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t          *value, id;
    ngx_modelgw_key_t  *key, *twin;

    value = cf->args->elts;

    if (!ngx_http_modelgw_conf_id(&value[0])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid key id \"%V\": it is 1 to 64 letters, "
                           "digits and \"._@:-\"", &value[0]);
        return NULL;
    }

    if (ngx_http_modelgw_keys_digest(cf, "key", digest) != NGX_OK) {
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


ngx_int_t
ngx_http_modelgw_keys_digest(ngx_conf_t *cf, const char *what, u_char *digest)
{
    ngx_str_t  *id, *text, hex;

    id = cf->args->elts;
    text = &id[1];

    hex.data = text->data + (sizeof("sha256:") - 1);
    hex.len = text->len - (sizeof("sha256:") - 1);

    if (ngx_strncmp(text->data, "sha256:", sizeof("sha256:") - 1) == 0
        && ngx_modelgw_key_hex(&hex, digest) == NGX_OK)
    {
        return NGX_OK;
    }

    /* the wrong word may be the key itself, so it is not logged */

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid hash of %s \"%V\": it is \"sha256:\" and 64 "
                       "hex digits, as of: printf %%s KEY | sha256sum", what,
                       id);

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
                       "keys \"%V\" and \"%V\" have the same hash",
                       &twin->id, id);
}


static char *
ngx_http_modelgw_keys_options(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key)
{
    ngx_http_modelgw_options_t     options;
    ngx_http_modelgw_keys_given_t  given;

    ngx_memzero(&given, sizeof(ngx_http_modelgw_keys_given_t));
    ngx_memzero(&options, sizeof(ngx_http_modelgw_options_t));

    options.table = ngx_http_modelgw_keys_table;
    options.object = &given;
    options.what = "key";
    options.name = &key->id;
    options.after = "sha256:";

    if (ngx_http_modelgw_option_parse(cf, 3, &options) != NGX_OK
        || ngx_http_modelgw_keys_account(ctx, key, &given.account) != NGX_OK
        || ngx_http_modelgw_keys_list(cf, ctx, key, &given.models) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    key->rpm = given.rpm;
    key->tpm = given.tpm;
    key->concurrency = given.concurrency;
    key->budget = given.budget.limit;
    key->window = given.budget.window;
    key->expires = given.expires;

    if (key->expires && key->expires <= ngx_time()) {
        ngx_http_modelgw_keys_expired(cf, "key", &key->id, key->expires);
    }

    if (key->budget && ctx->mmcf->budget_place.file == NULL) {
        ctx->mmcf->budget_place = ctx->place;
        ctx->mmcf->budget_name = key->id;
    }

    return NGX_CONF_OK;
}


void
ngx_http_modelgw_keys_budget(ngx_modelgw_key_t *key,
    ngx_modelgw_budget_t *budget)
{
    ngx_http_modelgw_group_t  *group;

    group = key->group;

    if (key->budget == 0) {
        *budget = group->budget;
        return;
    }

    budget->limit = key->budget;
    budget->window = key->window;
}


ngx_uint_t
ngx_http_modelgw_keys_limited(ngx_modelgw_key_t *key)
{
    ngx_http_modelgw_group_t  *group;

    group = key->group;

    return key->rpm || key->tpm || key->concurrency || key->budget
           || group->rpm || group->tpm || group->concurrency
           || group->budget.limit;
}


/* Keys of one account are usually adjacent, they share its name. */

static ngx_int_t
ngx_http_modelgw_keys_account(ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key, ngx_str_t *value)
{
    if (value->data == NULL) {
        return NGX_OK;
    }

    if (ctx->account.len != value->len
        || ngx_memcmp(ctx->account.data, value->data, value->len) != 0)
    {
        ctx->account.data = ngx_pstrdup(ctx->pool, value);
        if (ctx->account.data == NULL) {
            return NGX_ERROR;
        }

        ctx->account.len = value->len;
    }

    key->account = ctx->account;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_keys_list(ngx_conf_t *cf, ngx_http_modelgw_keys_ctx_t *ctx,
    ngx_modelgw_key_t *key, ngx_str_t *value)
{
    if (value->data == NULL) {
        return NGX_OK;
    }

    if (value->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "option \"models=\" of key \"%V\" is empty: leave "
                           "it out to allow all models of the group",
                           &key->id);
        return NGX_ERROR;
    }

    key->models = ngx_http_modelgw_lists_get(cf, ctx->mmcf, key->group, value,
                                             &ctx->place);

    return key->models ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_modelgw_keys_text(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    *(ngx_str_t *) field = *value;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_keys_day(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    time_t *day = field;

    if (ngx_modelgw_key_date(value, day) != NGX_OK) {
        return NGX_DECLINED;
    }

    /* 1970-01-01; 0 means that the key never expires */

    if (*day == 0) {
        *day = 1;
    }

    return NGX_OK;
}


void
ngx_http_modelgw_keys_expired(ngx_conf_t *cf, const char *what, ngx_str_t *id,
    time_t expires)
{
    ngx_tm_t  tm;

    ngx_gmtime(expires, &tm);

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "%s \"%V\" has expired on %4d-%02d-%02d", what, id,
                       tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday);
}


static ngx_int_t
ngx_http_modelgw_lists_init(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_http_modelgw_lists_t  *lists;

    lists = ngx_palloc(cf->temp_pool, sizeof(ngx_http_modelgw_lists_t));
    if (lists == NULL) {
        return NGX_ERROR;
    }

    ngx_rbtree_init(&lists->rbtree, &lists->sentinel,
                    ngx_str_rbtree_insert_value);

    lists->first = NULL;
    lists->pool = cf->pool;

    mmcf->lists = lists;

    return NGX_OK;
}


static ngx_array_t *
ngx_http_modelgw_lists_get(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_group_t *group, ngx_str_t *value,
    ngx_http_modelgw_place_t *place)
{
    uint32_t                   hash;
    ngx_str_t                  text;
    ngx_http_modelgw_list_t   *list;

    text.data = ngx_pnalloc(cf->pool, group->name.len + 1 + value->len);
    if (text.data == NULL) {
        return NULL;
    }

    text.len = ngx_sprintf(text.data, "%V %V", &group->name, value) - text.data;

    hash = ngx_murmur_hash2(text.data, text.len);

    list = (ngx_http_modelgw_list_t *)
               ngx_str_rbtree_lookup(&mmcf->lists->rbtree, &text, hash);

    if (list) {
        return list->models;
    }

    list = ngx_http_modelgw_lists_add(cf->temp_pool, mmcf->lists, &text, hash);
    if (list == NULL) {
        return NULL;
    }

    list->group = group;
    list->place = *place;
    list->models = ngx_http_modelgw_keys_models(mmcf->lists->pool, value);

    return list->models;
}


static ngx_http_modelgw_list_t *
ngx_http_modelgw_lists_add(ngx_pool_t *temp, ngx_http_modelgw_lists_t *lists,
    ngx_str_t *text, uint32_t hash)
{
    ngx_http_modelgw_list_t  *list;

    list = ngx_palloc(temp, sizeof(ngx_http_modelgw_list_t));
    if (list == NULL) {
        return NULL;
    }

    list->sn.node.key = hash;
    list->sn.str.len = text->len;
    list->sn.str.data = ngx_pstrdup(temp, text);
    if (list->sn.str.data == NULL) {
        return NULL;
    }

    ngx_rbtree_insert(&lists->rbtree, &list->sn.node);

    list->next = lists->first;
    lists->first = list;

    return list;
}


ngx_array_t *
ngx_http_modelgw_keys_models(ngx_pool_t *pool, ngx_str_t *text)
{
    u_char       *p, *last;
    ngx_str_t    *name;
    ngx_uint_t    n;
    ngx_array_t  *names;

    n = 1;

    for (p = text->data; p < text->data + text->len; p++) {
        n += (*p == ',');
    }

    names = ngx_array_create(pool, n, sizeof(ngx_str_t));
    if (names == NULL) {
        return NULL;
    }

    p = ngx_pstrdup(pool, text);
    if (p == NULL) {
        return NULL;
    }

    last = p + text->len;

    while (n--) {
        name = ngx_array_push(names);
        if (name == NULL) {
            return NULL;
        }

        name->data = p;

        while (p < last && *p != ',') {
            p++;
        }

        name->len = p++ - name->data;
    }

    return names;
}


ngx_int_t
ngx_http_modelgw_keys_check(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_http_modelgw_list_t  *list;

    if (mmcf->lists == NULL) {
        return NGX_OK;
    }

    for (list = mmcf->lists->first; list; list = list->next) {
        if (ngx_http_modelgw_lists_check_one(cf, list) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    mmcf->lists = NULL;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_lists_check_one(ngx_conf_t *cf,
    ngx_http_modelgw_list_t *list)
{
    ngx_int_t                  rc;
    ngx_str_t                 *name, upstream_id;
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    name = list->models->elts;

    for (i = 0; i < list->models->nelts; i++) {

        rc = ngx_http_modelgw_model_find(cf->temp_pool, list->group, &name[i],
                                         &model, &upstream_id);
        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" in \"models=\" is not one of group "
                          "\"%V\", in %s:%ui", &name[i], &list->group->name,
                          list->place.file, list->place.line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
