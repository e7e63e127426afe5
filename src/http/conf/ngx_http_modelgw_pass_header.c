
/*
 * The client headers that are passed to upstreams: those listed here, and
 * those that the group adds with pass_header.
 *
 * A list of headers to drop was rejected, as it would never be complete.  All
 * clients of a group share one account with the vendor, so by such a header a
 * client could choose who pays (OpenAI-Organization), or get the answer to
 * another client's request (Idempotency-Key).
 *
 * Clients send the same names in each request, and to find out that one has no
 * barred word takes a thousand instructions.  So each worker remembers names,
 * byte by byte, that are passed or its own, for each group: the last one of a
 * slot.  Those that are not listed may be anything, and are not remembered.
 */


#include "ngx_http_modelgw_conf.h"


static ngx_int_t ngx_http_modelgw_pass_header_decide(
    ngx_http_modelgw_group_t *group, ngx_str_t *name);
static ngx_http_modelgw_name_t *ngx_http_modelgw_pass_header_find(
    ngx_http_modelgw_names_t *names, ngx_str_t *name);
static ngx_uint_t ngx_http_modelgw_pass_header_barred(ngx_str_t *name,
    size_t from);
static char *ngx_http_modelgw_pass_header_add(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *value);
static const char *ngx_http_modelgw_pass_header_fault(
    ngx_http_modelgw_name_t *name);
static const char *ngx_http_modelgw_pass_header_insert(
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_name_t *name);
static ngx_str_t *ngx_http_modelgw_pass_header_covers(
    ngx_http_modelgw_name_t *name);


/* names, and prefixes of families of names */

static ngx_http_modelgw_name_t  ngx_http_modelgw_pass_header_list[] = {

    /* versions and features of the APIs */
    { ngx_string("accept"), 0, NULL },
    { ngx_string("user-agent"), 0, NULL },
    { ngx_string("openai-beta"), 0, NULL },
    { ngx_string("anthropic-"), 1, NULL },

    /* SDKs of vendors: language, version, timeout, retry count */
    { ngx_string("x-stainless-"), 1, NULL },

    /* coding assistants: program, session, conversation */
    { ngx_string("x-app"), 0, NULL },
    { ngx_string("originator"), 0, NULL },
    { ngx_string("session-id"), 0, NULL },
    { ngx_string("thread-id"), 0, NULL },
    { ngx_string("conversation-id"), 0, NULL },
    { ngx_string("x-session-id"), 0, NULL },
    { ngx_string("x-session-affinity"), 0, NULL },
    { ngx_string("x-claude-"), 1, NULL },
    { ngx_string("x-codex-"), 1, NULL },

    /* tracing: W3C Trace Context, request id of the client */
    { ngx_string("traceparent"), 0, NULL },
    { ngx_string("tracestate"), 0, NULL },
    { ngx_string("x-client-request-id"), 0, NULL },

    { ngx_null_string, 0, NULL }
};

static ngx_http_modelgw_names_t  ngx_http_modelgw_pass_header_names;


/*
 * Words for who pays and for credentials: a name that only a prefix lists is
 * not passed if such a word begins at any of its bytes.
 */

static ngx_http_modelgw_name_t  ngx_http_modelgw_pass_header_barred_list[] = {
    { ngx_string("-org"), 1, NULL },
    { ngx_string("_org"), 1, NULL },
    { ngx_string("organi"), 1, NULL },
    { ngx_string("project"), 1, NULL },
    { ngx_string("workspace"), 1, NULL },
    { ngx_string("account"), 1, NULL },

    { ngx_string("-key"), 1, NULL },
    { ngx_string("_key"), 1, NULL },
    { ngx_string("-token"), 1, NULL },
    { ngx_string("_token"), 1, NULL },
    { ngx_string("secret"), 1, NULL },
    { ngx_string("credential"), 1, NULL },
    { ngx_string("authorization"), 1, NULL },

    { ngx_null_string, 0, NULL }
};

static ngx_http_modelgw_names_t  ngx_http_modelgw_pass_header_barred_names;


/*
 * Headers that pass_header cannot name, as the module or the proxy sets them:
 * of two headers of one name an upstream may take either.  Hop-by-hop headers:
 * RFC 9110, 7.6.1.  Ranges and conditions are for documents: nginx would apply
 * them to the answer.
 */

