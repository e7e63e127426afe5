
/*
 * Errors as clients see them: the codes and messages for statuses that nginx
 * generates, and the forms of an error.  Both are tables.  Errors of upstreams
 * are in ngx_modelgw_error_upstream.c.
 *
 * A form is a list of pieces, each a literal and the string of the error that
 * follows it.
 *
 * Rejected: a format of ngx_sprintf() for each form; it cannot escape strings.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_out.h"


/* bytes allocated at first: enough for most errors, which have no escapes */
#define NGX_MODELGW_ERROR_SIZE  (2 * NGX_MODELGW_ERROR_MAX_MESSAGE + 512)


typedef struct {
    ngx_uint_t            status;        /* of nginx; 0: any other */
    ngx_uint_t            answer;        /* for the client; 0: the same */
    ngx_str_t             code;
    ngx_str_t             message;
} ngx_modelgw_error_row_t;


typedef struct {
    ngx_uint_t            status;
    ngx_str_t             type;
} ngx_modelgw_error_type_t;


typedef struct {
    ngx_str_t             text;
    size_t                offset;        /* of an ngx_str_t in
                                            ngx_modelgw_error_t, or _END */
} ngx_modelgw_error_piece_t;

#define NGX_MODELGW_ERROR_END   ((size_t) -1)

#define NGX_MODELGW_ERROR_CODE  offsetof(ngx_modelgw_error_t, code)
#define NGX_MODELGW_ERROR_TEXT  offsetof(ngx_modelgw_error_t, message)
#define NGX_MODELGW_ERROR_TYPE  offsetof(ngx_modelgw_error_t, type)


static void ngx_modelgw_error_fill(ngx_modelgw_error_t *e,
    ngx_modelgw_error_row_t *row, ngx_uint_t status);


static ngx_modelgw_error_row_t  ngx_modelgw_error_cut = {
    502, 0, ngx_string("UPSTREAM_TRUNCATED"),
    ngx_string("The upstream closed the stream before it was complete")
};


/* by the status that nginx has generated */

