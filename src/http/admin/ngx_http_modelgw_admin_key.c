
/*
 * Keys that operators make while nginx runs.
 *
 * The worker of the request makes the secret, which is in its memory until the
 * response is sent, and nowhere else: the writer gets the digest.  So a second
 * request for the same key cannot be answered with it, and is refused.
 *
 * What a key names must be configured: a group, and models of it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_store.h"
#include "ngx_modelgw_tape.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_headers.h"


#define NGX_HTTP_MODELGW_KEY_SIZE    1024    /* bytes allocated at first */
#define NGX_HTTP_MODELGW_KEY_RANDOM  24      /* bytes of a secret */
#define NGX_HTTP_MODELGW_KEY_ID      8       /* bytes of an id that is made */
#define NGX_HTTP_MODELGW_KEY_GRACE   (366 * 24 * 60 * 60)  /* seconds */


/* rows of ngx_http_modelgw_key_fields; the first ones can be set later */

typedef enum {
    NGX_HTTP_MODELGW_KEY_RPM = 0,
    NGX_HTTP_MODELGW_KEY_TPM,
    NGX_HTTP_MODELGW_KEY_CONCURRENCY,
    NGX_HTTP_MODELGW_KEY_MODELS,
    NGX_HTTP_MODELGW_KEY_EXPIRES,
    NGX_HTTP_MODELGW_KEY_BUDGET,
    NGX_HTTP_MODELGW_KEY_NOTE,
    NGX_HTTP_MODELGW_KEY_GROUP,
    NGX_HTTP_MODELGW_KEY_NAME,
    NGX_HTTP_MODELGW_KEY_ACCOUNT,
    NGX_HTTP_MODELGW_KEY_FOUNDING,
    NGX_HTTP_MODELGW_KEY_HASH,
    NGX_HTTP_MODELGW_KEY_FIELDS
} ngx_http_modelgw_key_field_e;

#define NGX_HTTP_MODELGW_KEY_SET  NGX_HTTP_MODELGW_KEY_GROUP


