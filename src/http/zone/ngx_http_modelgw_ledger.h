
/*
 * Credit and limits on floor 1: the zone, the writer, the stages of a request
 * that touch them, and the admin interface.
 */


#ifndef _NGX_HTTP_MODELGW_LEDGER_H_INCLUDED_
#define _NGX_HTTP_MODELGW_LEDGER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_store.h"


/*
 * zone.c: the shared memory, and what of it the configuration names.
 *
 * mmcf->ledger is NULL only in an nginx without keys.  It is set when the zone
 * is made; key->slot and key->account_index as a configuration takes force.
 */

char *ngx_http_modelgw_set_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* modelgw_ledger PATH [flush=TIME] [keep=TIME] */
char *ngx_http_modelgw_set_ledger(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* modelgw_founding_credit AMOUNT */
char *ngx_http_modelgw_set_founding(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * What can be checked when all is read: prices of all models, the size of the
 * zone; adds the zone to the cycle.  NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_zone_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * The configuration takes force: keys and accounts get their places, and new
 * accounts their founding credit.  The module's init_module: NGX_OK; what goes
 * wrong is logged, and the keys that it concerns are refused with 503.
 */
ngx_int_t ngx_http_modelgw_zone_in_force(ngx_cycle_t *cycle);


/*
 * process.c: a worker joins the ledger, sweeps up after others, and stops; the
 * master comes last
 */

ngx_int_t ngx_http_modelgw_process_init(ngx_cycle_t *cycle);
void ngx_http_modelgw_process_exit(ngx_cycle_t *cycle);
void ngx_http_modelgw_process_exit_master(ngx_cycle_t *cycle);

#define NGX_HTTP_MODELGW_GROUPS  1024

typedef struct {
    char                      *name;     /* NULL: we are it, or are not root */
    gid_t                      gid;
    int                        n;
    gid_t                      groups[NGX_HTTP_MODELGW_GROUPS];
} ngx_http_modelgw_user_t;

/*
 * The process, if it is root, acts as the workers' user, with all its threads,
 * until it returns to what it was.
 *     NGX_OK, NGX_ERROR (logged; it is what it was)
 */
ngx_int_t ngx_http_modelgw_user_become(ngx_http_modelgw_user_t *user,
    ngx_cycle_t *cycle, ngx_log_t *log);
ngx_int_t ngx_http_modelgw_user_return(ngx_http_modelgw_user_t *user,
    ngx_log_t *log);


/* writer.c: the thread that writes the store */

#define NGX_HTTP_MODELGW_CANNOT                                               \
    "the ledger cannot be written, calls are refused until it can: "

/*
 * Starts the process's thread, which becomes the writer when no other is.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_writer_start(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * Waits until all that is DONE by now is durable, by this writer or another, at
 * most so many milliseconds, then ends the thread.
 *     NGX_OK
 *     NGX_DECLINED  something is not written
 */
ngx_int_t ngx_http_modelgw_writer_stop(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_msec_t timeout);


/* limit.c, limit_headers.c: rpm, tpm, concurrency */

/*
 * A limit a minute, as it was when the call took its part.  Values of headers
 * are written from the end of their room.
 */

typedef struct {
    uint32_t                      limit;     /* 0: there is none */
    ngx_modelgw_limit_state_t     state;
    ngx_msec_t                    time;      /* of the state */

    u_char                        limit_text[NGX_INT32_LEN];
    u_char                        remaining_text[NGX_INT32_LEN];
    u_char                        reset_text[sizeof("1970-01-01T00:00:00Z")];
} ngx_http_modelgw_limit_told_t;


struct ngx_http_modelgw_limits_s {
    ngx_http_modelgw_limit_told_t  requests;
    ngx_http_modelgw_limit_told_t  tokens;
    ngx_uint_t                     taken;    /* or refused: the state of tokens
                                                is known */
};


/*
 * At the headers: a request of rpm is taken, and a slot for the call if the key
 * has a concurrency.
 *     NGX_OK
 *     NGX_DECLINED  refused (429, or 503), ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_limit_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * At the verdict, with the lock of the ledger: tokens of tpm are taken for
 * ctx->call.
 *     NGX_OK
 *     NGX_DECLINED  none are left, which _refuse_tokens() is to tell
 */
ngx_int_t ngx_http_modelgw_limit_tokens_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_ledger_t *ledger, int64_t tokens);

/* NGX_DECLINED: ctx->error is set; NGX_ERROR: no memory */
ngx_int_t ngx_http_modelgw_limit_refuse_tokens(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Adds the headers that tell the limits to an answer of a key that has any:
 * NGX_OK, NGX_ERROR (no memory).
 */
ngx_int_t ngx_http_modelgw_limit_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/* hold.c, settle.c: a call's money */

/*
 * At the verdict, before the body is rewritten: tokens are taken, the hold is
 * set aside.
 *     NGX_OK
 *     NGX_DECLINED  refused (402, 429, 503, 400), ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_hold(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* $modelgw_upstream is given out: the upstream may read it from now on. */
void ngx_http_modelgw_hold_sent(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Keeps what is known of the answer in shared memory; to be called after usage
 * was merged or text was passed on.  text: bytes more of it.
 */
void ngx_http_modelgw_settle_seen(ngx_http_modelgw_ctx_t *ctx, size_t text);

/* The upstream has answered, with this status or an error in a 200. */
void ngx_http_modelgw_settle_status(ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t status);

/*
 * Ends the call, in whatever state it is; the first call of this for a request
 * counts, those after it do nothing.
 */
void ngx_http_modelgw_settle(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/* extras.c: what a body has beside its text that costs */

/* what a member in the body means, see the table in extras.c */

typedef enum {
    NGX_HTTP_MODELGW_MARK_MEDIA = 0,
    NGX_HTTP_MODELGW_MARK_DOCUMENT,
    NGX_HTTP_MODELGW_MARK_TOOLS,         /* described to the model at length */
    NGX_HTTP_MODELGW_MARK_LONG_CACHE,
    NGX_HTTP_MODELGW_MARK_BILLED,        /* by the vendor, beside tokens */
    NGX_HTTP_MODELGW_MARK_KINDS
} ngx_http_modelgw_mark_e;

/* What the scanner of a request is to count. */
void ngx_http_modelgw_extras_marks(ngx_modelgw_scan_conf_t *conf);

/* How often each kind occurs; n has room for all. */
void ngx_http_modelgw_extras_count(ngx_http_modelgw_ctx_t *ctx, int64_t *n);

/*
 * Whether the vendor bills something at another price, or beside the tokens; n
 * is what was counted:
 *     NGX_OK        no
 *     NGX_DECLINED  yes, ctx->error says what
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_extras(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n);


/* abort.c: a client that leaves */

char *ngx_http_modelgw_set_abort(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * From the verdict on we look after the client's connection: nginx's own
 * looking after it is off in gateway locations (lint.c sets
 * ignore_client_abort).
 */
void ngx_http_modelgw_abort_watch(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Something could not be written, or the client is seen to be gone.
 *     NGX_OK        it is, and what comes is read for nobody: ctx->abort is set
 *     NGX_DECLINED  the call is to end: it is not, or such calls are cut
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_abort_drain(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* Ends the request, and the upstream's answer with it. */
void ngx_http_modelgw_abort_cut(ngx_http_request_t *r);

/*
 * Counts what was read for nobody: ctx->abort is set.
 *     NGX_OK
 *     NGX_DECLINED  it is too much, the call is to end
 */
ngx_int_t ngx_http_modelgw_abort_count(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);


/* admin.c and admin_*.c: modelgw_admin */

char *ngx_http_modelgw_set_admin(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


#endif /* _NGX_HTTP_MODELGW_LEDGER_H_INCLUDED_ */
