
/*
 * What the files of src/http/ share: the state of a request, and the functions
 * of each file.  A file that is named without its folder is in src/http/.
 *
 * Where NGX_DECLINED is "refused", ctx->error is set.
 */


#ifndef _NGX_HTTP_MODELGW_H_INCLUDED_
#define _NGX_HTTP_MODELGW_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_memo.h"
#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_usage.h"

#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_PAYMENT_REQUIRED    402     /* RFC 9110, 15.5.3 */


/* a row of the table of endpoints in access.c */

#define NGX_HTTP_MODELGW_PREFIX      0x01   /* uri is a prefix */
#define NGX_HTTP_MODELGW_MAX_TOKENS  0x02   /* max_tokens is required */
#define NGX_HTTP_MODELGW_COUNT       0x04   /* counts tokens, and uses none */
#define NGX_HTTP_MODELGW_WEBSOCKET   0x08   /* refuses WebSocket by 426 */

typedef struct {
    ngx_str_t                         uri;
    ngx_uint_t                        method;      /* NGX_HTTP_GET or _POST */
    ngx_uint_t                        protocol;    /* 0: answered here */
    ngx_str_t                         upstream_uri;
    ngx_str_t                         upstream_uri_beta; /* for ?beta=true */
    ngx_uint_t                        flags;
} ngx_http_modelgw_endpoint_t;


/* what the response is, see the head of filter.c */

typedef enum {
    NGX_HTTP_MODELGW_PASS = 0,           /* not of the gateway */
    NGX_HTTP_MODELGW_OWN,                /* from reply.c */
    NGX_HTTP_MODELGW_ANSWER,             /* an upstream's JSON */
    NGX_HTTP_MODELGW_STREAM,             /* an upstream's events */
    NGX_HTTP_MODELGW_LARGE,              /* JSON that is not collected */
    NGX_HTTP_MODELGW_ERROR,              /* an upstream's error */
    NGX_HTTP_MODELGW_ENDED               /* sent, the rest is dropped */
} ngx_http_modelgw_mode_e;


typedef struct ngx_http_modelgw_abort_s   ngx_http_modelgw_abort_t;
typedef struct ngx_http_modelgw_json_s    ngx_http_modelgw_json_t;
typedef struct ngx_http_modelgw_large_s   ngx_http_modelgw_large_t;
typedef struct ngx_http_modelgw_limits_s  ngx_http_modelgw_limits_t;
typedef struct ngx_http_modelgw_retry_s   ngx_http_modelgw_retry_t;
typedef struct ngx_http_modelgw_stream_s  ngx_http_modelgw_stream_t;
typedef struct ngx_http_modelgw_wait_s    ngx_http_modelgw_wait_t;
typedef struct ngx_http_modelgw_bound_s   ngx_http_modelgw_bound_t;


/*
 * The state of a request, with the file that enters it.  States follow in this
 * order; DROPPING is entered only if the scan fails, WAITING in a cluster only.
 * A refused request keeps its state, and one of the administration is always
 * NEW.
 *
 *     NEW        ctx.c      the client is unknown
 *     KNOWN      access.c   request.key is valid
 *     READING    body.c     nginx reads the body, the body filter scans it
 *     DROPPING   body.c     the scan has failed, the rest is read and dropped
 *     READ       body.c     the body is complete, verdict.c decides on it
 *     WAITING    wait.c     all checks are passed, but no credit is lent yet,
 *                           or no tokens of the key's limit
 *     READY      verdict.c  all checks are passed, the body is rewritten, and
 *                           $modelgw_upstream has a value
 *     FORWARDED  forward.c  the value was read, the proxy owns the request
 *
 * answer.mode is not a part of this: another module's filter may turn a
 * response into an error page in any state.
 */

typedef enum {
    NGX_HTTP_MODELGW_NEW = 0,
    NGX_HTTP_MODELGW_KNOWN,
    NGX_HTTP_MODELGW_READING,
    NGX_HTTP_MODELGW_DROPPING,
    NGX_HTTP_MODELGW_READ,
    NGX_HTTP_MODELGW_WAITING,
    NGX_HTTP_MODELGW_READY,
    NGX_HTTP_MODELGW_FORWARDED
} ngx_http_modelgw_state_e;


/*
 * Why a request was refused, where the code does not say it; for the log, since
 * clients are not told.  The words and their statuses are in reply.c.
 */

