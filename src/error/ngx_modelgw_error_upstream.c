
/*
 * The errors that clients get for errors of an upstream: a table by status.
 * The upstream's own text is used only where the client is at fault (400, 413,
 * 422): assistants match on it.  All others get a fixed text: an upstream's 401
 * or 402 is about our credential, and would make a client ask its user to log
 * in.
 *
 * In a 200 and in a stream the status is lost; the code or the type of the
 * error object gives one.  In a stream that is passed on, text and type are
 * sent as the upstream's own event would have, unless we are at fault.
 *
 * Rejected: passing on codes and types of upstreams in general; clients would
 * meet the vocabularies of several vendors at one gateway.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_document.h"
#include "ngx_modelgw_error.h"
#include "ngx_modelgw_usage.h"


#define NGX_MODELGW_ERROR_UPSTREAM_TYPE     64      /* bytes, at most */

/* flags of a row */

#define NGX_MODELGW_ERROR_UPSTREAM_LOG      0x01    /* log_error is set */
#define NGX_MODELGW_ERROR_UPSTREAM_TEXT     0x02    /* the upstream's text
                                                       is used */
#define NGX_MODELGW_ERROR_UPSTREAM_CONTEXT  0x04    /* it may be about the
                                                       context's length */
#define NGX_MODELGW_ERROR_UPSTREAM_PRIVATE  0x08    /* about the operator's
                                                       account: its text is
                                                       never used */


typedef struct {
    ngx_uint_t            status;        /* of the upstream; 0: any other */
    ngx_uint_t            answer;        /* the status for the client */
    ngx_str_t             code;
    ngx_str_t             message;       /* unless the upstream's is used */
    ngx_uint_t            flags;
} ngx_modelgw_error_upstream_row_t;


typedef struct {
    ngx_str_t             word;
    ngx_uint_t            status;
} ngx_modelgw_error_upstream_word_t;


/* the strings of an error, in the shapes that upstreams use */

typedef struct {
    ngx_str_t             message;       /* in "error" */
    ngx_str_t             type;          /* in "error" */
    ngx_str_t             code;          /* in "error" */
    ngx_str_t             error;         /* "error", if a string */
    ngx_str_t             flat;          /* "message" at the root */
    ngx_str_t             flat_code;
    ngx_str_t             detail;
} ngx_modelgw_error_upstream_doc_t;


static ngx_int_t ngx_modelgw_error_upstream_read(ngx_pool_t *pool,
    ngx_str_t *body, ngx_modelgw_error_upstream_doc_t *doc);
static ngx_modelgw_error_upstream_row_t *ngx_modelgw_error_upstream_row(
    ngx_uint_t status);
static ngx_uint_t ngx_modelgw_error_upstream_status(
    ngx_modelgw_error_upstream_doc_t *doc);
static ngx_uint_t ngx_modelgw_error_upstream_word(ngx_str_t *word);
static ngx_str_t *ngx_modelgw_error_upstream_text(
    ngx_modelgw_error_upstream_doc_t *doc);
static ngx_uint_t ngx_modelgw_error_upstream_is_html(ngx_str_t *text);
static ngx_uint_t ngx_modelgw_error_upstream_is_context(
    ngx_modelgw_error_upstream_doc_t *doc, ngx_str_t *text);
static ngx_uint_t ngx_modelgw_error_upstream_is_type(ngx_str_t *type);


#define ngx_modelgw_error_upstream_slot(path, field)                          \
    { ngx_string(path), offsetof(ngx_modelgw_error_upstream_doc_t, field) }


static ngx_modelgw_document_slot_t  ngx_modelgw_error_upstream_slots[] = {
    ngx_modelgw_error_upstream_slot("error.message", message),
    ngx_modelgw_error_upstream_slot("error.type", type),
    ngx_modelgw_error_upstream_slot("error.code", code),
    ngx_modelgw_error_upstream_slot("error", error),
    ngx_modelgw_error_upstream_slot("message", flat),
    ngx_modelgw_error_upstream_slot("code", flat_code),
    ngx_modelgw_error_upstream_slot("detail", detail),
    { ngx_null_string, 0 }
};