static ngx_int_t ngx_http_modelgw_key_managed(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_find(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_if_match(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_parse_new(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_group(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t **group);
static ngx_int_t ngx_http_modelgw_key_names(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_make_id(ngx_http_modelgw_change_t *c,
    ngx_str_t *id);
static ngx_int_t ngx_http_modelgw_key_secret(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_hash(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_parse_set(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_set(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group);
static ngx_int_t ngx_http_modelgw_key_limits(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_models(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group);
static ngx_int_t ngx_http_modelgw_key_model(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group, ngx_str_t *id);
static ngx_int_t ngx_http_modelgw_key_expires(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_budget(ngx_http_modelgw_change_t *c);
static void ngx_http_modelgw_key_window(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group);
static ngx_int_t ngx_http_modelgw_key_parse_rotate(
    ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_invalid(ngx_http_modelgw_change_t *c,
    ngx_uint_t i, const char *takes);
static ngx_int_t ngx_http_modelgw_key_answer(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_refused(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_exists(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_key_location(ngx_http_modelgw_change_t *c);


#define NGX_HTTP_MODELGW_KEY_COUNT                                            \
    NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL
#define NGX_HTTP_MODELGW_KEY_STRING                                           \
    NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_NULL

static ngx_modelgw_scan_watch_t  ngx_http_modelgw_key_fields[] = {
    [NGX_HTTP_MODELGW_KEY_RPM] =
        { ngx_string("rpm"), NGX_HTTP_MODELGW_KEY_COUNT },
    [NGX_HTTP_MODELGW_KEY_TPM] =
        { ngx_string("tpm"), NGX_HTTP_MODELGW_KEY_COUNT },
    [NGX_HTTP_MODELGW_KEY_CONCURRENCY] =
        { ngx_string("concurrency"), NGX_HTTP_MODELGW_KEY_COUNT },
    [NGX_HTTP_MODELGW_KEY_MODELS] =
        { ngx_string("models"), NGX_MODELGW_SCAN_ARRAY|NGX_MODELGW_SCAN_NULL },
    [NGX_HTTP_MODELGW_KEY_EXPIRES] =
        { ngx_string("expires"), NGX_HTTP_MODELGW_KEY_STRING },
    [NGX_HTTP_MODELGW_KEY_BUDGET] =
        { ngx_string("budget"), NGX_HTTP_MODELGW_KEY_STRING },
    [NGX_HTTP_MODELGW_KEY_NOTE] =
        { ngx_string("note"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_KEY_GROUP] =
        { ngx_string("group"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_KEY_NAME] =
        { ngx_string("id"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_KEY_ACCOUNT] =
        { ngx_string("account"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_KEY_FOUNDING] =
        { ngx_string("founding"), NGX_MODELGW_SCAN_BOOL },
    [NGX_HTTP_MODELGW_KEY_HASH] =
        { ngx_string("hash"), NGX_MODELGW_SCAN_STRING }
};

static ngx_modelgw_scan_watch_t  ngx_http_modelgw_key_grace[] = {
    { ngx_string("grace"), NGX_MODELGW_SCAN_STRING }
};


ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_new = {
    NGX_MODELGW_CHANGE_KEY_NEW,
    ngx_http_modelgw_key_fields,
    NGX_HTTP_MODELGW_KEY_FIELDS,
    0,
    ngx_http_modelgw_key_managed,
    ngx_http_modelgw_key_parse_new,
    ngx_http_modelgw_key_answer,
    0
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_set = {
    NGX_MODELGW_CHANGE_KEY_SET,
    ngx_http_modelgw_key_fields,
    NGX_HTTP_MODELGW_KEY_SET,
    0,
    ngx_http_modelgw_key_find,
    ngx_http_modelgw_key_parse_set,
    ngx_http_modelgw_key_answer,
    0
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_rotate = {
    NGX_MODELGW_CHANGE_KEY_ROTATE,
    ngx_http_modelgw_key_grace,
    1,
    0,
    ngx_http_modelgw_key_find,
    ngx_http_modelgw_key_parse_rotate,
    ngx_http_modelgw_key_answer,
    0
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_revoke = {
    NGX_MODELGW_CHANGE_KEY_REVOKE,
    ngx_http_modelgw_key_grace,
    0,
    0,
    ngx_http_modelgw_key_find,
    NULL,
    ngx_http_modelgw_key_answer,
    0
};


static ngx_int_t
ngx_http_modelgw_key_managed(ngx_http_modelgw_change_t *c)
{
    if (c->mmcf->managed) {
        return NGX_OK;
    }

    return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_NOT_FOUND,
                                  "NOT_FOUND", "Keys are made here if "
                                  "\"modelgw_managed_keys\" is configured");
}


static ngx_int_t
ngx_http_modelgw_key_find(ngx_http_modelgw_change_t *c)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_key_managed(c);
    if (rc != NGX_OK) {
        return rc;
    }

    if (!ngx_http_modelgw_conf_id(&c->id)) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_NOT_FOUND,
                                      "NOT_FOUND", "No such key");
    }

    if (ngx_modelgw_keys_named(c->mmcf->keys, &c->id)) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_CONFLICT,
                                      "CONFIGURED_KEY",
                                      "Key \"%V\" is in the configuration: "
                                      "change it there", &c->id);
    }

    ngx_http_modelgw_admin_name(&c->asked.key.id, &c->id);

    return ngx_http_modelgw_key_if_match(c);
}


/* RFC 9110, 13.1.1: one entity tag of ours, or "*" */

static ngx_int_t
ngx_http_modelgw_key_if_match(ngx_http_modelgw_change_t *c)
{
    off_t                        n;
    ngx_str_t                    value;
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    ngx_http_modelgw_headers_init(&hs, &c->request->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_headers_is(&h->key, "if-match")) {
            continue;
        }

        value = h->value;

        if (value.len == 1 && value.data[0] == '*') {
            continue;
        }

        n = NGX_ERROR;

        if (value.len > 2
            && value.data[0] == '"' && value.data[value.len - 1] == '"')
        {
            n = ngx_atoof(value.data + 1, value.len - 2);
        }

        /* of another form, so of no version of this key */

        c->asked.if_match = (n > 0) ? (uint64_t) n : (uint64_t) -1;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_key_parse_new(ngx_http_modelgw_change_t *c)
{
    ngx_int_t                  rc;
    ngx_modelgw_scan_value_t  *v;
    ngx_http_modelgw_group_t  *group;

    rc = ngx_http_modelgw_key_group(c, &group);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_key_names(c);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_key_set(c, group);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_key_hash(c);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    if (c->asked.key.expires && c->asked.key.expires <= (uint64_t) ngx_time()
        && !c->asked.imported)
    {
        return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_EXPIRES,
                                            "a day to come");
    }

    ngx_http_modelgw_key_window(c, group);

    v = ngx_modelgw_scan_value(c->scan, NGX_HTTP_MODELGW_KEY_FOUNDING);

    c->asked.amount = (v->type == NGX_MODELGW_SCAN_FALSE) ? 0
                                                          : c->mmcf->founding;

    return c->asked.imported ? NGX_OK : ngx_http_modelgw_key_secret(c);
}


static ngx_int_t
ngx_http_modelgw_key_group(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t **group)
{
    ngx_str_t  name;

    if (!ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_KEY_GROUP, &name)) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "MISSING_FIELD", "\"group\" is required");
    }

    if (name.len > NGX_MODELGW_LEDGER_NAME) {
        return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_GROUP,
                                            "the name of a group");
    }

    *group = ngx_http_modelgw_group_find(c->mmcf, name.data, name.len);

    if (*group == NULL) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "Unknown group \"%V\"", &name);
    }

    ngx_http_modelgw_admin_name(&c->asked.key.group, &name);

    return NGX_OK;
}


/* the id, and the account, which is the id if it is not given */

static ngx_int_t
ngx_http_modelgw_key_names(ngx_http_modelgw_change_t *c)
{
    ngx_str_t           id, account;
    ngx_modelgw_key_t  *twin;

    if (!ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_KEY_NAME, &id)
        && ngx_http_modelgw_key_make_id(c, &id) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ngx_http_modelgw_admin_new_id(&id)) {
        return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_NAME,
                                            NGX_HTTP_MODELGW_NEW_ID_TAKES);
    }

    ngx_http_modelgw_admin_name(&c->asked.key.id, &id);

    if (!ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_KEY_ACCOUNT,
                                      &account))
    {
        account = id;
    }

    if (!ngx_http_modelgw_admin_new_id(&account)) {
        return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_ACCOUNT,
                                            NGX_HTTP_MODELGW_NEW_ID_TAKES);
    }

    ngx_http_modelgw_admin_name(&c->asked.owner, &account);
    ngx_http_modelgw_admin_name(&c->asked.key.account, &account);

    (void) ngx_modelgw_ledger_account(c->mmcf->ledger, &account, 0, 0, 0, 0,
                                      &c->asked.account);

    twin = ngx_modelgw_keys_named(c->mmcf->keys, &id);

    /* one that is imported may be in the configuration: until it is removed */

    if (twin == NULL
        || ngx_modelgw_scan_value(c->scan, NGX_HTTP_MODELGW_KEY_HASH)->type
           == NGX_MODELGW_SCAN_STRING)
    {
        return NGX_OK;
    }

    return ngx_http_modelgw_key_exists(c);
}


/* The same for the same Idempotency-Key: so a second request is refused. */

static ngx_int_t
ngx_http_modelgw_key_make_id(ngx_http_modelgw_change_t *c, ngx_str_t *id)
{
    u_char                      *p, digest[NGX_MODELGW_KEY_DIGEST];
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    if (ngx_modelgw_key_random(digest, NGX_HTTP_MODELGW_KEY_ID) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_headers_init(&hs, &c->request->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (ngx_http_modelgw_headers_is(&h->key, "idempotency-key")
            && h->value.len
            && ngx_modelgw_key_digest(&h->value, digest) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    id->len = sizeof("key-") - 1 + 2 * NGX_HTTP_MODELGW_KEY_ID;
    id->data = ngx_pnalloc(c->request->pool, id->len);
    if (id->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(id->data, "key-", sizeof("key-") - 1);
    (void) ngx_hex_dump(p, digest, NGX_HTTP_MODELGW_KEY_ID);

    return NGX_OK;
}


/* the same form as that of "modelgwctl key new" */

static ngx_int_t
ngx_http_modelgw_key_secret(ngx_http_modelgw_change_t *c)
{
    u_char      *p, bytes[NGX_HTTP_MODELGW_KEY_RANDOM];
    ngx_str_t   *prefix;

    prefix = &c->mmcf->key_prefix;

    c->secret.len = prefix->len + 2 * NGX_HTTP_MODELGW_KEY_RANDOM;
    c->secret.data = ngx_pnalloc(c->request->pool, c->secret.len);
    if (c->secret.data == NULL) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_key_random(bytes, NGX_HTTP_MODELGW_KEY_RANDOM) != NGX_OK) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(c->secret.data, prefix->data, prefix->len);
    (void) ngx_hex_dump(p, bytes, NGX_HTTP_MODELGW_KEY_RANDOM);

    return ngx_modelgw_key_digest(&c->secret, c->asked.key.digest);
}


static ngx_int_t
ngx_http_modelgw_key_hash(ngx_http_modelgw_change_t *c)
{
    ngx_str_t  text;

    if (!ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_KEY_HASH, &text)) {
        return NGX_OK;
    }

    c->asked.imported = 1;

    if (text.len > sizeof("sha256:") - 1 && text.len <= NGX_MODELGW_SCAN_TEXT
        && ngx_strncmp(text.data, "sha256:", sizeof("sha256:") - 1) == 0)
    {
        text.data += sizeof("sha256:") - 1;
        text.len -= sizeof("sha256:") - 1;

        if (ngx_modelgw_key_hex(&text, c->asked.key.digest) == NGX_OK) {
            return NGX_OK;
        }
    }

    /* the wrong text may be the key itself, so it is not shown */

    return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_HASH,
                                        "\"sha256:\" and 64 hex digits");
}


static ngx_int_t
ngx_http_modelgw_key_parse_set(ngx_http_modelgw_change_t *c)
{
    ngx_int_t                   rc;
    ngx_http_modelgw_group_t   *group;
    ngx_modelgw_managed_key_t   key;

    rc = ngx_modelgw_managed_get(c->mmcf->managed, &c->id, &key);

    if (rc == NGX_BUSY) {
        return ngx_http_modelgw_admin_change_failed(c);
    }

    if (rc != NGX_OK) {
        c->asked.state = NGX_MODELGW_CHANGE_MISSING;
        return ngx_http_modelgw_key_refused(c);
    }

    group = ngx_http_modelgw_group_find(c->mmcf, key.group.data,
                                        key.group.len);

    rc = ngx_http_modelgw_key_set(c, group);

    if (rc == NGX_OK && c->asked.sets == 0) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "MISSING_FIELD", "There is no field");
    }

    if (c->asked.sets & NGX_MODELGW_CHANGE_BUDGET) {
        ngx_http_modelgw_key_window(c, group);
    }

    return rc;
}


/* what can be set now and later; group: NULL: it is not configured */

static ngx_int_t
ngx_http_modelgw_key_set(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_key_limits(c);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_key_models(c, group);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_key_expires(c);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_key_budget(c);
    }

    return (rc == NGX_OK)
           ? ngx_http_modelgw_admin_note(c, NGX_HTTP_MODELGW_KEY_NOTE) : rc;
}


static ngx_int_t
ngx_http_modelgw_key_limits(ngx_http_modelgw_change_t *c)
{
    ngx_int_t                  n;
    uint32_t                  *limits[3];
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *v;

    limits[NGX_HTTP_MODELGW_KEY_RPM] = &c->asked.key.rpm;
    limits[NGX_HTTP_MODELGW_KEY_TPM] = &c->asked.key.tpm;
    limits[NGX_HTTP_MODELGW_KEY_CONCURRENCY] = &c->asked.key.concurrency;

    for (i = 0; i < 3; i++) {
        v = ngx_modelgw_scan_value(c->scan, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            continue;
        }

        c->asked.sets |= NGX_MODELGW_CHANGE_RPM << i;

        if (v->type == NGX_MODELGW_SCAN_NULL) {
            continue;
        }

        n = ngx_atoi(v->text, v->len);

        if (n <= 0) {
            return ngx_http_modelgw_key_invalid(c, i,
                                                "at least 1, or null for none");
        }

        *limits[i] = n;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_key_models(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group)
{
    ngx_int_t                  rc;
    ngx_str_t                  id;
    ngx_modelgw_tape_t         tape;
    ngx_modelgw_node_t        *models, *node;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(c->scan, NGX_HTTP_MODELGW_KEY_MODELS);

    if (v->type == NGX_MODELGW_SCAN_ABSENT) {
        return NGX_OK;
    }

    c->asked.sets |= NGX_MODELGW_CHANGE_MODELS;

    if (v->type == NGX_MODELGW_SCAN_NULL) {
        return NGX_OK;
    }

    ngx_memzero(&tape, sizeof(ngx_modelgw_tape_t));
    ngx_modelgw_tape_init(&tape, c->request->pool, c->mmcf->skip);

    if (ngx_modelgw_tape_feed(&tape, c->body.data, c->body.len) != NGX_OK
        || ngx_modelgw_tape_done(&tape, c->body.data) != NGX_OK)
    {
        return NGX_ERROR;
    }

    models = ngx_modelgw_tape_member(&tape, ngx_modelgw_tape_root(&tape),
                                     "models");

    for (node = ngx_modelgw_tape_first(&tape, models);
         node;
         node = ngx_modelgw_tape_next(&tape, models, node))
    {
        ngx_str_null(&id);

        if (node->type == NGX_MODELGW_TAPE_STRING
            && ngx_modelgw_tape_text(&tape, c->request->pool, node, &id)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        rc = ngx_http_modelgw_key_model(c, group, &id);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (c->asked.key.models_len) {
        return NGX_OK;
    }

    return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_MODELS,
                                        "null for all models of the group");
}


/* adds the model to the list */

static ngx_int_t
ngx_http_modelgw_key_model(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group, ngx_str_t *id)
{
    u_char                     *p;
    ngx_int_t                   rc;
    ngx_str_t                   upstream_id;
    ngx_http_modelgw_model_t   *model;
    ngx_modelgw_managed_key_t  *key;

    key = &c->asked.key;

    if (!ngx_http_modelgw_model_id(id)) {
        return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_MODELS,
                                            "a list of ids of models");
    }

    rc = group ? ngx_http_modelgw_model_find(c->request->pool, group, id,
                                             &model, &upstream_id)
               : NGX_DECLINED;

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "Unknown model \"%V\" in \"models\": the "
                                      "group does not have it", id);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    if (key->models_len + 1 + id->len > NGX_MODELGW_LEDGER_MODELS) {
        return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_MODELS,
                                            "at most 256 bytes in all");
    }

    p = key->models + key->models_len;

    if (key->models_len) {
        *p++ = ',';
    }

    p = ngx_cpymem(p, id->data, id->len);

    key->models_len = p - key->models;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_key_expires(ngx_http_modelgw_change_t *c)
{
    time_t                     day;
    ngx_str_t                  text;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(c->scan, NGX_HTTP_MODELGW_KEY_EXPIRES);

    if (v->type == NGX_MODELGW_SCAN_ABSENT) {
        return NGX_OK;
    }

    c->asked.sets |= NGX_MODELGW_CHANGE_EXPIRES;

    if (v->type == NGX_MODELGW_SCAN_NULL) {
        return NGX_OK;
    }

    (void) ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_KEY_EXPIRES,
                                        &text);

    if (ngx_modelgw_key_date(&text, &day) != NGX_OK) {
        return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_EXPIRES,
                                            "a day such as 2027-01-01, or null "
                                            "for never");
    }

    /* 1970-01-01; 0 means that the key never expires */

    c->asked.key.expires = day ? day : 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_key_budget(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                  text;
    ngx_modelgw_budget_t       budget;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(c->scan, NGX_HTTP_MODELGW_KEY_BUDGET);

    if (v->type == NGX_MODELGW_SCAN_ABSENT) {
        return NGX_OK;
    }

    c->asked.sets |= NGX_MODELGW_CHANGE_BUDGET;

    if (v->type == NGX_MODELGW_SCAN_NULL) {
        return NGX_OK;
    }

    (void) ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_KEY_BUDGET, &text);

    if (text.len <= NGX_MODELGW_SCAN_TEXT
        && ngx_modelgw_budget_parse(&text, &budget) == NGX_OK)
    {
        c->asked.key.budget = budget.limit;
        c->asked.key.window = budget.window;

        return NGX_OK;
    }

    return ngx_http_modelgw_key_invalid(c, NGX_HTTP_MODELGW_KEY_BUDGET,
                                        "euro by day, week, month or total "
                                        "such as 50.00/month, or null");
}


/*
 * That of the budget that the key is given, or else of its group's.  The record
 * of a key that the configuration has, too, is that key's.
 */

static void
ngx_http_modelgw_key_window(ngx_http_modelgw_change_t *c,
    ngx_http_modelgw_group_t *group)
{
    ngx_str_t             id;
    ngx_modelgw_key_t     own;
    ngx_modelgw_budget_t  budget;

    id.len = c->asked.key.id.len;
    id.data = c->asked.key.id.data;

    if (group == NULL || ngx_modelgw_keys_named(c->mmcf->keys, &id)) {
        return;
    }

    own.group = group;
    own.budget = c->asked.key.budget;
    own.window = c->asked.key.window;

    ngx_http_modelgw_keys_budget(&own, &budget);

    c->asked.window = budget.limit ? budget.window : NGX_MODELGW_WINDOW_NONE;
}


static ngx_int_t
ngx_http_modelgw_key_parse_rotate(ngx_http_modelgw_change_t *c)
{
    ngx_int_t  grace;
    ngx_str_t  text;

    if (ngx_http_modelgw_admin_field(c, 0, &text)) {

        grace = (text.len <= NGX_MODELGW_SCAN_TEXT) ? ngx_parse_time(&text, 1)
                                                    : NGX_ERROR;

        if (grace < 0 || grace > NGX_HTTP_MODELGW_KEY_GRACE) {
            return ngx_http_modelgw_key_invalid(c, 0, "a time such as 24h, at "
                                                      "most 366d");
        }

        c->asked.until = grace ? (uint64_t) ngx_time() + grace : 0;
    }

    return ngx_http_modelgw_key_secret(c);
}


static ngx_int_t
ngx_http_modelgw_key_invalid(ngx_http_modelgw_change_t *c, ngx_uint_t i,
    const char *takes)
{
    return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                  "INVALID_FIELD", "\"%V\" must be %s",
                                  &c->kind->fields[i].path, takes);
}


static ngx_int_t
ngx_http_modelgw_key_answer(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                         id, note, body;
    ngx_uint_t                        fresh;
    ngx_modelgw_out_t                 out;
    ngx_modelgw_out_piece_t           piece;
    ngx_http_modelgw_admin_budgets_t  spent;
    ngx_http_modelgw_admin_client_t  *client;

    static const char  *done[] = {
        [NGX_MODELGW_CHANGE_KEY_NEW] = "made",
        [NGX_MODELGW_CHANGE_KEY_SET] = "changed",
        [NGX_MODELGW_CHANGE_KEY_ROTATE] = "rotated",
        [NGX_MODELGW_CHANGE_KEY_REVOKE] = "revoked"
    };

    if (c->asked.state != NGX_MODELGW_CHANGE_MADE
        && c->asked.state != NGX_MODELGW_CHANGE_KNOWN)
    {
        return ngx_http_modelgw_key_refused(c);
    }

    id.len = c->asked.key.id.len;
    id.data = c->asked.key.id.data;

    client = c->ctx->client;

    note.len = client->key ? 0 : c->asked.note_len;
    note.data = c->asked.note;

    fresh = (c->asked.kind == NGX_MODELGW_CHANGE_KEY_NEW);

    ngx_log_error(NGX_LOG_NOTICE, c->request->connection->log, 0,
                  "key \"%V\" %s", &id, done[c->asked.kind]);

    spent.known = (c->mmcf->cluster != NULL);
    spent.tree = NULL;
    spent.used = c->asked.balance;

    ngx_modelgw_out_piece(&out, &piece, c->request->pool,
                          NGX_HTTP_MODELGW_KEY_SIZE);
    ngx_http_modelgw_admin_key_write(&out, c->mmcf, &c->asked.key, &note,
                                     &spent);

    if (c->secret.len) {
        ngx_modelgw_out_text(&out, ",\"key\":");
        ngx_modelgw_out_string(&out, &c->secret);
    }

    ngx_modelgw_out_text(&out, "}");

    if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK
        || ngx_http_modelgw_admin_etag(c->request, c->asked.key.version)
           != NGX_OK
        || (fresh && ngx_http_modelgw_key_location(c) != NGX_OK))
    {
        return NGX_ERROR;
    }

    ngx_http_modelgw_admin_reply(c->request, c->ctx,
                                 fresh ? NGX_HTTP_CREATED : NGX_HTTP_OK, &body);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_key_refused(ngx_http_modelgw_change_t *c)
{
    ngx_str_t  id;

    id.len = c->asked.key.id.len;
    id.data = c->asked.key.id.data;

    switch (c->asked.state) {

    case NGX_MODELGW_CHANGE_OTHER:
        return ngx_http_modelgw_key_exists(c);

    case NGX_MODELGW_CHANGE_DIGEST:
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_CONFLICT,
                                      "KEY_EXISTS",
                                      "Another key has the hash of \"%V\"",
                                      &id);

    case NGX_MODELGW_CHANGE_MISSING:
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_NOT_FOUND,
                                      "NOT_FOUND",
                                      "No such key, or it is revoked: \"%V\"",
                                      &id);

    case NGX_MODELGW_CHANGE_STALE:
        return ngx_http_modelgw_error(c->request, c->ctx,
                                      NGX_HTTP_PRECONDITION_FAILED,
                                      "PRECONDITION_FAILED",
                                      "Key \"%V\" has another version", &id);

    case NGX_MODELGW_CHANGE_FULL:
        return ngx_http_modelgw_error(c->request, c->ctx,
                                      NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "There are as many keys as "
                                      "\"modelgw_managed_keys %ui\" allows: "
                                      "revoke some, or raise it and restart "
                                      "nginx", c->mmcf->managed_max);

    default:
        return ngx_http_modelgw_admin_change_failed(c);
    }
}


static ngx_int_t
ngx_http_modelgw_key_exists(ngx_http_modelgw_change_t *c)
{
    ngx_str_t  id;

    id.len = c->asked.key.id.len;
    id.data = c->asked.key.id.data;

    return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_CONFLICT,
                                  "KEY_EXISTS", "There is a key \"%V\" already",
                                  &id);
}


/* ids need no escapes */

static ngx_int_t
ngx_http_modelgw_key_location(ngx_http_modelgw_change_t *c)
{
    u_char              *p;
    ngx_str_t            value;
    ngx_http_request_t  *r;

    r = c->request;

    p = ngx_pnalloc(r->pool, r->uri.len + 1 + c->asked.key.id.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;

    p = ngx_cpymem(p, r->uri.data, r->uri.len);
    *p++ = '/';
    p = ngx_cpymem(p, c->asked.key.id.data, c->asked.key.id.len);

    value.len = p - value.data;

    return ngx_http_modelgw_headers_add(r, "Location", &value);
}