typedef enum {
    NGX_HTTP_MODELGW_REASON_NONE = 0,

    /* 401 */

    NGX_HTTP_MODELGW_REASON_MISSING,     /* no credential */
    NGX_HTTP_MODELGW_REASON_UNKNOWN,
    NGX_HTTP_MODELGW_REASON_MALFORMED,   /* no credential that could be a key */
    NGX_HTTP_MODELGW_REASON_EXPIRED,
    NGX_HTTP_MODELGW_REASON_REVOKED,
    NGX_HTTP_MODELGW_REASON_DIFFER,      /* two keys */
    NGX_HTTP_MODELGW_REASON_CLOSED,      /* the account is */
    NGX_HTTP_MODELGW_REASON_UNKNOWN_GROUP, /* is not configured any more */

    /* 402 */

    NGX_HTTP_MODELGW_REASON_CREDIT,
    NGX_HTTP_MODELGW_REASON_BUDGET,

    /* 429 */

    NGX_HTTP_MODELGW_REASON_RPM,
    NGX_HTTP_MODELGW_REASON_TPM,
    NGX_HTTP_MODELGW_REASON_CONCURRENCY,
    NGX_HTTP_MODELGW_REASON_UPSTREAM     /* the upstream's limit */
} ngx_http_modelgw_reason_e;


/* a large body: body.c */

typedef struct {
    ngx_connection_t                   *connection;
    ngx_recv_pt                         recv;         /* the connection's; NULL:
                                                         it has it again */
    ngx_modelgw_memo_read_t             memo;         /* memo.memo NULL: none */
} ngx_http_modelgw_body_t;


/* what the client has sent: access.c, body.c */

typedef struct {
    ngx_http_modelgw_endpoint_t        *endpoint;
    ngx_str_t                           id;           /* in the path, of
                                                         PREFIX; len 0: none */
    ngx_modelgw_key_t                  *key;
    ngx_modelgw_key_t                  *found;        /* for the log: key, or
                                                         one that is refused */
    ngx_http_modelgw_reason_e           reason;
    ngx_str_t                           secret;       /* the key, as sent */
    ngx_modelgw_scan_conf_t            *scan_conf;
    ngx_modelgw_scan_t                 *scan;         /* NULL after the
                                                         verdict */
    ngx_http_modelgw_body_t            *body;         /* NULL: a small one */
    ngx_uint_t                          document;     /* number of the body on
                                                         the worker's tape; 0:
                                                         not put there */
    ngx_uint_t                          http_version; /* the client's */
    unsigned                            beta:1;       /* ?beta=true */
} ngx_http_modelgw_request_t;


/* the model call: verdict.c, responses.c, translate.c */

typedef struct {
    ngx_http_modelgw_model_t           *model;
    ngx_str_t                           service_id;   /* of the model, as the
                                                         client has it */
    ngx_str_t                           service_json; /* the same, in quotes */
    ngx_str_t                           upstream_id;  /* as the upstream does */
    ngx_uint_t                          protocol;     /* the upstream's */
    ngx_uint_t                          choices;      /* "n" of a chat call; 0:
                                                         streaming and this are
                                                         not known yet */
    ngx_str_t                           ignored;      /* names of the fields
                                                         that translation, or
                                                         responses.c, has
                                                         dropped */
    ngx_array_t                         cuts;         /* ngx_modelgw_cut_t, in
                                                         the body; elts NULL:
                                                         none */
    off_t                               grown;        /* bytes that the body is
                                                         longer for its
                                                         translation */
    ngx_uint_t                          tools;        /* that the vendor
                                                         describes to the model,
                                                         of a responses call */
    unsigned                            streaming:1;  /* "stream": true */
    unsigned                            usage_asked:1; /* by the client */
    ngx_modelgw_responses_call_t       *responses;    /* of a translated
                                                         responses call; else
                                                         NULL */
    unsigned                            translate:1;  /* protocol is not that of
                                                         the endpoint */
} ngx_http_modelgw_call_t;


/* the call's slot in the ledger: limit.c, hold.c, wait.c, settle.c */

typedef struct {
    ngx_modelgw_call_t                 *slot;         /* NULL: none, or
                                                         given back */
    uint64_t                            id;           /* of the row; 0: none */
    ngx_modelgw_charge_t                charge;       /* if settled */
    ngx_modelgw_end_e                   end;          /* if settled */
    ngx_http_modelgw_limits_t          *limits;       /* NULL: neither rpm nor
                                                         tpm */
    ngx_modelgw_budget_t                budget;       /* limit 0: none */
    ngx_modelgw_ledger_left_t           left;         /* of it, less the hold */
    ngx_http_modelgw_wait_t            *wait;         /* NULL: it has not waited
                                                         for credit */
    ngx_http_modelgw_bound_t           *bound;        /* of a call that waits */
    ngx_msec_t                          waited;       /* ms that it did */
    unsigned                            met:1;        /* "left" is set */
    unsigned                            limited:1;    /* it waits for its part
                                                         of a limit before its
                                                         body is read */
    unsigned                            settled:1;    /* it was sent, and has
                                                         ended */
} ngx_http_modelgw_money_t;