/* by the upstream's status */

static ngx_modelgw_error_upstream_row_t  ngx_modelgw_error_upstream_rows[] = {

    { 400, 400, ngx_string("INVALID_REQUEST"),
      ngx_string("The upstream refused the request as invalid"),
      NGX_MODELGW_ERROR_UPSTREAM_TEXT|NGX_MODELGW_ERROR_UPSTREAM_CONTEXT },

    { 422, 400, ngx_string("INVALID_REQUEST"),
      ngx_string("The upstream refused the request as invalid"),
      NGX_MODELGW_ERROR_UPSTREAM_TEXT|NGX_MODELGW_ERROR_UPSTREAM_CONTEXT },

    { 413, 413, ngx_string("REQUEST_TOO_LARGE"),
      ngx_string("The request is too large for the upstream"),
      NGX_MODELGW_ERROR_UPSTREAM_TEXT },

    { 401, 502, ngx_string("UPSTREAM_ERROR"),
      ngx_string("The upstream could not serve this model"),
      NGX_MODELGW_ERROR_UPSTREAM_LOG },

    { 402, 502, ngx_string("UPSTREAM_ERROR"),
      ngx_string("The upstream could not serve this model"),
      NGX_MODELGW_ERROR_UPSTREAM_LOG },

    { 403, 502, ngx_string("UPSTREAM_ERROR"),
      ngx_string("The upstream could not serve this model"),
      NGX_MODELGW_ERROR_UPSTREAM_LOG },

    { 404, 502, ngx_string("UPSTREAM_ERROR"),
      ngx_string("The upstream could not serve this model"),
      NGX_MODELGW_ERROR_UPSTREAM_LOG },

    { 409, 502, ngx_string("UPSTREAM_ERROR"),
      ngx_string("The upstream could not serve this model"),
      NGX_MODELGW_ERROR_UPSTREAM_LOG },

    { 429, 429, ngx_string("RATE_LIMITED"),
      ngx_string("The upstream is rate limiting this gateway, retry later"),
      NGX_MODELGW_ERROR_UPSTREAM_PRIVATE },

    { 408, 504, ngx_string("UPSTREAM_TIMEOUT"),
      ngx_string("The upstream timed out"), 0 },

    { 504, 504, ngx_string("UPSTREAM_TIMEOUT"),
      ngx_string("The upstream timed out"), 0 },

    { 503, 503, ngx_string("UPSTREAM_OVERLOADED"),
      ngx_string("The upstream is overloaded, retry later"), 0 },

    { 529, 529, ngx_string("UPSTREAM_OVERLOADED"),
      ngx_string("The upstream is overloaded, retry later"), 0 },

    { 0, 502, ngx_string("UPSTREAM_ERROR"),
      ngx_string("The upstream failed"), 0 }
};


/* other statuses below 500, redirects included: no working upstream has them */

static ngx_modelgw_error_upstream_row_t
    ngx_modelgw_error_upstream_unexpected =
{
    0, 502, ngx_string("UPSTREAM_ERROR"),
    ngx_string("The upstream gave an unexpected answer"),
    NGX_MODELGW_ERROR_UPSTREAM_LOG
};


/* "type" and "code" of both APIs, and the status that each has */

static ngx_modelgw_error_upstream_word_t  ngx_modelgw_error_upstream_words[] = {
    { ngx_string("invalid_request_error"), 400 },
    { ngx_string("context_length_exceeded"), 400 },
    { ngx_string("invalid_prompt"), 400 },
    { ngx_string("authentication_error"), 401 },
    { ngx_string("invalid_api_key"), 401 },
    { ngx_string("billing_error"), 402 },
    { ngx_string("insufficient_quota"), 402 },
    { ngx_string("permission_error"), 403 },
    { ngx_string("not_found_error"), 404 },
    { ngx_string("model_not_found"), 404 },
    { ngx_string("request_too_large"), 413 },
    { ngx_string("rate_limit_error"), 429 },
    { ngx_string("rate_limit_exceeded"), 429 },
    { ngx_string("api_error"), 500 },
    { ngx_string("server_error"), 500 },
    { ngx_string("timeout_error"), 504 },
    { ngx_string("overloaded_error"), 529 },
    { ngx_null_string, 0 }
};


