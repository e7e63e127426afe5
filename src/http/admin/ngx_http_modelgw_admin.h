
/*
 * The admin interface: the directive, and what the files of this room share,
 * grouped by the file that defines it.
 */


#ifndef _NGX_HTTP_MODELGW_ADMIN_H_INCLUDED_
#define _NGX_HTTP_MODELGW_ADMIN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_session.h"
#include "ngx_modelgw_store.h"

#include "ngx_http_modelgw.h"


/* for the table of directives and the configuration */

/* modelgw_admin: NGX_CONF_OK, or a text that nginx logs. */
char *ngx_http_modelgw_set_admin(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * Checks and adjusts the location in cf->ctx after it has been merged.
 *     NGX_CONF_OK, NGX_CONF_ERROR (logged)
 */
char *ngx_http_modelgw_admin_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf);


/*
 * For a location whose requests are to name the server, see _host() below:
 * copies the names of the server in cf.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_admin_server_names(ngx_conf_t *cf);

/*
 * Whether something authenticates the clients of the location in cf, or none
 * can request it over TCP.
 */
ngx_uint_t ngx_http_modelgw_admin_guarded(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf);


/* for the files of this room */

#define NGX_HTTP_MODELGW_ADMIN_POLL    5       /* milliseconds */

/* flags of a route */
#define NGX_HTTP_MODELGW_ADMIN_LEDGER  0x01    /* needs modelgw_ledger */
#define NGX_HTTP_MODELGW_ADMIN_STORE   0x02    /* reads the store */
#define NGX_HTTP_MODELGW_ADMIN_QUERY   0x04    /* has parameters */
#define NGX_HTTP_MODELGW_ADMIN_BY      0x08    /* of usage, not of calls */
#define NGX_HTTP_MODELGW_ADMIN_CSV     0x10    /* also as CSV, in parts; of a
                                                  job: as CSV */
#define NGX_HTTP_MODELGW_ADMIN_SCRAPE  0x20    /* has places of its own */
#define NGX_HTTP_MODELGW_ADMIN_KEYS    0x40    /* reads the store if there is
                                                  one */
#define NGX_HTTP_MODELGW_ADMIN_OWN     0x80    /* the id is an account's */
#define NGX_HTTP_MODELGW_ADMIN_HOLDER  0x100   /* set if the client is one */
#define NGX_HTTP_MODELGW_ADMIN_SHARED  0x200   /* no node stores it: not with
                                                  "local=1" */


/* the session's, with the "=" */
#define NGX_HTTP_MODELGW_ADMIN_COOKIE  "__Host-modelgw="


/* how the client of a location is known */

typedef enum {
    NGX_HTTP_MODELGW_ADMIN_ANY = 0,            /* it is not; maybe by a
                                                  password */
    NGX_HTTP_MODELGW_ADMIN_UNIX,               /* by the kernel */
    NGX_HTTP_MODELGW_ADMIN_VARIABLES,          /* actor= and role= */
    NGX_HTTP_MODELGW_ADMIN_TOKENS              /* modelgw_operators */
} ngx_http_modelgw_admin_from_e;

/* who sends a request: ctx->client */

typedef struct {
    ngx_http_modelgw_admin_from_e     from;
    ngx_str_t                         name;        /* for the audit log */
    ngx_uint_t                        role;        /* 0: not known yet */
    ngx_modelgw_key_t                *key;         /* of a holder; NULL: it is
                                                      an operator */
    ngx_modelgw_session_t             session;     /* digest: of the token;
                                                      expires 0: no session */

    /* headers, data NULL: not sent */

    ngx_str_t                         authorization;
    ngx_str_t                         cookie;      /* of the session */
    ngx_str_t                         origin;
    ngx_str_t                         site;        /* Sec-Fetch-Site */
    ngx_str_t                         console;     /* X-Modelgw-Console */
    unsigned                          twice:1;     /* one of them was sent more
                                                      than once */
    unsigned                          cookies:1;   /* any cookie was sent */
    unsigned                          early:1;     /* Early-Data */
} ngx_http_modelgw_admin_client_t;


/*
 * A job runs outside of the event loop.  Its handler is called in a thread of
 * its own and may access only the job, its pool, the configuration and the
 * ledger.
 */

typedef struct ngx_http_modelgw_job_s  ngx_http_modelgw_job_t;

/*
 * store is NULL unless the job has NGX_HTTP_MODELGW_ADMIN_STORE.
 *     NGX_OK        job->body is the response, or the last part of it
 *     NGX_AGAIN     job->body is a part of it, the handler is to be called
 *                   again
 *     NGX_BUSY      there are too many rows: 400
 *     NGX_DECLINED  what was asked for does not exist: 404
 *     NGX_ERROR     no memory, or the store failed
 */
