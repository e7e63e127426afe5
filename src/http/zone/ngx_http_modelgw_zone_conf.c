
/*
 * The directives of credit, and what is checked of them when all is read.
 *
 * That the zone has room is checked here and not as it is filled: a key that
 * finds no place then would be refused while nginx runs.
 */


#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_ZONE_MIN      (64 * 1024)
#define NGX_HTTP_MODELGW_ZONE_DEFAULT  (32 * 1024 * 1024)

#define NGX_HTTP_MODELGW_ZONE_MAX      ((size_t) 1 << 40)

#define NGX_HTTP_MODELGW_FLUSH_MAX     1000
#define NGX_HTTP_MODELGW_KEEP_MIN      (24 * 60 * 60)


static char *ngx_http_modelgw_zone_option(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *value);
static ngx_int_t ngx_http_modelgw_zone_add(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_zone_check_none(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_zone_check_models(ngx_conf_t *cf,
    ngx_array_t *models);
static ngx_int_t ngx_http_modelgw_zone_check_room(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_uint_t ngx_http_modelgw_zone_fits(size_t size, ngx_uint_t keys,
    ngx_uint_t accounts);
static ngx_uint_t ngx_http_modelgw_zone_count_keys(ngx_modelgw_keys_t *keys);
static ngx_int_t ngx_http_modelgw_zone_count_accounts(
    ngx_modelgw_keys_t *keys, ngx_modelgw_ledger_t *ledger, ngx_log_t *log,
    ngx_uint_t *count);


char *
ngx_http_modelgw_set_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    char       *rv;
    ngx_str_t  *value;

    rv = ngx_conf_set_size_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (mmcf->zone_size < NGX_HTTP_MODELGW_ZONE_MIN) {
        value = cf->args->elts;
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone too small: \"%V\", it needs at least %dk",
                           &value[1], NGX_HTTP_MODELGW_ZONE_MIN / 1024);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_modelgw_set_ledger(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (mmcf->ledger_path.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "has an empty path";
    }

    mmcf->ledger_path = value[1];

    if (ngx_conf_full_name(cf->cycle, &mmcf->ledger_path, 0) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {

        rv = ngx_http_modelgw_zone_option(mmcf, &value[i]);

        if (rv != NGX_CONF_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "option \"%V\" of \"modelgw_ledger\" %s",
                               &value[i], rv);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_zone_option(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *value)
{
    ngx_str_t  text;
    ngx_int_t  time;

    if (ngx_strncmp(value->data, "flush=", 6) == 0) {

        if (mmcf->ledger_flush != NGX_CONF_UNSET_MSEC) {
            return "is duplicate";
        }

        text.data = value->data + 6;
        text.len = value->len - 6;

        time = ngx_parse_time(&text, 0);

        if (time < 1 || time > NGX_HTTP_MODELGW_FLUSH_MAX) {
            return "is invalid: it is a time from 1ms to 1s";
        }

        mmcf->ledger_flush = (ngx_msec_t) time;

        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value->data, "keep=", 5) == 0) {

        if (mmcf->ledger_keep != NGX_CONF_UNSET) {
            return "is duplicate";
        }

        text.data = value->data + 5;
        text.len = value->len - 5;

        time = ngx_parse_time(&text, 1);

        if (time < NGX_HTTP_MODELGW_KEEP_MIN) {
            return "is invalid: it is a time of at least 1d";
        }

        mmcf->ledger_keep = time;

        return NGX_CONF_OK;
    }

    return "is unknown";
}


char *
ngx_http_modelgw_set_founding(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_str_t  *value;

    if (mmcf->founding_place.file) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_modelgw_amount_parse(&value[1], &mmcf->founding) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid founding credit \"%V\": it is an amount of "
                           "euro as \"10\" or \"0.50\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    mmcf->founding_place.file = cf->conf_file->file.name.data;
    mmcf->founding_place.line = cf->conf_file->line;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_modelgw_zone_check(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **group;

    if (mmcf->ledger_path.len == 0) {

        if (ngx_http_modelgw_zone_check_none(cf, mmcf) != NGX_OK) {
            return NGX_ERROR;
        }

        if (mmcf->keys == NULL) {
            return NGX_OK;
        }

    } else {
        group = mmcf->groups.elts;

        for (i = 0; i < mmcf->groups.nelts; i++) {

            if (ngx_http_modelgw_zone_check_models(cf, &group[i]->models)
                != NGX_OK
                || ngx_http_modelgw_zone_check_models(cf, &group[i]->patterns)
                   != NGX_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    ngx_conf_init_size_value(mmcf->zone_size, NGX_HTTP_MODELGW_ZONE_DEFAULT);

    if (ngx_http_modelgw_zone_check_room(cf, mmcf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_zone_add(cf, mmcf);
}


static ngx_int_t
ngx_http_modelgw_zone_add(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_str_t  name = ngx_string("modelgw");

    mmcf->zone = ngx_shared_memory_add(cf, &name, mmcf->zone_size,
                                       &ngx_http_modelgw_module);
    if (mmcf->zone == NULL) {
        return NGX_ERROR;
    }

    mmcf->zone->init = ngx_http_modelgw_zone_init;
    mmcf->zone->data = mmcf;

    mmcf->cycle = cf->cycle;
    mmcf->ledger_lock = NGX_INVALID_FILE;
    mmcf->ledger_file = NGX_INVALID_FILE;
    mmcf->worker = NGX_MODELGW_LEDGER_NONE;

    return NGX_OK;
}


/* What stands without a ledger, and did not go away with it. */

static ngx_int_t
ngx_http_modelgw_zone_check_none(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_shm_zone_t                *zone;
    ngx_http_modelgw_main_conf_t  *old;

    if (mmcf->founding_place.file) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_founding_credit\" but no \"modelgw_ledger\" "
                      "in http, in %s:%ui", mmcf->founding_place.file,
                      mmcf->founding_place.line);
        return NGX_ERROR;
    }

    zone = ngx_http_modelgw_zone_known();
    old = zone ? zone->data : NULL;

    if (old && old->ledger_path.len) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_ledger %V\" cannot be removed by a reload: "
                      "stop nginx, then start it", &old->ledger_path);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* What is charged needs a price, and a bound for what is set aside. */

static ngx_int_t
ngx_http_modelgw_zone_check_models(ngx_conf_t *cf, ngx_array_t *models)
{
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    model = models->elts;

    for (i = 0; i < models->nelts; i++) {

        if (model[i].free) {
            continue;
        }

        if (!model[i].priced) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" has no prices: with a "
                          "\"modelgw_ledger\" give input= and output=, or "
                          "free, in %s:%ui", &model[i].id,
                          model[i].place.file, model[i].place.line);
            return NGX_ERROR;
        }

        if (model[i].max_output == 0 && model[i].context == 0) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" has no bound of its output: with a "
                          "\"modelgw_ledger\" give max_output= or context=, "
                          "in %s:%ui", &model[i].id,
                          model[i].place.file, model[i].place.line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_zone_check_room(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    size_t      size, low, high;
    ngx_uint_t  keys, accounts;

    keys = 0;
    accounts = 0;

    if (mmcf->keys) {
        keys = ngx_http_modelgw_zone_count_keys(mmcf->keys);

        if (mmcf->ledger_path.len
            && ngx_http_modelgw_zone_count_accounts(mmcf->keys, NULL, cf->log,
                                                    &accounts)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_http_modelgw_zone_fits(mmcf->zone_size, keys, accounts)) {
        return NGX_OK;
    }

    low = mmcf->zone_size / ngx_pagesize;
    high = low * 2;

    while (high < NGX_HTTP_MODELGW_ZONE_MAX / ngx_pagesize
           && !ngx_http_modelgw_zone_fits(high * ngx_pagesize, keys, accounts))
    {
        low = high;
        high *= 2;
    }

    while (high - low > 1) {
        size = low + (high - low) / 2;

        if (ngx_http_modelgw_zone_fits(size * ngx_pagesize, keys, accounts)) {
            high = size;

        } else {
            low = size;
        }
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "zone too small: \"modelgw_zone\" of %uzk for %ui keys with "
                  "limits and %ui accounts, it needs at least %uzk",
                  mmcf->zone_size / 1024, keys, accounts,
                  high * ngx_pagesize / 1024);

    return NGX_ERROR;
}


/* Of the zone the slab pool takes a record a page, and we one page. */

static ngx_uint_t
ngx_http_modelgw_zone_fits(size_t size, ngx_uint_t keys, ngx_uint_t accounts)
{
    size_t                     pages;
    ngx_modelgw_ledger_room_t  room;

    pages = size / (ngx_pagesize + sizeof(ngx_slab_page_t));

    ngx_memzero(&room, sizeof(ngx_modelgw_ledger_room_t));

    if (pages > 3) {
        ngx_modelgw_ledger_room((pages - 3) * ngx_pagesize, &room);
    }

    return room.keys >= keys && room.accounts >= accounts && room.calls;
}


static ngx_uint_t
ngx_http_modelgw_zone_count_keys(ngx_modelgw_keys_t *keys)
{
    ngx_uint_t               n;
    ngx_modelgw_key_t       *key;
    ngx_modelgw_keys_pos_t   pos;

    n = 0;
    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for ( ;; ) {
        key = ngx_modelgw_keys_next(keys, &pos);
        if (key == NULL) {
            return n;
        }

        n += ngx_http_modelgw_zone_limited(key);
    }
}


ngx_int_t
ngx_http_modelgw_zone_check_more(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log)
{
    ngx_uint_t  more, room;

    if (mmcf->keys == NULL || !ngx_modelgw_ledger_credit(mmcf->ledger)) {
        return NGX_OK;
    }

    more = 0;
    room = ngx_modelgw_ledger_accounts_free(mmcf->ledger);

    if (ngx_http_modelgw_zone_count_accounts(mmcf->keys, mmcf->ledger, log,
                                             &more)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (more <= room) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, log, 0,
                  "zone too small: \"modelgw_zone\" of %uzk has %uD accounts, "
                  "all that the ledger ever had, and room for %ui more, not "
                  "for %ui: make it larger, stop nginx, then start it",
                  mmcf->zone_size / 1024,
                  ngx_modelgw_ledger_accounts(mmcf->ledger), room, more);

    return NGX_ERROR;
}


/*
 * Accounts are distinct names: a table of them, for as long as it counts.  With
 * a ledger only those count that it does not have.
 */

static ngx_int_t
ngx_http_modelgw_zone_count_accounts(ngx_modelgw_keys_t *keys,
    ngx_modelgw_ledger_t *ledger, ngx_log_t *log, ngx_uint_t *count)
{
    uint32_t                  index;
    ngx_str_t               **names;
    ngx_uint_t                i, n;
    ngx_modelgw_key_t        *key;
    ngx_modelgw_keys_pos_t    pos;

    n = ngx_modelgw_keys_count(keys) * 2 + 1;

    names = ngx_calloc(n * sizeof(ngx_str_t *), log);
    if (names == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for ( ;; ) {
        key = ngx_modelgw_keys_next(keys, &pos);
        if (key == NULL) {
            break;
        }

        i = ngx_murmur_hash2(key->account.data, key->account.len) % n;

        while (names[i]
               && (names[i]->len != key->account.len
                   || ngx_memcmp(names[i]->data, key->account.data,
                                 key->account.len)
                      != 0))
        {
            i = (i + 1 == n) ? 0 : i + 1;
        }

        if (names[i]) {
            continue;
        }

        names[i] = &key->account;

        if (ledger == NULL
            || ngx_modelgw_ledger_account(ledger, &key->account, 0, 0, 0, 0,
                                          &index)
               != NGX_OK)
        {
            (*count)++;
        }
    }

    ngx_free(names);

    return NGX_OK;
}