static ngx_modelgw_error_row_t  ngx_modelgw_error_rows[] = {

    { 401, 0, ngx_string("INVALID_API_KEY"),
      ngx_string("Invalid API key") },

    { 403, 0, ngx_string("FORBIDDEN"),
      ngx_string("Access is denied") },

    { 404, 0, ngx_string("NOT_FOUND"),
      ngx_string("No such endpoint") },

    { 405, 0, ngx_string("METHOD_NOT_ALLOWED"),
      ngx_string("The method is not allowed here") },

    { 408, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The request was not received in time") },

    { 411, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The request needs a Content-Length") },

    { 412, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("A precondition of the request failed") },

    { 413, 0, ngx_string("REQUEST_TOO_LARGE"),
      ngx_string("The request body is too large") },

    { 414, 0, ngx_string("REQUEST_TOO_LARGE"),
      ngx_string("The request URI is too long") },

    { 415, 0, ngx_string("UNSUPPORTED_ENCODING"),
      ngx_string("The request body must not be encoded") },

    { 416, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The requested range cannot be served") },

    { 421, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The request was sent to the wrong server") },

    { 425, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The request must not be sent as early data") },

    { 429, 0, ngx_string("RATE_LIMITED"),
      ngx_string("Too many requests, retry later") },

    { 431, 400, ngx_string("INVALID_REQUEST"),
      ngx_string("The request header is too large") },

    { 494, 400, ngx_string("INVALID_REQUEST"),
      ngx_string("The request header is too large") },

    { 495, 400, ngx_string("INVALID_REQUEST"),
      ngx_string("The client certificate was refused") },

    { 496, 400, ngx_string("INVALID_REQUEST"),
      ngx_string("A client certificate is needed") },

    { 497, 400, ngx_string("INVALID_REQUEST"),
      ngx_string("Plain HTTP was sent to an HTTPS port") },

    { 501, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The request uses something that is not implemented") },

    { 502, 0, ngx_string("UPSTREAM_ERROR"),
      ngx_string("The upstream failed") },

    { 503, 0, ngx_string("SERVICE_UNAVAILABLE"),
      ngx_string("The service is not available, retry later") },

    { 504, 0, ngx_string("UPSTREAM_TIMEOUT"),
      ngx_string("The upstream timed out") },

    { 505, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The HTTP version is not supported") },

    { 507, 503, ngx_string("SERVICE_UNAVAILABLE"),
      ngx_string("The service is not available, retry later") },

    { 0, 0, ngx_string("INVALID_REQUEST"),
      ngx_string("The request is invalid") }
};


static ngx_modelgw_error_row_t  ngx_modelgw_error_internal = {
    0, 500, ngx_string("INTERNAL_ERROR"),
    ngx_string("Internal error")
};


static ngx_modelgw_error_row_t  ngx_modelgw_error_unavailable = {
    0, 503, ngx_string("UPSTREAM_UNAVAILABLE"),
    ngx_string("The upstream cannot be reached, retry later")
};


/* types of the messages API */

static ngx_modelgw_error_type_t  ngx_modelgw_error_types[] = {
    { 401, ngx_string("authentication_error") },
    { 402, ngx_string("billing_error") },
    { 403, ngx_string("permission_error") },
    { 404, ngx_string("not_found_error") },
    { 408, ngx_string("timeout_error") },
    { 413, ngx_string("request_too_large") },
    { 414, ngx_string("request_too_large") },
    { 429, ngx_string("rate_limit_error") },
    { 503, ngx_string("overloaded_error") },
    { 504, ngx_string("timeout_error") },
    { 529, ngx_string("overloaded_error") },
    { 0, ngx_null_string }
};


static ngx_str_t  ngx_modelgw_error_type_client =
    ngx_string("invalid_request_error");
static ngx_str_t  ngx_modelgw_error_type_server = ngx_string("api_error");


static ngx_modelgw_error_piece_t  ngx_modelgw_error_flat[] = {
    { ngx_string("{\"code\":"), NGX_MODELGW_ERROR_CODE },
    { ngx_string(",\"message\":"), NGX_MODELGW_ERROR_TEXT },
    { ngx_string("}"), NGX_MODELGW_ERROR_END }
};


static ngx_modelgw_error_piece_t  ngx_modelgw_error_compat[] = {
    { ngx_string("{\"code\":"), NGX_MODELGW_ERROR_CODE },
    { ngx_string(",\"message\":"), NGX_MODELGW_ERROR_TEXT },
    { ngx_string(",\"type\":\"error\",\"error\":{\"type\":"),
      NGX_MODELGW_ERROR_TYPE },
    { ngx_string(",\"code\":"), NGX_MODELGW_ERROR_CODE },
    { ngx_string(",\"message\":"), NGX_MODELGW_ERROR_TEXT },
    { ngx_string("}}"), NGX_MODELGW_ERROR_END }
};


static ngx_modelgw_error_piece_t  ngx_modelgw_error_chat[] = {
    { ngx_string("data: {\"code\":"), NGX_MODELGW_ERROR_CODE },
    { ngx_string(",\"message\":"), NGX_MODELGW_ERROR_TEXT },
    { ngx_string(",\"error\":{\"code\":"), NGX_MODELGW_ERROR_CODE },
    { ngx_string(",\"message\":"), NGX_MODELGW_ERROR_TEXT },
    { ngx_string("}}\n\n"), NGX_MODELGW_ERROR_END }
};


static ngx_modelgw_error_piece_t  ngx_modelgw_error_messages[] = {
    { ngx_string("event: error\n"
                 "data: {\"type\":\"error\",\"error\":{\"type\":"),
      NGX_MODELGW_ERROR_TYPE },
    { ngx_string(",\"message\":"), NGX_MODELGW_ERROR_TEXT },
    { ngx_string("}}\n\n"), NGX_MODELGW_ERROR_END }
};


static ngx_modelgw_error_piece_t  *ngx_modelgw_error_forms[] = {
    [NGX_MODELGW_ERROR_FLAT] = ngx_modelgw_error_flat,
    [NGX_MODELGW_ERROR_COMPAT] = ngx_modelgw_error_compat,
    [NGX_MODELGW_ERROR_CHAT] = ngx_modelgw_error_chat,
    [NGX_MODELGW_ERROR_MESSAGES] = ngx_modelgw_error_messages
};


void
ngx_modelgw_error_nginx(ngx_uint_t status, ngx_uint_t connected,
    ngx_modelgw_error_t *e)
{
    ngx_modelgw_error_row_t  *row;

    if (status == 502 && !connected) {
        ngx_modelgw_error_fill(e, &ngx_modelgw_error_unavailable, status);
        return;
    }

    for (row = ngx_modelgw_error_rows; row->status; row++) {
        if (row->status == status) {
            break;
        }
    }

    if (row->status == 0 && (status < 400 || status > 499)) {
        row = &ngx_modelgw_error_internal;
    }

    ngx_modelgw_error_fill(e, row, status);
}


void
ngx_modelgw_error_truncated(ngx_modelgw_error_t *e)
{
    ngx_modelgw_error_fill(e, &ngx_modelgw_error_cut, 502);
}


static void
ngx_modelgw_error_fill(ngx_modelgw_error_t *e, ngx_modelgw_error_row_t *row,
    ngx_uint_t status)
{
    e->status = row->answer ? row->answer : status;
    e->code = row->code;
    e->message = row->message;
    e->log_error = 0;

    ngx_modelgw_error_type(e->status, &e->type);
}


void
ngx_modelgw_error_type(ngx_uint_t status, ngx_str_t *type)
{
    ngx_modelgw_error_type_t  *row;

    for (row = ngx_modelgw_error_types; row->status; row++) {
        if (row->status == status) {
            *type = row->type;
            return;
        }
    }

    *type = (status >= 400 && status < 500) ? ngx_modelgw_error_type_client
                                            : ngx_modelgw_error_type_server;
}


ngx_int_t
ngx_modelgw_error_render(ngx_pool_t *pool, ngx_modelgw_error_t *e,
    ngx_modelgw_error_form_e form, ngx_str_t *out)
{
    ngx_str_t                  *s;
    ngx_modelgw_out_t           json;
    ngx_modelgw_out_piece_t     memory;
    ngx_modelgw_error_piece_t  *piece;

    ngx_modelgw_out_piece(&json, &memory, pool, NGX_MODELGW_ERROR_SIZE);

    for (piece = ngx_modelgw_error_forms[form]; /* void */ ; piece++) {

        ngx_modelgw_out(&json, piece->text.data, piece->text.len);

        if (piece->offset == NGX_MODELGW_ERROR_END) {
            break;
        }

        s = (ngx_str_t *) ((u_char *) e + piece->offset);
        ngx_modelgw_out_string(&json, s);
    }

    return ngx_modelgw_out_piece_done(&json, out);
}