typedef ngx_int_t (*ngx_http_modelgw_job_pt)(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);

/* what is asked of the list of accounts; see admin_accounts.c */

typedef struct {
    ngx_str_t                         q;           /* a part of id or note; len
                                                      0: any */
    ngx_uint_t                        sort;
    ngx_uint_t                        limit;       /* 0: all */

    /* the place where it goes on, after this account; len 0: the beginning */

    ngx_str_t                         after;
    int64_t                           number;      /* that it is sorted by */
    ngx_uint_t                        after_sort;
} ngx_http_modelgw_admin_accounts_t;


struct ngx_http_modelgw_job_s {
    ngx_http_modelgw_job_pt           handler;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_pool_t                       *pool;
    ngx_uint_t                        flags;       /* of the route */

    /* for handlers */
    uint32_t                          account;     /* index in the ledger */
    uint64_t                          id;          /* of a call */
    ngx_modelgw_store_by_t            by;
    ngx_http_modelgw_option_t        *params;      /* NULL: as the flags say */
    ngx_http_modelgw_admin_accounts_t  accounts;
    ngx_modelgw_store_actions_t       actions;
    ngx_modelgw_store_keys_t          keys;
    ngx_uint_t                        place;       /* in the keys of the
                                                      configuration */
    ngx_modelgw_store_filter_t        filter;
    void                             *data;        /* of a scrape */
    ngx_modelgw_key_t                *holder;      /* the key of who asks; NULL:
                                                      an operator */
    ngx_uint_t                        local;       /* in a cluster: of this
                                                      node */

    ngx_str_t                         body;
    ngx_uint_t                        status;      /* 200 unless it is set */
    ngx_str_t                         type;        /* of the body; len 0:
                                                      JSON */
    uint64_t                          version;     /* for ETag; 0: none */

    /* used by admin_job.c only */
    ngx_int_t                         rc;
    ngx_modelgw_store_error_t         error;       /* len 0: none */
    ngx_http_request_t               *request;     /* NULL: closed */
    ngx_http_modelgw_ctx_t           *ctx;
    ngx_uint_t                        begun;       /* a part was sent */
    ngx_pool_t                       *part;        /* memory of its bytes */
    ngx_buf_t                         buf;
    ngx_event_t                       timer;
    pthread_t                         thread;
    pthread_mutex_t                   mutex;       /* for store and gone */
    ngx_modelgw_store_t              *store;
    ngx_uint_t                        gone;        /* the request is closed */
    ngx_uint_t                        done;
    ngx_queue_t                       queue;
};

/* for tables of parameters */

#define ngx_http_modelgw_job_offset(field)                                    \
    offsetof(ngx_http_modelgw_job_t, field)


/* admin.c */

/*
 * Both send a response and finalize the request.  _refuse() sends ctx->error if
 * rc is NGX_DECLINED, else a 500.
 */
void ngx_http_modelgw_admin_reply(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_str_t *body);
void ngx_http_modelgw_admin_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_int_t rc);

/* What operators' queries and changes work on: the subject of a sentence. */
const char *ngx_http_modelgw_admin_books(ngx_http_request_t *r);

/*
 * For what needs the database of the cluster: a node that must not work with it
 * does not show or change what is in it.
 *     NGX_OK        it may be used, or there is no cluster
 *     NGX_DECLINED  refused, ctx->error has the reason, for operators
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_member(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Adds the header of a version: NGX_OK, NGX_ERROR (no memory). */
ngx_int_t ngx_http_modelgw_admin_etag(ngx_http_request_t *r, uint64_t version);


/* admin_guard.c */

/*
 * Creates ctx->client, and checks whether it may use the interface at all.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory, or getsockopt() failed
 */