/* the upstream's side: forward.c, retry.c, filter.c, upstream.c */

typedef struct {
    ngx_table_elt_t                    *credential;   /* NULL: not in
                                                         headers_in */
    ngx_list_part_t                    *unlisted;     /* headers that do not
                                                         pass; NULL: none, or
                                                         in headers_in */
    ngx_http_modelgw_retry_t           *retry;        /* NULL: one server, or
                                                         "retry off" */

    /* finalize_request, input_filter_init and input_filter of r->upstream, as
       the proxy module set them */

    void                              (*finalize)(ngx_http_request_t *r,
                                                  ngx_int_t rc);
    ngx_int_t                         (*input_init)(void *data);
    ngx_int_t                         (*input)(void *data, ssize_t bytes);

    ngx_int_t                           rc;           /* of finalize();
                                                         NGX_AGAIN: not
                                                         called yet */
} ngx_http_modelgw_upstream_t;


/* the response: filter.c, answer.c, stream.c */

typedef struct {
    ngx_http_modelgw_mode_e             mode;
    ngx_http_modelgw_json_t            *json;         /* ANSWER and ERROR */
    ngx_http_modelgw_stream_t          *stream;       /* STREAM */
    ngx_http_modelgw_large_t           *large;        /* LARGE */
    ngx_modelgw_usage_t                 usage;
    ngx_str_t                           request_id;   /* as the client gets it;
                                                         len 0: none yet */
    ngx_msec_t                          first_byte;   /* ms from the start;
                                                         -1: not sent yet */
    unsigned                            header_held:1;
    unsigned                            finishing:1;  /* all choices have ended,
                                                         usage may follow */
    unsigned                            complete:1;   /* all was received */
} ngx_http_modelgw_answer_t;


typedef struct {
    ngx_http_request_t                 *main;
    ngx_http_modelgw_state_e            state;

    ngx_http_modelgw_request_t          request;
    ngx_http_modelgw_call_t             call;
    ngx_http_modelgw_money_t            money;
    ngx_http_modelgw_upstream_t         upstream;
    ngx_http_modelgw_answer_t           answer;

    ngx_modelgw_error_t                 error;        /* code.len 0: none */
    ngx_http_modelgw_abort_t           *abort;        /* NULL unless the client
                                                         has left */
    void                               *client;       /* of the admin
                                                         interface; NULL: not
                                                         known (yet) */
    ngx_http_log_handler_pt             log_handler;  /* nginx's, which log.c
                                                         calls */
    unsigned                            logging:1;    /* in the one of log.c */
    unsigned                            gateway:1;    /* it began in a gateway
                                                         location */
} ngx_http_modelgw_ctx_t;


#define ngx_http_modelgw_ctx_group(ctx)                                       \
    ((ngx_http_modelgw_group_t *) (ctx)->request.key->group)


/* ctx.c */

/* Creates the context of a main request; NULL if there is no memory. */
ngx_http_modelgw_ctx_t *ngx_http_modelgw_create_ctx(ngx_http_request_t *r);

/*
 * The context of a main request, also after internal redirects; NULL if the
 * request was never in a gateway location.
 */
ngx_http_modelgw_ctx_t *ngx_http_modelgw_get_ctx(ngx_http_request_t *r);

/* access.c */

/*
 * The handler of the access phase.
 *     NGX_OK        the client may use the endpoint
 *     NGX_DECLINED  not a gateway location
 *     NGX_DONE      refused, or a preflight; the response is sent
 *     500           no memory, or an internal redirect from another one
 */
ngx_int_t ngx_http_modelgw_access_handler(ngx_http_request_t *r);

/*
 * Sets *key to the key with the digest, or to NULL if there is none.
 *     NGX_OK
 *     NGX_BUSY      the keys of operators are being loaded, try again
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_access_find(ngx_http_request_t *r,
    ngx_http_modelgw_main_conf_t *mmcf, u_char *digest,
    ngx_modelgw_key_t **key);

/*
 * Checks that a request that changes something, or costs money, is no TLS early
 * data, which may be a replay.  sent: it has the header Early-Data.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_access_early(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t sent);

/*
 * Refuses a request for that NGX_BUSY, with 503: NGX_DECLINED, ctx->error is
 * set; NGX_ERROR (no memory).
 */