/* phrases about a context that is too long, in lower case */

static ngx_str_t  ngx_modelgw_error_upstream_context_phrases[] = {
    ngx_string("prompt is too long"),
    ngx_string("input is too long"),
    ngx_string("maximum context length"),
    ngx_string("maximum prompt length"),
    ngx_string("context length exceeded"),
    ngx_string("context window exceeded"),
    ngx_string("exceed context"),
    ngx_string("exceeds context"),
    ngx_string("exceed the context"),
    ngx_string("exceeds the context"),
    ngx_string("exceed the available context"),
    ngx_string("exceeds the available context"),
    ngx_string("exceed the model's context"),
    ngx_string("exceeds the model's context"),
    ngx_string("exceeds the maximum number of tokens"),
    ngx_string("reduce the length of the"),
    ngx_null_string
};


static ngx_str_t  ngx_modelgw_error_upstream_context =
    ngx_string("CONTEXT_LENGTH_EXCEEDED");
static ngx_str_t  ngx_modelgw_error_upstream_context_code =
    ngx_string("context_length_exceeded");


ngx_int_t
ngx_modelgw_error_upstream(ngx_pool_t *pool, ngx_uint_t status,
    ngx_str_t *body, ngx_uint_t protocol, ngx_uint_t event,
    ngx_modelgw_error_mask_t *mask, ngx_modelgw_error_t *e)
{
    ngx_str_t                         *text;
    ngx_modelgw_error_upstream_doc_t   doc;
    ngx_modelgw_error_upstream_row_t  *row;

    if (ngx_modelgw_error_upstream_read(pool, body, &doc) != NGX_OK) {
        return NGX_ERROR;
    }

    if (status >= 200 && status < 300) {
        status = ngx_modelgw_error_upstream_status(&doc);
    }

    row = ngx_modelgw_error_upstream_row(status);

    e->status = row->answer;
    e->code = row->code;
    e->message = row->message;
    e->log_error = (row->flags & NGX_MODELGW_ERROR_UPSTREAM_LOG) != 0;

    /* only clients of the messages API know 529 */

    if (e->status == 529 && protocol != NGX_MODELGW_MESSAGES) {
        e->status = 503;
    }

    ngx_modelgw_error_type(e->status, &e->type);

    if (event
        && protocol == NGX_MODELGW_MESSAGES
        && !e->log_error
        && ngx_modelgw_error_upstream_is_type(&doc.type))
    {
        e->type = doc.type;
    }

    text = ngx_modelgw_error_upstream_text(&doc);

    if ((row->flags & NGX_MODELGW_ERROR_UPSTREAM_CONTEXT)
        && ngx_modelgw_error_upstream_is_context(&doc, text))
    {
        e->code = ngx_modelgw_error_upstream_context;
    }

    if (text == NULL) {
        return NGX_OK;
    }

    if ((row->flags & NGX_MODELGW_ERROR_UPSTREAM_TEXT)
        || (event
            && !(row->flags & (NGX_MODELGW_ERROR_UPSTREAM_LOG
                               |NGX_MODELGW_ERROR_UPSTREAM_PRIVATE))))
    {
        return ngx_modelgw_scrub(pool, mask, text,
                                 NGX_MODELGW_ERROR_MAX_MESSAGE, &e->message);
    }

    return NGX_OK;
}


/* a body that is not a complete JSON object is ignored */

static ngx_int_t
ngx_modelgw_error_upstream_read(ngx_pool_t *pool, ngx_str_t *body,
    ngx_modelgw_error_upstream_doc_t *doc)
{
    ngx_int_t  rc;

    ngx_memzero(doc, sizeof(ngx_modelgw_error_upstream_doc_t));

    rc = ngx_modelgw_document_read(pool, body, ngx_modelgw_error_upstream_slots,
                               doc);

    if (rc == NGX_DECLINED) {
        ngx_memzero(doc, sizeof(ngx_modelgw_error_upstream_doc_t));
        return NGX_OK;
    }

    return rc;
}


