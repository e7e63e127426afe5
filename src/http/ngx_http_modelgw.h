
/*
 * What the files of floor 1 share: the state of a request, and the functions,
 * grouped by the file that defines them.
 */


#ifndef _NGX_HTTP_MODELGW_H_INCLUDED_
#define _NGX_HTTP_MODELGW_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_completion.h"
#include "ngx_modelgw_error.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_splice.h"
#include "ngx_modelgw_sse.h"
#include "ngx_modelgw_usage.h"

#include "ngx_http_modelgw_conf.h"


/* one row of the table of endpoints, in access.c */

#define NGX_HTTP_MODELGW_PREFIX      0x01   /* the URI begins so */
#define NGX_HTTP_MODELGW_MAX_TOKENS  0x02   /* the body must have max_tokens */
#define NGX_HTTP_MODELGW_COUNT       0x04   /* answers a number of tokens, and
                                               uses none */
#define NGX_HTTP_MODELGW_WEBSOCKET   0x08   /* asked for over WebSocket, which
                                               is refused */

typedef struct {
    ngx_str_t                         uri;
    ngx_uint_t                        method;      /* NGX_HTTP_GET or _POST */
    ngx_uint_t                        protocol;    /* 0: we answer ourselves */
    ngx_str_t                         upstream_uri;
    ngx_str_t                         upstream_uri_beta; /* for ?beta=true */
    ngx_uint_t                        flags;
} ngx_http_modelgw_endpoint_t;


/* what becomes of the response: see the states in filter.c */

typedef enum {
    NGX_HTTP_MODELGW_PASS = 0,           /* not ours */
    NGX_HTTP_MODELGW_OWN,                /* made by us, flat already */
    NGX_HTTP_MODELGW_ANSWER,             /* upstream's JSON */
    NGX_HTTP_MODELGW_STREAM,             /* upstream's events */
    NGX_HTTP_MODELGW_ERROR,              /* upstream's error */
    NGX_HTTP_MODELGW_ENDED               /* all is sent, the rest is dropped */
} ngx_http_modelgw_mode_e;


typedef struct ngx_http_modelgw_abort_s   ngx_http_modelgw_abort_t;
typedef struct ngx_http_modelgw_answer_s  ngx_http_modelgw_answer_t;
typedef struct ngx_http_modelgw_limits_s  ngx_http_modelgw_limits_t;
typedef struct ngx_http_modelgw_stream_s  ngx_http_modelgw_stream_t;


/*
 * The state of a request, on the pool of the main request.
 *
 *     no key          nothing is known of the caller
 *     key             the key holds; the body is not read, or being scanned
 *     verdict         all checks are passed; $modelgw_upstream has a value
 *     forwarded       the value was given out; the proxy owns the request
 */