ngx_int_t ngx_http_modelgw_access_busy(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Returns why such a key is refused; NULL: there is none. */
ngx_http_modelgw_reason_e ngx_http_modelgw_access_refuses(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_key_t *key);

/*
 * Checks the key again when the body was read: it may be revoked, replaced or
 * expired by now, or its account closed.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_access_again(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* The endpoint of the request's path, or NULL; *rest follows a prefix. */
ngx_http_modelgw_endpoint_t *ngx_http_modelgw_endpoint(ngx_http_request_t *r,
    ngx_str_t *rest);

/*
 * managed.c: finds a key that operators have made.  One of a group that is not
 * configured has none (logged); an account that is unknown, or a zone without
 * room, as keys of the configuration have it.
 *     NGX_OK        *key is set, in the request's pool
 *     NGX_DECLINED  there is none, or the configuration has its id
 *     NGX_BUSY      try again
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_managed(ngx_http_request_t *r,
    ngx_http_modelgw_main_conf_t *mmcf, u_char *digest,
    ngx_modelgw_key_t **key);

/*
 * Whether such a key is still valid; key->expires is set to what it is now.
 *     NGX_OK
 *     NGX_DECLINED  it was revoked, or another one has taken its place
 *     NGX_BUSY      try again
 */
ngx_int_t ngx_http_modelgw_managed_again(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_key_t *key);

/*
 * The record as a key without places in the ledger, whose texts are those of
 * the record; its group is NULL if that is not configured.  NULL: no memory.
 */
ngx_modelgw_key_t *ngx_http_modelgw_managed_key(ngx_pool_t *pool,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_managed_key_t *managed);

/* limit.c: rpm, tpm, concurrency */

/*
 * Takes a request of rpm, and a slot for the call if the key has a concurrency.
 * Called when the headers were read.  _again() is called in the precontent
 * phase if ctx->money.limited is set.
 *     NGX_OK        taken, or not limited; or ctx->money.limited is set: it is
 *                   not decided yet
 *     NGX_AGAIN     _again() has parked the request
 *     NGX_DECLINED  refused: 429, or 503 if the zone is full
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_limit_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_int_t ngx_http_modelgw_limit_again(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Whether a request that waits for its part of a limit is to try again. */
ngx_uint_t ngx_http_modelgw_limit_answered(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_ledger_t *ledger);

/* Wakes the exchanger, if a limit is to be said to the database now. */
void ngx_http_modelgw_limit_wake(ngx_modelgw_ledger_t *ledger);

/* Adds the header Retry-After: NGX_OK, NGX_ERROR (no memory). */
ngx_int_t ngx_http_modelgw_limit_retry_after(ngx_http_request_t *r,
    ngx_uint_t seconds);

/*
 * Takes tokens of tpm for ctx->money.slot.  The caller has the ledger's lock.
 *     NGX_OK        taken, or not limited
 *     NGX_AGAIN     wait for an answer, by ngx_http_modelgw_wait_limit(), then
 *                   try again
 *     NGX_DECLINED  not available; ctx->error is left to _refuse_tokens()
 */
ngx_int_t ngx_http_modelgw_limit_tokens_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, int64_t tokens);

