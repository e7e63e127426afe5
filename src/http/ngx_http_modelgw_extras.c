
/*
 * What a body has beside its text that costs: counted by the scanner, wherever
 * it stands.
 *
 * Pictures by address, documents, and tools that the vendor describes to the
 * model raise the bound of a call's input (hold.c).  What has another price
 * than the model line says is refused where credit is kept, unless the line
 * says that the prices include it ("extras=included"): a charge that we cannot
 * know is the operator's loss.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_verdict.h"


typedef struct {
    ngx_str_t                 header;
    ngx_str_t                 part;      /* of its value */
    const char               *text;
} ngx_http_modelgw_extras_header_t;


static ngx_uint_t ngx_http_modelgw_extras_plain(ngx_modelgw_scan_value_t *v);
static ngx_int_t ngx_http_modelgw_extras_billed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_extras_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/*
 * Names as both APIs have them.  Tools of the vendor that run on its side are
 * billed by use; those that run on the client's cost what describes them.
 */

static ngx_modelgw_scan_mark_t  ngx_http_modelgw_marks[] = {

    { ngx_string("url"), ngx_null_string },
    { ngx_string("image_url"), ngx_null_string },
    { ngx_string("data"), ngx_null_string },

    { ngx_string("file_id"), ngx_null_string },
    { ngx_string("file_url"), ngx_null_string },
    { ngx_string("file_data"), ngx_null_string },
    { ngx_string("type"), ngx_string("document") },

    { ngx_string("tools"), ngx_null_string },
    { ngx_string("type"), ngx_string("bash_") },
    { ngx_string("type"), ngx_string("text_editor_") },
    { ngx_string("type"), ngx_string("computer_") },
    { ngx_string("type"), ngx_string("memory_") },

    { ngx_string("ttl"), ngx_string("1h") },

    { ngx_string("type"), ngx_string("web_search_2") },
    { ngx_string("type"), ngx_string("web_fetch_2") },
    { ngx_string("type"), ngx_string("code_execution_2") },
    { ngx_string("mcp_servers"), ngx_null_string },
    { ngx_string("type"), ngx_string("mcp_toolset") },
    { ngx_string("input_audio"), ngx_null_string }
};

#define NGX_HTTP_MODELGW_MARKS                                                \
    (sizeof(ngx_http_modelgw_marks) / sizeof(ngx_modelgw_scan_mark_t))


/* of each of them, in the same order */

static ngx_http_modelgw_mark_e  ngx_http_modelgw_mark_kinds[] = {

    NGX_HTTP_MODELGW_MARK_MEDIA,
    NGX_HTTP_MODELGW_MARK_MEDIA,
    NGX_HTTP_MODELGW_MARK_MEDIA,

    NGX_HTTP_MODELGW_MARK_DOCUMENT,
    NGX_HTTP_MODELGW_MARK_DOCUMENT,
    NGX_HTTP_MODELGW_MARK_DOCUMENT,
    NGX_HTTP_MODELGW_MARK_DOCUMENT,

    NGX_HTTP_MODELGW_MARK_TOOLS,
    NGX_HTTP_MODELGW_MARK_TOOLS,
    NGX_HTTP_MODELGW_MARK_TOOLS,
    NGX_HTTP_MODELGW_MARK_TOOLS,
    NGX_HTTP_MODELGW_MARK_TOOLS,

    NGX_HTTP_MODELGW_MARK_LONG_CACHE,

    NGX_HTTP_MODELGW_MARK_BILLED,
    NGX_HTTP_MODELGW_MARK_BILLED,
    NGX_HTTP_MODELGW_MARK_BILLED,
    NGX_HTTP_MODELGW_MARK_BILLED,
    NGX_HTTP_MODELGW_MARK_BILLED,
    NGX_HTTP_MODELGW_MARK_BILLED
};


/* a table that is longer than the other one does not compile */

typedef u_char  ngx_http_modelgw_marks_have_kinds[
    (NGX_HTTP_MODELGW_MARKS == sizeof(ngx_http_modelgw_mark_kinds)
                               / sizeof(ngx_http_modelgw_mark_e)) ? 1 : -1];


/* words that leave the price as it is */