typedef struct {
    ngx_http_request_t                 *request;     /* the main one */
    ngx_http_modelgw_endpoint_t        *endpoint;
    ngx_modelgw_key_t                  *key;
    ngx_str_t                           secret;      /* as the client sent it */
    ngx_http_modelgw_group_t           *group;
    ngx_http_modelgw_model_t           *model;
    ngx_str_t                           service_id;  /* as the client says */
    ngx_str_t                           service_json; /* the same, in quotes */
    ngx_str_t                           upstream_id;
    ngx_uint_t                          protocol;    /* the upstream's, of this
                                                        call */
    ngx_uint_t                          choices;     /* "n" of a chat call */
    ngx_str_t                           ignored;     /* fields that translation
                                                        has dropped */

    ngx_modelgw_scan_conf_t            *scan_conf;
    ngx_modelgw_scan_t                 *scan;        /* of the request's body */

    ngx_http_modelgw_mode_e             mode;
    ngx_modelgw_error_t                 error;       /* what was answered;
                                                        code.len 0: none */
    ngx_modelgw_usage_t                 usage;
    ngx_modelgw_call_t                 *call;        /* NULL: none, or ended */
    uint64_t                            call_id;
    ngx_modelgw_charge_t                charge;      /* when it has ended */
    ngx_http_modelgw_limits_t          *limits;      /* as they were taken;
                                                        NULL: none are told */
    ngx_http_modelgw_abort_t           *abort;       /* the client has left */
    ngx_msec_t                          first_byte;  /* since the start */

    ngx_table_elt_t                    *credential;  /* while it is set */
    ngx_list_part_t                    *unlisted;    /* the client's headers
                                                        that are not listed,
                                                        while they are out of
                                                        headers_in */

    ngx_http_modelgw_answer_t          *answer;      /* ANSWER and ERROR */
    ngx_http_modelgw_stream_t          *stream;      /* STREAM */

    void                              (*finalize_upstream)(
                                            ngx_http_request_t *r,
                                            ngx_int_t rc);
    ngx_int_t                         (*input_init)(void *data);
    ngx_int_t                         (*input)(void *data, ssize_t bytes);
    ngx_int_t                           upstream_rc; /* NGX_AGAIN: goes on */
    ngx_uint_t                          http_version; /* the client's */

    unsigned                            body_read:1;
    unsigned                            body_fault:1;
    unsigned                            verdict:1;
    unsigned                            forwarded:1;
    unsigned                            streaming:1;   /* "stream": true */
    unsigned                            usage_asked:1; /* by the client */
    unsigned                            translate:1;   /* chat to messages */
    unsigned                            complete:1;    /* all of the answer has
                                                          come */
    unsigned                            beta:1;        /* ?beta=true */
    unsigned                            header_held:1;
    unsigned                            answered:1;    /* first_byte is set */
    unsigned                            settled:1;     /* the call has ended,
                                                          and was charged */
    unsigned                            finishing:1;   /* the last choice has
                                                          ended, usage comes */
} ngx_http_modelgw_ctx_t;


extern ngx_module_t  ngx_http_modelgw_module;


/* access.c */

ngx_int_t ngx_http_modelgw_access_handler(ngx_http_request_t *r);

/*
 * A new state for the request, that nothing is known of: NULL, no memory.
 */
ngx_http_modelgw_ctx_t *ngx_http_modelgw_create_ctx(ngx_http_request_t *r);

/*
 * The state of the request, found again after internal redirects too; NULL if
 * it never came to a gateway location.
 */
ngx_http_modelgw_ctx_t *ngx_http_modelgw_get_ctx(ngx_http_request_t *r);

/* body.c */

ngx_int_t ngx_http_modelgw_precontent_handler(ngx_http_request_t *r);
void ngx_http_modelgw_body_filter_init(void);

/* verdict.c */

/*
 * The scanner for the body of the request's endpoint, in ctx->scan.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_verdict_scan(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Decides on the whole body, which has been read and scanned, and rewrites it.
 *     NGX_OK        ctx->verdict is set
 *     NGX_DECLINED  refused, ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_verdict(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* translate.c, translate_stream.c: chat calls on an upstream of messages */

/*
 * Makes the body, which has been read and scanned, a messages request.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Makes *out, *length bytes, the chat completion for the messages answer of
 * size bytes in the chain.
 *     NGX_OK
 *     NGX_DECLINED  it is no message
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_answer(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in, size_t size,
    ngx_chain_t **out, off_t *length);

/*
 * The size bytes of a chain in one piece; it is the chain's, or in memory of
 * the pool.
 *     NGX_OK
 *     NGX_ERROR     no memory, or a file that cannot be read
 */
ngx_int_t ngx_http_modelgw_translate_whole(ngx_http_request_t *r,
    ngx_chain_t *in, size_t size, ngx_str_t *doc);

/* What the codecs of answers must know of the call. */
void ngx_http_modelgw_translate_completion(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_completion_t *c);

/* tape.c */

/*
 * The worker's tape, with nothing on it; NULL: no memory.  What is put on it
 * is there until control goes back to the event loop, or to another caller.
 */
ngx_modelgw_tape_t *ngx_http_modelgw_tape(ngx_http_request_t *r);

/*
 * The same, with a document on it, which has been scanned.
 *     NGX_OK
 *     NGX_DECLINED  it has too many values
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_tape_index(ngx_http_request_t *r,
    ngx_str_t *doc, ngx_modelgw_tape_t **tape);

/* forward_headers.c */

void ngx_http_modelgw_forward_headers_init(void);

/*
 * Replaces the client's headers by those for the upstream, all but the
 * credential.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_forward_headers_in(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* unlisted.c: client headers that do not pass, for the log */