static ngx_http_modelgw_name_t  ngx_http_modelgw_pass_header_own_list[] = {

    /* credentials */
    { ngx_string("authorization"), 0, NULL },
    { ngx_string("x-api-key"), 0, NULL },
    { ngx_string("api-key"), 0, NULL },
    { ngx_string("x-goog-api-key"), 0, NULL },
    { ngx_string("cookie"), 0, NULL },
    { ngx_string("cookie2"), 0, NULL },

    /* hop by hop */
    { ngx_string("connection"), 0, NULL },
    { ngx_string("keep-alive"), 0, NULL },
    { ngx_string("proxy-"), 1, NULL },
    { ngx_string("te"), 0, NULL },
    { ngx_string("trailer"), 0, NULL },
    { ngx_string("transfer-encoding"), 0, NULL },
    { ngx_string("upgrade"), 0, NULL },
    { ngx_string("http2-settings"), 0, NULL },
    { ngx_string("expect"), 0, NULL },

    /* framing, target and encoding */
    { ngx_string("host"), 0, NULL },
    { ngx_string("content-length"), 0, NULL },
    { ngx_string("content-type"), 0, NULL },
    { ngx_string("content-encoding"), 0, NULL },
    { ngx_string("accept-encoding"), 0, NULL },

    /* ranges and conditions */
    { ngx_string("range"), 0, NULL },
    { ngx_string("if-range"), 0, NULL },
    { ngx_string("if-match"), 0, NULL },
    { ngx_string("if-none-match"), 0, NULL },
    { ngx_string("if-modified-since"), 0, NULL },
    { ngx_string("if-unmodified-since"), 0, NULL },

    /* RFC 8470, about the connection of the client */
    { ngx_string("early-data"), 0, NULL },

    { ngx_null_string, 0, NULL }
};

static ngx_http_modelgw_names_t  ngx_http_modelgw_pass_header_own_names;


void
ngx_http_modelgw_pass_header_init(void)
{
    ngx_http_modelgw_names_index(&ngx_http_modelgw_pass_header_names,
                                 ngx_http_modelgw_pass_header_list);
    ngx_http_modelgw_names_index(&ngx_http_modelgw_pass_header_barred_names,
                                 ngx_http_modelgw_pass_header_barred_list);
    ngx_http_modelgw_names_index(&ngx_http_modelgw_pass_header_own_names,
                                 ngx_http_modelgw_pass_header_own_list);
}


ngx_int_t
ngx_http_modelgw_pass_header_action(ngx_http_modelgw_group_t *group,
    ngx_table_elt_t *h)
{
    ngx_int_t                         rc;
    ngx_http_modelgw_known_header_t  *known;

    if (h->key.len == 0 || h->key.len > sizeof(known->name)) {
        return ngx_http_modelgw_pass_header_decide(group, &h->key);
    }

    /* "name" and "Name" have one hash, but two slots */

    known = &group->known[(h->hash + h->key.data[0])
                          % NGX_HTTP_MODELGW_KNOWN_HEADERS];

    if (known->len == h->key.len
        && ngx_memcmp(known->name, h->key.data, h->key.len) == 0)
    {
        return known->own ? NGX_ABORT : NGX_OK;
    }

    rc = ngx_http_modelgw_pass_header_decide(group, &h->key);

    if (rc != NGX_DECLINED) {
        known->len = (u_char) h->key.len;
        known->own = (rc == NGX_ABORT);
        ngx_memcpy(known->name, h->key.data, h->key.len);
    }

    return rc;
}


static ngx_int_t
ngx_http_modelgw_pass_header_decide(ngx_http_modelgw_group_t *group,
    ngx_str_t *name)
{
    if (ngx_http_modelgw_names_find(&ngx_http_modelgw_pass_header_own_names,
                                    name)
        || ngx_http_modelgw_names_same(&group->header_lowcase, name))
    {
        return NGX_ABORT;
    }

    return (ngx_http_modelgw_pass_header_find(
                                   &ngx_http_modelgw_pass_header_names, name)
            || ngx_http_modelgw_pass_header_find(&group->pass, name))
           ? NGX_OK : NGX_DECLINED;
}


/*
 * A name that is listed itself is always passed, one that only a prefix lists
 * is not if it has a barred word.  A "-" can only be the first byte of a
 * barred word, so no word begins before the last "-" of the prefix and ends
 * after it.
 */