static ngx_modelgw_error_upstream_row_t *
ngx_modelgw_error_upstream_row(ngx_uint_t status)
{
    ngx_modelgw_error_upstream_row_t  *row;

    for (row = ngx_modelgw_error_upstream_rows; row->status; row++) {
        if (row->status == status) {
            return row;
        }
    }

    if (status && status < 500) {
        return &ngx_modelgw_error_upstream_unexpected;
    }

    return row;
}


/*
 * Returns the status that an error object implies, or 0.  The code is more
 * specific than the type, and may be a status itself.
 */

static ngx_uint_t
ngx_modelgw_error_upstream_status(ngx_modelgw_error_upstream_doc_t *doc)
{
    ngx_uint_t  status;

    status = ngx_modelgw_error_upstream_word(&doc->code);

    if (status == 0) {
        status = ngx_modelgw_error_upstream_word(&doc->type);
    }

    if (status == 0) {
        status = ngx_modelgw_error_upstream_word(&doc->flat_code);
    }

    return status;
}


static ngx_uint_t
ngx_modelgw_error_upstream_word(ngx_str_t *word)
{
    ngx_int_t                           n;
    ngx_modelgw_error_upstream_word_t  *w;

    for (w = ngx_modelgw_error_upstream_words; w->word.len; w++) {
        if (w->word.len == word->len
            && ngx_memcmp(w->word.data, word->data, word->len) == 0)
        {
            return w->status;
        }
    }

    n = ngx_atoi(word->data, word->len);

    return (n >= 400 && n <= 599) ? n : 0;
}


/* returns the upstream's text, or NULL if there is none that can be shown */

static ngx_str_t *
ngx_modelgw_error_upstream_text(ngx_modelgw_error_upstream_doc_t *doc)
{
    ngx_str_t   *text[4];
    ngx_uint_t   i;

    text[0] = &doc->message;
    text[1] = &doc->error;
    text[2] = &doc->flat;
    text[3] = &doc->detail;

    for (i = 0; i < 4; i++) {
        if (text[i]->len && !ngx_modelgw_error_upstream_is_html(text[i])) {
            return text[i];
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_modelgw_error_upstream_is_html(ngx_str_t *text)
{
    u_char  *p, *last;

    p = text->data;
    last = p + text->len;

    while (p < last && (*p == ' ' || *p == CR || *p == LF || *p == '\t')) {
        p++;
    }

    return (last - p >= 5 && ngx_strncasecmp(p, (u_char *) "<html", 5) == 0)
           || (last - p >= 9
               && ngx_strncasecmp(p, (u_char *) "<!doctype", 9) == 0);
}


static ngx_uint_t
ngx_modelgw_error_upstream_is_context(ngx_modelgw_error_upstream_doc_t *doc,
    ngx_str_t *text)
{
    ngx_str_t  *code, *phrase;

    code = &ngx_modelgw_error_upstream_context_code;

    if ((doc->code.len == code->len
         && ngx_memcmp(doc->code.data, code->data, code->len) == 0)
        || (doc->flat_code.len == code->len
            && ngx_memcmp(doc->flat_code.data, code->data, code->len) == 0))
    {
        return 1;
    }

    if (text == NULL) {
        return 0;
    }

    phrase = ngx_modelgw_error_upstream_context_phrases;

    for ( /* void */ ; phrase->len; phrase++) {
        if (phrase->len <= text->len
            && ngx_strlcasestrn(text->data, text->data + text->len,
                                phrase->data, phrase->len - 1)
               != NULL)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_modelgw_error_upstream_is_type(ngx_str_t *type)
{
    size_t  i;

    if (type->len == 0 || type->len > NGX_MODELGW_ERROR_UPSTREAM_TYPE) {
        return 0;
    }

    for (i = 0; i < type->len; i++) {
        if ((type->data[i] < 'a' || type->data[i] > 'z')
            && type->data[i] != '_')
        {
            return 0;
        }
    }

    return 1;
}