ngx_int_t ngx_http_modelgw_admin_guard(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Checks that a request over TCP names the server by its Host header, so that a
 * page whose name is made to resolve to this address reads nothing: as above.
 */
ngx_int_t ngx_http_modelgw_admin_host(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/* admin_session.c */

/*
 * Sets the name and the role of the client, as the location has it.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory, or OpenSSL failed
 */
ngx_int_t ngx_http_modelgw_admin_sign_in(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/* admin_holder.c */

/*
 * For a job of the holder of a key: it gets a copy of the key, and is limited
 * to its account.  _holder() is to be called before it looks for the id of the
 * path, _holder_query() after the query string was parsed.
 *     NGX_OK        so it is, or the client is an operator
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_holder(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job);
ngx_int_t ngx_http_modelgw_admin_holder_query(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job);

/*
 * For a change by the holder of a key, which is of that key: replaces the id
 * "self" by its own.
 *     NGX_OK        so it is, or the client is an operator
 *     NGX_DECLINED  refused, ctx->error is set
 */
ngx_int_t ngx_http_modelgw_admin_holder_change(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);


/* admin_job.c */

/*
 * Creates a job, which is freed with the request.  flags: of the route.
 *     NGX_OK
 *     NGX_DECLINED  too many jobs, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_job_create(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t flags,
    ngx_http_modelgw_job_t **job);

/*
 * Starts the job; from now on it owns the request, which is finalized when the
 * job is done, or at once if it cannot start.
 */
void ngx_http_modelgw_job_start(ngx_http_modelgw_job_t *job);


/* admin_query.c */

/*
 * Handlers of jobs, of the type ngx_http_modelgw_job_pt; they need the store.
 */

ngx_int_t ngx_http_modelgw_admin_query_calls(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_query_call(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_query_usage(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);

/*
 * For requests without parameters.
 *     NGX_OK
 *     NGX_DECLINED  there is one, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_query_none(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Parses the query string into job->filter and job->by, as job->flags allow.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_query(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job);

/*
 * For the table of routes: sets the job's id to that of a call, which may not
 * exist.
 *     NGX_OK
 *     NGX_DECLINED  no such call, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_query_find_call(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job);


/* admin_accounts.c */

/*
 * Handlers of jobs, of the type ngx_http_modelgw_job_pt; they need the store.
 */
ngx_int_t ngx_http_modelgw_admin_accounts_list(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_accounts_get(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);

/*
 * _find() sets *index to the account's index in the ledger; _find_job(), for
 * the table of routes, sets the job's account.  _check() checks whether the
 * place where the list goes on is one in its order.
 *     NGX_OK
 *     NGX_DECLINED  no such account, or another order: ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_accounts_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, uint32_t *index);
ngx_int_t ngx_http_modelgw_admin_accounts_find_job(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job);
ngx_int_t ngx_http_modelgw_admin_accounts_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job);

/* the parameters of the list's query string */
extern ngx_http_modelgw_option_t  ngx_http_modelgw_admin_account_params[];

/*
 * Writes the object of an account, with what is in shared memory or, in a
 * cluster, what the change has found, without the closing bracket.
 */
void ngx_http_modelgw_admin_account_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_change_t *change,
    uint32_t index);


/* admin_status.c */

/* The handler of a job; it sets job->status. */
ngx_int_t ngx_http_modelgw_admin_status(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);


/* admin_refusals.c */

/*
 * _find() is for the table of routes: it checks that there are metrics.
 *     NGX_OK
 *     NGX_DECLINED  there are none, ctx->error is set
 *     NGX_ERROR     no memory
 * The other one is the handler of a job.
 */
ngx_int_t ngx_http_modelgw_admin_refusals_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job);
ngx_int_t ngx_http_modelgw_admin_refusals(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);


/* admin_nodes.c: as admin_refusals.c, for the nodes of a cluster */
ngx_int_t ngx_http_modelgw_admin_nodes_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job);
ngx_int_t ngx_http_modelgw_admin_nodes(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);


/* admin_list.c */

/* Handlers of jobs, of the type ngx_http_modelgw_job_pt. */
ngx_int_t ngx_http_modelgw_admin_list_actions(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_list_groups(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_list_models(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);

/* the parameters of the query string of actions */
extern ngx_http_modelgw_option_t  ngx_http_modelgw_admin_action_params[];

/*
 * Parameters of lists: a number of rows, and a text that is looked for.
 *     NGX_OK, NGX_DECLINED
 */
ngx_int_t ngx_http_modelgw_admin_list_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
ngx_int_t ngx_http_modelgw_admin_list_text(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);

/* Writes texts as a JSON array; NULL: null. */
void ngx_http_modelgw_admin_list_names(ngx_modelgw_out_t *out,
    ngx_array_t *names);

/* Writes the name, and n; null if there is no limit. */
void ngx_http_modelgw_admin_list_number(ngx_modelgw_out_t *out,
    const char *name, uint32_t limit, uint64_t n);


/* admin_keys.c */

/*
 * Handlers of jobs, of the type ngx_http_modelgw_job_pt; they need the store,
 * if there is a ledger.
 */
ngx_int_t ngx_http_modelgw_admin_keys_list(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_keys_get(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);

/*
 * Prepares the job for these, the id is that in the path: NGX_OK, NGX_ERROR (no
 * memory).
 */
ngx_int_t ngx_http_modelgw_admin_keys_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job);

/* the parameters of the list's query string */
extern ngx_http_modelgw_option_t  ngx_http_modelgw_admin_key_params[];

/* what budgets have used, in a cluster */

typedef struct {
    ngx_uint_t                        known;       /* 0: it is in shared
                                                      memory */
    ngx_rbtree_t                     *tree;        /* see admin_keys.c; NULL:
                                                      of the only key */
    int64_t                           used;
} ngx_http_modelgw_admin_budgets_t;

/* Writes the object of a key in the ledger, without the closing bracket. */
void ngx_http_modelgw_admin_key_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_managed_key_t *key,
    ngx_str_t *note, ngx_http_modelgw_admin_budgets_t *spent);


/* admin_body.c, admin_change.c: requests that change something */

typedef struct ngx_http_modelgw_change_s  ngx_http_modelgw_change_t;

/*
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */
typedef ngx_int_t (*ngx_http_modelgw_change_pt)(ngx_http_modelgw_change_t *c);

typedef struct {
    ngx_modelgw_change_kind_e         kind;
    ngx_modelgw_scan_watch_t         *fields;      /* of the body */
    ngx_uint_t                        nfields;
    ngx_uint_t                        required;    /* the first ones of them;
                                                      0: nor is a body */
    ngx_http_modelgw_change_pt        find;        /* what it changes */
    ngx_http_modelgw_change_pt        parse;       /* sets c->asked */
    ngx_http_modelgw_change_pt        answer;      /* sends the response */
    unsigned                          local:1;     /* without the writer */
} ngx_http_modelgw_change_kind_t;

struct ngx_http_modelgw_change_s {
    ngx_http_modelgw_change_kind_t   *kind;
    ngx_http_request_t               *request;
    ngx_http_modelgw_ctx_t           *ctx;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_str_t                         id;          /* in the path */
    ngx_str_t                         body;
    ngx_modelgw_scan_t               *scan;        /* of the body */
    ngx_str_t                         secret;      /* of a new key; len 0:
                                                      none */
    ngx_modelgw_change_t              asked;       /* for the writer; with its
                                                      result, for answer() */

    /* used by admin_change.c only */
    ngx_modelgw_change_t             *slot;        /* NULL: not asked, or
                                                      freed */
    ngx_event_t                       timer;
    ngx_msec_t                        start;
};

/*
 * Reads the body and scans it for the fields of the kind; no other ones are
 * allowed.
 *     NGX_OK, NGX_DECLINED (ctx->error is set), NGX_ERROR
 */
ngx_int_t ngx_http_modelgw_admin_body(ngx_http_modelgw_change_t *c);

/*
 * Sets *text to the value of the i-th field, a string: 1, or 0 if it is not
 * given.  A string that is too long has NGX_MODELGW_SCAN_TEXT + 1 bytes, which
 * must not be read.
 */
ngx_uint_t ngx_http_modelgw_admin_field(ngx_http_modelgw_change_t *c,
    ngx_uint_t i, ngx_str_t *text);

/*
 * Copies the i-th field, a text for people, to c->asked.note; it is left as it
 * was if it is not given.
 *     NGX_OK        given or not
 *     NGX_DECLINED  too long, ctx->error is set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_note(ngx_http_modelgw_change_t *c,
    ngx_uint_t i);

/*
 * Whether a key or account may get this id: one that can be a part of a path,
 * and an argument of modelgwctl.
 */
ngx_uint_t ngx_http_modelgw_admin_new_id(ngx_str_t *id);

#define NGX_HTTP_MODELGW_NEW_ID_TAKES                                         \
    NGX_HTTP_MODELGW_ID_TAKES ", the first of them no \".\" and no \"-\""

/*
 * Reads the body, requests the change from the writer, waits and responds.
 *     NGX_DONE  the request is finalized here, now or later
 *     a status  no memory, or the body cannot be read
 */
ngx_int_t ngx_http_modelgw_admin_change(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_change_kind_t *kind,
    ngx_str_t *id);

/*
 * For find(): the account of the path.  For answer(): the response of a change
 * whose result is FAILED, or still ASKED.
 *     as ngx_http_modelgw_change_pt
 */
ngx_int_t ngx_http_modelgw_admin_change_account(ngx_http_modelgw_change_t *c);
ngx_int_t ngx_http_modelgw_admin_change_failed(ngx_http_modelgw_change_t *c);

#define ngx_http_modelgw_admin_name(name, text)                               \
    (name)->len = (text)->len;                                                \
    ngx_memcpy((name)->data, (text)->data, (text)->len)


/* admin_topup.c, admin_account.c, admin_key.c, admin_nodes.c,
   admin_session.c: their kinds */

extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_topup;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_account_new;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_account_set;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_new;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_set;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_rotate;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_key_revoke;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_session_new;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_session_get;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_session_end;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_operators;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_node_set;
extern ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_node_write_off;


#endif /* _NGX_HTTP_MODELGW_ADMIN_H_INCLUDED_ */