void ngx_http_modelgw_unlisted_count(ngx_str_t *name);

/* Logs what this worker has counted, and begins again. */
void ngx_http_modelgw_unlisted_log(ngx_log_t *log);

/* forward.c */

/* The getter of $modelgw_upstream. */
ngx_int_t ngx_http_modelgw_forward_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/*
 * Takes the credential off again, as soon as the upstream has it, and puts the
 * headers that did not pass back.
 */
void ngx_http_modelgw_forward_disarm(ngx_http_modelgw_ctx_t *ctx);

/* upstream.c */

void ngx_http_modelgw_upstream_init(void);

/* Has an answer with broken framing end as one that breaks off. */
void ngx_http_modelgw_upstream_watch(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Has nginx end the upstream's answer here, as if all of it had come. */
void ngx_http_modelgw_upstream_stop(ngx_http_request_t *r);

/*
 * Drops what must not reach the client of the headers in an upstream's answer.
 */
void ngx_http_modelgw_upstream_headers_out(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Sets ctx->error to what the client is told of an upstream's error: status of
 * the answer and its body, or 200 and an error object, which frame tells to go
 * out as an event of a stream that is passed on.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_upstream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_uint_t frame,
    ngx_str_t *body);

/* filter.c */

void ngx_http_modelgw_filter_init(void);

/*
 * Sends the header that was held back, then a chain, past our own filters.
 * The usual return codes of filters.
 */
ngx_int_t ngx_http_modelgw_filter_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_int_t ngx_http_modelgw_filter_body(ngx_http_request_t *r,
    ngx_chain_t *out);

/*
 * Sends ctx->error in place of the response whose header was not sent yet, and
 * drops all that is still to come of that.  The usual return codes of filters.
 */
ngx_int_t ngx_http_modelgw_filter_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * answer.c: JSON answers and errors of upstreams; stream.c: event streams.
 * _init() is called with the header, which it leaves held; _body() has the
 * return codes of filters.
 */

ngx_int_t ngx_http_modelgw_answer_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_mode_e mode);
ngx_int_t ngx_http_modelgw_answer_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);

/* A call ends that is not complete: reads what has come of a JSON answer. */
void ngx_http_modelgw_answer_cut(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

ngx_int_t ngx_http_modelgw_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_int_t ngx_http_modelgw_stream_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);

/* reply.c: what the gateway answers itself */

/*
 * Sets ctx->error; message is a format of ngx_sprintf().  Returns NGX_DECLINED,
 * or NGX_ERROR if there is no memory.
 */
ngx_int_t ngx_http_modelgw_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, const char *code,
    const char *fmt, ...);

/* The same for a WebSocket that was asked for: 426, with what it must carry. */
ngx_int_t ngx_http_modelgw_reply_upgrade(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Answers with ctx->error and finalizes the request.  Returns NGX_DONE, for a
 * phase handler to return.
 */
ngx_int_t ngx_http_modelgw_reply_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Answers 200 with the JSON in body and finalizes the request: NGX_DONE. */
ngx_int_t ngx_http_modelgw_reply_json(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body);

/*
 * Puts what every error answer carries into the response's headers, which must
 * not be sent yet, and *body: status, type, length, x-should-retry.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_error_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body);

/* Makes *out the whole body of a response: NGX_OK, NGX_ERROR (no memory). */
ngx_int_t ngx_http_modelgw_reply_body(ngx_http_request_t *r, ngx_str_t *body,
    ngx_chain_t *out);

/*
 * Makes the response carry request-id and x-request-id: the upstream's, else
 * $request_id.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_ids(ngx_http_request_t *r);

/*
 * Tells in a response's header which fields of the request had no effect.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_ignored(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* models.c: GET /v1/models and /v1/models/{id}; returns as reply.c does */

ngx_int_t ngx_http_modelgw_models(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* vars.c */

/* Milliseconds since the first byte of the request. */
ngx_msec_t ngx_http_modelgw_elapsed(ngx_http_request_t *r);

/* The first byte of the answer leaves. */
void ngx_http_modelgw_answered(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

ngx_int_t ngx_http_modelgw_add_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_MODELGW_H_INCLUDED_ */