static ngx_str_t  ngx_http_modelgw_plain_words[] = {
    ngx_string("auto"),
    ngx_string("default"),
    ngx_string("standard"),
    ngx_string("standard_only"),
    ngx_string("global"),
    ngx_null_string
};


static ngx_http_modelgw_extras_header_t  ngx_http_modelgw_dear_headers[] = {
    { ngx_string("anthropic-beta"), ngx_string("context-1m"),
      "long contexts" },
    { ngx_null_string, ngx_null_string, NULL }
};


void
ngx_http_modelgw_extras_marks(ngx_modelgw_scan_conf_t *conf)
{
    conf->marks = ngx_http_modelgw_marks;
    conf->nmarks = NGX_HTTP_MODELGW_MARKS;
}


void
ngx_http_modelgw_extras_count(ngx_http_modelgw_ctx_t *ctx, int64_t *n)
{
    uint32_t    *marks;
    ngx_uint_t   i;

    ngx_memzero(n, NGX_HTTP_MODELGW_MARK_KINDS * sizeof(int64_t));

    marks = ngx_modelgw_scan_marks(ctx->scan);

    for (i = 0; i < NGX_HTTP_MODELGW_MARKS; i++) {

        /* most have none */

        if (marks[i]) {
            n[ngx_http_modelgw_mark_kinds[i]] += marks[i];
        }
    }
}


ngx_int_t
ngx_http_modelgw_extras(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n)
{
    ngx_uint_t  i;

    for (i = NGX_HTTP_MODELGW_EXTRAS; i <= NGX_HTTP_MODELGW_EXTRAS_LAST; i++) {

        if (!ngx_http_modelgw_extras_plain(ngx_modelgw_scan_value(ctx->scan,
                                                                  i)))
        {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "INVALID_FIELD",
                                          "\"%V\" has a price of its own and "
                                          "is not available for this model",
                                          &ctx->scan_conf->watches[i].path);
        }
    }

    if (n[NGX_HTTP_MODELGW_MARK_BILLED]) {
        return ngx_http_modelgw_extras_billed(r, ctx);
    }

    return ngx_http_modelgw_extras_headers(r, ctx);
}


/* The first of the table's that occurs is named. */

static ngx_int_t
ngx_http_modelgw_extras_billed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                i;
    ngx_modelgw_scan_mark_t  *mark;

    i = 0;

    while (ngx_http_modelgw_mark_kinds[i] != NGX_HTTP_MODELGW_MARK_BILLED
           || ngx_modelgw_scan_mark(ctx->scan, i) == 0)
    {
        i++;
    }

    mark = &ngx_http_modelgw_marks[i];

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                  "INVALID_FIELD",
                                  "\"%V%s%V\" has a price of its own and is "
                                  "not available for this model", &mark->name,
                                  mark->value.len ? "\": \"" : "",
                                  &mark->value);
}


static ngx_uint_t
ngx_http_modelgw_extras_plain(ngx_modelgw_scan_value_t *v)
{
    ngx_str_t  *word;

    if (v->type == NGX_MODELGW_SCAN_ABSENT || v->type == NGX_MODELGW_SCAN_NULL)
    {
        return 1;
    }

    if (v->type != NGX_MODELGW_SCAN_STRING) {
        return 0;
    }

    for (word = ngx_http_modelgw_plain_words; word->len; word++) {

        if (word->len == v->len
            && ngx_memcmp(word->data, v->text, v->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_modelgw_extras_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_table_elt_t                 *h;
    ngx_http_modelgw_headers_t       hs;
    ngx_http_modelgw_extras_header_t  *dear;

    /* those of the messages API do not pass a translation */

    if (ctx->endpoint->protocol != NGX_MODELGW_MESSAGES) {
        return NGX_OK;
    }

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        for (dear = ngx_http_modelgw_dear_headers; dear->text; dear++) {

            if (ngx_http_modelgw_headers_same(&dear->header, &h->key)
                && ngx_http_modelgw_headers_holds(&h->value, &dear->part))
            {
                return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                              "INVALID_FIELD",
                                              "\"%V: %V…\": %s have a price "
                                              "of their own and are not "
                                              "available for this model",
                                              &dear->header, &dear->part,
                                              dear->text);
            }
        }
    }

    return NGX_OK;
}