static ngx_http_modelgw_name_t *
ngx_http_modelgw_pass_header_find(ngx_http_modelgw_names_t *names,
    ngx_str_t *name)
{
    size_t                    n;
    ngx_http_modelgw_name_t  *found;

    found = ngx_http_modelgw_names_find(names, name);

    if (found == NULL || !found->prefix) {
        return found;
    }

    n = found->name.len - 1;

    while (n && found->name.data[n] != '-') {
        n--;
    }

    return ngx_http_modelgw_pass_header_barred(name, n) ? NULL : found;
}


/* Whether a barred word begins at the given byte of the name or after it. */

static ngx_uint_t
ngx_http_modelgw_pass_header_barred(ngx_str_t *name, size_t from)
{
    ngx_str_t  rest;

    for ( /* void */ ; from < name->len; from++) {

        rest.data = name->data + from;
        rest.len = name->len - from;

        if (ngx_http_modelgw_names_find(
                            &ngx_http_modelgw_pass_header_barred_names, &rest))
        {
            return 1;
        }
    }

    return 0;
}


char *
ngx_http_modelgw_pass_header(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_http_modelgw_pass_header_add(cf, group, &value[i])
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return ngx_http_modelgw_pass_header_check(cf, group) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_modelgw_pass_header_add(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *value)
{
    ngx_str_t                *own;
    const char               *fault;
    ngx_http_modelgw_name_t  *name;

    name = ngx_pcalloc(cf->pool, sizeof(ngx_http_modelgw_name_t));
    if (name == NULL) {
        return NGX_CONF_ERROR;
    }

    name->name.data = ngx_pstrdup(cf->pool, value);
    if (name->name.data == NULL) {
        return NGX_CONF_ERROR;
    }

    name->prefix = (value->len && value->data[value->len - 1] == '*');
    name->name.len = value->len - name->prefix;

    ngx_strlow(name->name.data, name->name.data, name->name.len);

    fault = ngx_http_modelgw_pass_header_fault(name);

    if (fault == NULL) {
        own = ngx_http_modelgw_pass_header_covers(name);

        if (own) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "header \"%V\" in \"pass_header\" of group "
                               "\"%V\" covers \"%V\", which is never passed",
                               value, &group->name, own);
            return NGX_CONF_ERROR;
        }

        fault = ngx_http_modelgw_pass_header_insert(group, name);
    }

    if (fault == NULL) {
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "header \"%V\" in \"pass_header\" of group \"%V\" %s",
                       value, &group->name, fault);

    return NGX_CONF_ERROR;
}


static const char *
ngx_http_modelgw_pass_header_fault(ngx_http_modelgw_name_t *name)
{
    if (name->prefix && name->name.len == 0) {
        return "would pass all headers: name them";
    }

    if (!ngx_http_modelgw_conf_word(&name->name, "_-",
                                    NGX_HTTP_MODELGW_HEADER_LEN))
    {
        return "is invalid: it is letters, digits, \"-\" and \"_\", at its end "
               "may be \"*\"";
    }

    return NULL;
}


static const char *
ngx_http_modelgw_pass_header_insert(ngx_http_modelgw_group_t *group,
    ngx_http_modelgw_name_t *name)
{
    if (name->prefix && ngx_http_modelgw_pass_header_barred(&name->name, 0)) {
        return "says who pays, or is a credential: such headers are named "
               "without \"*\"";
    }

    return (ngx_http_modelgw_names_insert(&group->pass, name) == NGX_OK)
           ? NULL : "is duplicate";
}


/*
 * The header that pass_header cannot name, but which the name or prefix
 * covers.
 */

static ngx_str_t *
ngx_http_modelgw_pass_header_covers(ngx_http_modelgw_name_t *name)
{
    ngx_http_modelgw_name_t  *own;

    own = ngx_http_modelgw_pass_header_own_list;

    for ( /* void */ ; own->name.len; own++) {
        if (ngx_http_modelgw_names_overlap(own, name)) {
            return &own->name;
        }
    }

    return NULL;
}


/* Called after each of the two lines, as their order is free. */

ngx_int_t
ngx_http_modelgw_pass_header_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group)
{
    ngx_http_modelgw_name_t  *name;

    name = ngx_http_modelgw_names_find(&group->pass,
                                       &group->header_lowcase);
    if (name == NULL) {
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "header \"%V%s\" in \"pass_header\" of group \"%V\" "
                       "covers \"%V\", which carries the group's credential",
                       &name->name, name->prefix ? "*" : "", &group->name,
                       &group->header);

    return NGX_ERROR;
}