/* Sets ctx->error (429): NGX_DECLINED, or NGX_ERROR if there is no memory. */
ngx_int_t ngx_http_modelgw_limit_refuse_tokens(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Adds the state of the limits to the response headers, if there are any.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_limit_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* body.c */

/*
 * The handler of the precontent phase; is called again when the body was read.
 *     NGX_DECLINED  not a gateway location, or ready: proxy_pass comes next
 *     NGX_DONE      the body is being read, or the response is sent
 *     NGX_AGAIN     the request waits for credit, or a limit
 *     a status      no memory, the body cannot be read, or the request must not
 *                   be here
 */
ngx_int_t ngx_http_modelgw_precontent_handler(ngx_http_request_t *r);

/* Inserts the filter of request bodies; when the http block was read. */
void ngx_http_modelgw_body_filter_init(void);

/* verdict.c */

/* the values of a body that the scanner watches */

typedef enum {
    NGX_HTTP_MODELGW_WATCH_MODEL = 0,
    NGX_HTTP_MODELGW_WATCH_MESSAGES,
    NGX_HTTP_MODELGW_WATCH_INPUT = NGX_HTTP_MODELGW_WATCH_MESSAGES,
                                         /* of responses and embeddings */
    NGX_HTTP_MODELGW_WATCH_MAX_TOKENS,   /* "max_output_tokens" */

    /* those above are required, max_tokens by NGX_HTTP_MODELGW_MAX_TOKENS */

    NGX_HTTP_MODELGW_WATCH_STREAM,

    /* these may change the price */

    NGX_HTTP_MODELGW_WATCH_SERVICE_TIER,
    NGX_HTTP_MODELGW_WATCH_PREDICTION,
    NGX_HTTP_MODELGW_WATCH_AUDIO,
    NGX_HTTP_MODELGW_WATCH_WEB_SEARCH_OPTIONS,
    NGX_HTTP_MODELGW_WATCH_SPEED,
    NGX_HTTP_MODELGW_WATCH_INFERENCE_GEO,

    NGX_HTTP_MODELGW_WATCH_THINKING,        /* "reasoning" */

    NGX_HTTP_MODELGW_WATCHES_MESSAGES,

    /* those of chat only */

    NGX_HTTP_MODELGW_WATCH_STREAM_OPTIONS = NGX_HTTP_MODELGW_WATCHES_MESSAGES,
    NGX_HTTP_MODELGW_WATCH_INCLUDE_USAGE,
    NGX_HTTP_MODELGW_WATCH_MAX_COMPLETION_TOKENS,
    NGX_HTTP_MODELGW_WATCH_N,

    NGX_HTTP_MODELGW_WATCHES_CHAT,

    /* those of responses only */

    NGX_HTTP_MODELGW_WATCH_STORE = NGX_HTTP_MODELGW_WATCHES_MESSAGES,
    NGX_HTTP_MODELGW_WATCH_TOOLS,
    NGX_HTTP_MODELGW_WATCH_INSTRUCTIONS,

    /* these refer to what is stored */

    NGX_HTTP_MODELGW_WATCH_PREVIOUS,
    NGX_HTTP_MODELGW_WATCH_CONVERSATION,
    NGX_HTTP_MODELGW_WATCH_PROMPT,
    NGX_HTTP_MODELGW_WATCH_BACKGROUND,

    NGX_HTTP_MODELGW_WATCHES_RESPONSES
} ngx_http_modelgw_watch_e;

#define NGX_HTTP_MODELGW_WATCH_STATE                                          \
    NGX_HTTP_MODELGW_WATCH_PREVIOUS
#define NGX_HTTP_MODELGW_WATCH_STATE_LAST                                     \
    NGX_HTTP_MODELGW_WATCH_BACKGROUND

#define NGX_HTTP_MODELGW_WATCH_EXTRAS                                         \
    NGX_HTTP_MODELGW_WATCH_SERVICE_TIER
#define NGX_HTTP_MODELGW_WATCH_EXTRAS_LAST                                    \
    NGX_HTTP_MODELGW_WATCH_INFERENCE_GEO

/*
 * Prepares the scanners of all groups, when the configuration was read.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_verdict_plans(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * Returns the name of the n-th API if clients may call it where the upstream
 * speaks the protocols, else NULL; n is less than NGX_MODELGW_PROTOCOLS.
 */
const char *ngx_http_modelgw_verdict_offers(ngx_uint_t protocols, ngx_uint_t n);

/*
 * Creates ctx->request.scan for the request's endpoint.
 *     NGX_OK
 *     NGX_DECLINED  the group does not have the client's API: 403
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_verdict_scan(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Checks the body, which was read and scanned, and rewrites it.
 *     NGX_OK        the state is READY
 *     NGX_AGAIN     the state is WAITING: to be called again by the phase
 *     NGX_DECLINED  refused
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_verdict(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* responses.c: bodies of the responses API */

/*
 * Checks what scanners do not see, adds to ctx->call.cuts what must not be
 * sent, and counts ctx->call.tools.  Called when the model was found.
 *     NGX_OK
 *     NGX_DECLINED  refused: 400
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_responses(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Refuses what refers to something stored; a part of the above, and called
 * before it where the input is missing, too.
 */
ngx_int_t ngx_http_modelgw_responses_state(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* hold.c: the call in the ledger, until it is sent */

/* Sets the members that the scanner of a protocol's requests counts. */
void ngx_http_modelgw_hold_scan(ngx_modelgw_scan_conf_t *conf,
    ngx_uint_t protocol);

/*
 * Returns 1 if a body of responses may have tools, reasoning, or references to
 * what is stored; 0: it has none.
 */
ngx_uint_t ngx_http_modelgw_hold_marked(ngx_http_modelgw_ctx_t *ctx);

/* Returns 1 if calls of the model are paid with credit. */
ngx_uint_t ngx_http_modelgw_hold_paid(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Takes the tokens and the money that the call may use.  Called when the body
 * was checked, and before it is rewritten; but responses are translated before.
 * _again() is called in the state WAITING.
 *     NGX_OK
 *     NGX_AGAIN     the state is WAITING: the credit is not lent yet
 *     NGX_DECLINED  refused: 400, 402, 429, 503
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_hold(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_int_t ngx_http_modelgw_hold_again(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Sets the response header x-modelgw-budget-remaining, if the key has a budget
 * and the call has met it.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_hold_budget_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Marks the call as sent: the upstream may get it from now on. */
void ngx_http_modelgw_hold_sent(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* wait.c: calls of a cluster that wait for their hold, or a limit */

typedef enum {
    NGX_HTTP_MODELGW_WAIT_CLAIM = 0,
    NGX_HTTP_MODELGW_WAIT_PLACE,
    NGX_HTTP_MODELGW_WAIT_LIMIT
} ngx_http_modelgw_wait_e;

/*
 * Parks the request until its claim is resolved, then runs its phases again.
 * The claim is freed with the request, or by _result().
 *     NGX_AGAIN  the state is WAITING
 *     NGX_ERROR  no memory; the claim is freed
 */
ngx_int_t ngx_http_modelgw_wait(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_claim_t *claim);

/*
 * The same until there may be room for a claim.  _behind() returns 1 if others
 * of this worker wait for that, and the call is to do so, too.
 *     NGX_AGAIN
 *     NGX_DECLINED  it has waited too long
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_wait_place(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_uint_t ngx_http_modelgw_wait_behind(ngx_http_modelgw_ctx_t *ctx);

/*
 * The same until ngx_http_modelgw_limit_answered().
 *     NGX_AGAIN, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_wait_limit(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* What the last wait of the request was for. */
ngx_http_modelgw_wait_e ngx_http_modelgw_wait_kind(
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Copies the claim of a request that was parked, and frees it.  One that
 * was not resolved in time is SILENT.
 *     NGX_OK
 *     NGX_AGAIN  it is not resolved yet
 */
ngx_int_t ngx_http_modelgw_wait_result(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_claim_t *result);

/* settle.c: the money of a call, from then on */

/*
 * Keeps the usage that is known of the answer in shared memory.  To be called
 * after usage was merged, or text was passed on: text is its length in bytes.
 */
void ngx_http_modelgw_settle_seen(ngx_http_modelgw_ctx_t *ctx, size_t text);

/*
 * Keeps the status of the upstream's answer, or that of an error in a 200; 0: a
 * call that was refused is sent again.
 */
void ngx_http_modelgw_settle_status(ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t status);

/* Keep ctx->answer.request_id; that the first byte of the answer is sent. */
void ngx_http_modelgw_settle_id(ngx_http_modelgw_ctx_t *ctx);
void ngx_http_modelgw_settle_first_byte(ngx_http_modelgw_ctx_t *ctx);

/*
 * Ends the call, in whatever state it is, and charges it.  Does nothing if the
 * request has no call, or no longer.
 */
void ngx_http_modelgw_settle(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* count.c: metrics */

/* names of labels' values, by their indices in rows; the last one is empty */

extern ngx_str_t  ngx_http_modelgw_count_endpoints[];
extern ngx_str_t  ngx_http_modelgw_count_results[];  /* the first one: "ok" */
extern ngx_str_t  ngx_http_modelgw_count_codes[]; /* after the first, empty one,
                                                     of "no error" */
extern ngx_str_t  ngx_http_modelgw_count_statuses[];

/* Counts a request that ends, and the answers of upstreams to it. */
void ngx_http_modelgw_count_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Counts the request's call, which was sent and is settled: *counted is what
 * ngx_http_modelgw_zone_metrics_call() has set.
 */
void ngx_http_modelgw_count_call(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_metrics_call_t *counted);

/* translate.c: calls whose upstream lacks their API */

/*
 * Makes the body, which has been read and scanned, a messages request.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Translates a messages answer of size bytes: *out is the chat completion, of
 * *length bytes.
 *     NGX_OK
 *     NGX_DECLINED  it is no message
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_answer(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in, size_t size,
    ngx_chain_t **out, off_t *length);

/*
 * Sets doc to the size bytes of a chain in one piece: that of the first buf, if
 * all are there, else a copy in the pool.
 *     NGX_OK
 *     NGX_ERROR     no memory, or a file that cannot be read
 */
ngx_int_t ngx_http_modelgw_translate_whole(ngx_http_request_t *r,
    ngx_chain_t *in, size_t size, ngx_str_t *doc);

/*
 * Puts a document that was scanned on the worker's tape.  It stays there until
 * the next call, by any request.
 *     NGX_OK
 *     NGX_DECLINED  it has too many values
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_index(ngx_http_request_t *r,
    ngx_str_t *doc, ngx_modelgw_tape_t **tape);

/*
 * Scans the body of the request, all of which is in the buf, and puts it on the
 * worker's tape.
 *     NGX_OK        no fault so far
 *     NGX_DECLINED  a fault, see ngx_modelgw_scan_fault()
 */
ngx_int_t ngx_http_modelgw_translate_scan(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b);

/*
 * As _index(), for the body of the request: it is done, if _scan() has put it
 * on the tape, and no other document is there now.
 */
ngx_int_t ngx_http_modelgw_translate_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *doc, ngx_modelgw_tape_t **tape);

/* forward.c */

/* Indexes the static names of headers; when the http block was read. */
void ngx_http_modelgw_forward_init(void);

/*
 * Replaces the client's headers by those for the upstream, except for the
 * credential.
 *     NGX_OK
 *     NGX_DECLINED  refused: 400
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_forward_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * The getter of $modelgw_upstream: READY becomes FORWARDED.  In other states,
 * in subrequests, and before there is an upstream in the request, the value is
 * empty.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_forward_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/*
 * Removes the credential from headers_in, and puts the headers back that did
 * not pass; does nothing the second time.
 */
void ngx_http_modelgw_forward_disarm(ngx_http_modelgw_ctx_t *ctx);

/* unlisted.c: counts client headers that are not listed */

void ngx_http_modelgw_unlisted_count(ngx_str_t *name);

/* Logs the counts of this worker, and resets them. */
void ngx_http_modelgw_unlisted_log(ngx_log_t *log);

/* retry.c: a refused call is sent to another server */

/* Wraps the upstream blocks of groups; when the http block was read. */
void ngx_http_modelgw_retry_init(ngx_http_modelgw_main_conf_t *mmcf);

/* upstream.c */

/* Indexes the static names of headers; when the http block was read. */
void ngx_http_modelgw_upstream_init(void);

/* From now on, an answer with broken framing ends as one that breaks off. */
void ngx_http_modelgw_upstream_watch(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Ends the upstream's answer here, as if all of it had come. */
void ngx_http_modelgw_upstream_stop(ngx_http_request_t *r);

/* Counts for the health of the group, when the request ends. */
void ngx_http_modelgw_upstream_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Drops the headers of an upstream's answer that clients must not get. */
void ngx_http_modelgw_upstream_headers_out(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Sets ctx->error to the client's error for an upstream's: status and body are
 * those of the answer, or 200 and an error object.  event: it leaves as an
 * event of a stream, whose status was sent; the text differs then, but only in
 * streams that are not translated.  Logs it.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_upstream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_uint_t event,
    ngx_str_t *body);

/* filter.c */

/* Inserts the filters of responses; when the http block was read. */
void ngx_http_modelgw_filter_init(void);

/* Returns the answer's Content-Encoding, or NULL if it is not encoded. */
ngx_table_elt_t *ngx_http_modelgw_filter_encoding(ngx_http_request_t *r);

/*
 * Send the header, then a chain, to the filters after ours.  The usual return
 * codes of filters.
 */
ngx_int_t ngx_http_modelgw_filter_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_int_t ngx_http_modelgw_filter_body(ngx_http_request_t *r,
    ngx_chain_t *out);

/*
 * Sends ctx->error instead of the response, whose header was not sent yet, and
 * drops the rest of that.  The usual return codes of filters.
 */
ngx_int_t ngx_http_modelgw_filter_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * answer.c: JSON answers and errors of upstreams; stream.c: event streams.
 * _init() is called with the header, which stays held: NGX_OK, NGX_ERROR (no
 * memory).  _body() has the return codes of filters.
 */

ngx_int_t ngx_http_modelgw_answer_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_mode_e mode);
ngx_int_t ngx_http_modelgw_answer_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);

/*
 * Reads usage or text of the part of a JSON answer that came before its call
 * was cut.
 */
void ngx_http_modelgw_answer_cut(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * large.c: sends the header, and the part of an answer that has come so far,
 * which was scanned.  The usual return codes of filters.
 */
ngx_int_t ngx_http_modelgw_large_begin(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_scan_t *scan, ngx_str_t *part);
ngx_int_t ngx_http_modelgw_large_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);

/* Reads the usage of the part that has come. */
void ngx_http_modelgw_large_cut(ngx_http_modelgw_ctx_t *ctx);

/* The client has left: what was passed on counts as sent. */
void ngx_http_modelgw_large_drop(ngx_http_modelgw_ctx_t *ctx);

ngx_int_t ngx_http_modelgw_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_int_t ngx_http_modelgw_stream_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);

/* abort.c: a client that closes its connection before its answer ends */

/*
 * Watches the client's connection from the verdict on: nginx's own handler for
 * this is off in gateway locations (proxy_ignore_client_abort is set).
 */
void ngx_http_modelgw_abort_watch(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * To be called when a write to the client has failed, or its connection is
 * closed.
 *     NGX_OK        the client is gone, the rest of the answer is only read:
 *                   ctx->abort is set
 *     NGX_DECLINED  the client is not gone, or the call is to be cut: the
 *                   caller ends the request
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_abort_drain(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Ends the request, and the upstream's answer with it. */
void ngx_http_modelgw_abort_cut(ngx_http_request_t *r);

/*
 * Counts bytes of an answer that is only read: ctx->abort is set.
 *     NGX_OK
 *     NGX_DECLINED  there are too many, the caller ends the request
 */
ngx_int_t ngx_http_modelgw_abort_count(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);

/* reply.c */

/*
 * Sets ctx->error; code is static, fmt and what follows are as in
 * ngx_sprintf(), 512 bytes at most.
 *     NGX_DECLINED, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, const char *code,
    const char *fmt, ...);

/* The word for ctx->request.reason; NULL: none, or of another status. */
ngx_str_t *ngx_http_modelgw_reason(ngx_http_modelgw_ctx_t *ctx);

/* Sets ctx->error to 426, and the headers that this must have; the same. */
ngx_int_t ngx_http_modelgw_reply_upgrade(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Sends ctx->error and finalizes the request.  Returns NGX_DONE, which is what
 * a phase handler returns then.
 */
ngx_int_t ngx_http_modelgw_reply_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Send the body, JSON or of another type, with the status; the same. */
ngx_int_t ngx_http_modelgw_reply_json(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_str_t *body);
ngx_int_t ngx_http_modelgw_reply_text(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_str_t *type,
    ngx_str_t *body);

/*
 * Renders ctx->error to *body, and sets the response headers for it: status,
 * type, length, x-should-retry or Retry-After.  They must not be sent yet.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_error_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body);

/*
 * Makes *out a chain of body, as the whole body of the response.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_body(ngx_http_request_t *r, ngx_str_t *body,
    ngx_chain_t *out);

/*
 * _id() sets ctx->answer.request_id, unless it is set: to the upstream's id,
 * which must be in the response headers, if there is one, else to $request_id.
 * _ids() also sets the response headers request-id and x-request-id to it.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_id(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
ngx_int_t ngx_http_modelgw_reply_ids(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Sets *id to $request_id.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_own_id(ngx_http_request_t *r, ngx_str_t *id);

/*
 * Sets the response header x-modelgw-ignored to ctx->call.ignored, if any.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_reply_ignored(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* cors.c */

/* Whether the request asks if a page may make another one. */
ngx_uint_t ngx_http_modelgw_cors_preflight(ngx_http_request_t *r);

/*
 * Answers it.
 *     NGX_DONE      the response is sent
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_cors_reply(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Sets the response headers for pages, where modelgw_cors is on.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_cors_headers(ngx_http_request_t *r);

/* models.c */

/*
 * Answers GET /v1/models and /v1/models/{id}.  Returns NGX_DONE, or status 500
 * if there is no memory.
 */
ngx_int_t ngx_http_modelgw_models(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* log.c */

/*
 * Makes $request_id keep its value; when the http block was read.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_log_init(ngx_conf_t *cf);

/*
 * The getter of $modelgw_log.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_log_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/* From now on, lines of the error log end with the ids of the request. */
void ngx_http_modelgw_log_begin(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* ready.c */

/* modelgw_ready: NGX_CONF_OK, or a text that nginx logs. */
char *ngx_http_modelgw_set_ready(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * Checks the location in cf->ctx after it has been merged.
 *     NGX_CONF_OK, NGX_CONF_ERROR (logged)
 */
char *ngx_http_modelgw_ready_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf);

/* vars.c */

/* Milliseconds since the first byte of the request was read. */
ngx_msec_t ngx_http_modelgw_elapsed(ngx_http_request_t *r);

/* Sets first_byte; called when the first byte of the answer is sent. */
void ngx_http_modelgw_answered(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Adds the variables, before the configuration is read.
 *     NGX_OK, NGX_ERROR (logged, or no memory)
 */
ngx_int_t ngx_http_modelgw_add_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_MODELGW_H_INCLUDED_ */
