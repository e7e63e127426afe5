
/*
 * A top-up: the body, the writer, the answer.
 *
 * The writer of the ledger is a thread of one of the workers.  It is asked
 * through shared memory, and answers there when the top-up is durable; we look
 * every few milliseconds.  The id makes it safe to ask again, whatever became
 * of this request, so a client that leaves, or waits in vain, does not undo it.
 *
 *     body      ngx_http_read_client_request_body() owns the request
 *     asked     the timer does; the client may leave: the request's pool takes
 *               the place in shared memory back
 *     answered  finalized
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"


#define NGX_HTTP_MODELGW_TOPUP_WAIT    10000   /* milliseconds */
#define NGX_HTTP_MODELGW_TOPUP_OURS    "founding:"

/* places in the table of watches */

#define NGX_HTTP_MODELGW_TOPUP_ID      0
#define NGX_HTTP_MODELGW_TOPUP_AMOUNT  1
#define NGX_HTTP_MODELGW_TOPUP_FIELDS  2


typedef struct {
    ngx_http_request_t       *request;
    ngx_http_modelgw_ctx_t   *ctx;
    ngx_modelgw_ledger_t     *ledger;
    ngx_modelgw_topup_t      *topup;     /* NULL: not asked, or given back */
    ngx_event_t               timer;
    ngx_msec_t                start;
    ngx_str_t                 account;
    uint32_t                  index;     /* of it */
    ngx_str_t                 id;
    int64_t                   amount;
} ngx_http_modelgw_topup_t;


static void ngx_http_modelgw_topup_read(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_topup_parse(ngx_http_modelgw_topup_t *t);
static ngx_int_t ngx_http_modelgw_topup_values(ngx_http_modelgw_topup_t *t);
static ngx_int_t ngx_http_modelgw_topup_ask(ngx_http_modelgw_topup_t *t);
static void ngx_http_modelgw_topup_free(void *data);
static void ngx_http_modelgw_topup_poll(ngx_event_t *ev);
static void ngx_http_modelgw_topup_answer(ngx_http_modelgw_topup_t *t,
    ngx_uint_t state);
static ngx_int_t ngx_http_modelgw_topup_made(ngx_http_modelgw_topup_t *t,
    ngx_uint_t fresh);
static int64_t ngx_http_modelgw_topup_balance(ngx_http_modelgw_topup_t *t);


static ngx_modelgw_scan_watch_t  ngx_http_modelgw_topup_watches[] = {
    { ngx_string("id"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("amount"), NGX_MODELGW_SCAN_STRING }
};


ngx_int_t
ngx_http_modelgw_admin_topup(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *account)
{
    ngx_int_t                  rc;
    ngx_pool_cleanup_t        *cln;
    ngx_http_modelgw_topup_t  *t;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_modelgw_topup_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    t = cln->data;
    ngx_memzero(t, sizeof(ngx_http_modelgw_topup_t));

    t->request = r;
    t->ctx = ctx;
    t->account = *account;

    cln->handler = ngx_http_modelgw_topup_free;

    rc = ngx_http_read_client_request_body(r, ngx_http_modelgw_topup_read);

    return (rc >= NGX_HTTP_SPECIAL_RESPONSE) ? rc : NGX_DONE;
}


/* a callback for bodies is told the request, and nothing of ours */

static void
ngx_http_modelgw_topup_read(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_pool_cleanup_t        *cln;
    ngx_http_modelgw_topup_t  *t;

    cln = r->pool->cleanup;

    while (cln->handler != ngx_http_modelgw_topup_free) {
        cln = cln->next;
    }

    t = cln->data;

    rc = ngx_http_modelgw_topup_parse(t);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_topup_ask(t);
    }

    if (rc != NGX_OK) {
        ngx_http_modelgw_admin_refuse(r, t->ctx, rc);
    }
}


static ngx_int_t
ngx_http_modelgw_topup_parse(ngx_http_modelgw_topup_t *t)
{
    ngx_int_t                      rc;
    ngx_http_request_t            *r;
    ngx_http_modelgw_ctx_t        *ctx;
    ngx_http_modelgw_main_conf_t  *mmcf;

    r = t->request;
    ctx = t->ctx;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (mmcf->ledger_path.len == 0 || mmcf->ledger == NULL) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "no ledger is configured");
    }

    rc = ngx_http_modelgw_admin_account_find(r, ctx, &t->account, &t->index);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_modelgw_admin_body(r, ctx, ngx_http_modelgw_topup_watches,
                                     NGX_HTTP_MODELGW_TOPUP_FIELDS);

    return (rc == NGX_OK) ? ngx_http_modelgw_topup_values(t) : rc;
}


static ngx_int_t
ngx_http_modelgw_topup_values(ngx_http_modelgw_topup_t *t)
{
    ngx_str_t                  text;
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *v;

    for (i = 0; i < NGX_HTTP_MODELGW_TOPUP_FIELDS; i++) {
        v = ngx_modelgw_scan_value(t->ctx->scan, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            return ngx_http_modelgw_error(t->request, t->ctx,
                                          NGX_HTTP_BAD_REQUEST,
                                          "MISSING_FIELD", "\"%V\" is required",
                                          &ngx_http_modelgw_topup_watches[i]
                                              .path);
        }
    }

    v = ngx_modelgw_scan_value(t->ctx->scan, NGX_HTTP_MODELGW_TOPUP_ID);

    t->id.len = v->len;
    t->id.data = v->text;

    if (!ngx_http_modelgw_conf_word(&t->id, NGX_HTTP_MODELGW_ADMIN_ID,
                                    NGX_MODELGW_LEDGER_NAME)
        || ngx_strncmp(t->id.data, NGX_HTTP_MODELGW_TOPUP_OURS,
                       sizeof(NGX_HTTP_MODELGW_TOPUP_OURS) - 1)
           == 0)
    {
        return ngx_http_modelgw_error(t->request, t->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"id\" must be 1 to 64 letters, digits "
                                      "and \"._@:-\", and not begin with \""
                                      NGX_HTTP_MODELGW_TOPUP_OURS "\"");
    }

    v = ngx_modelgw_scan_value(t->ctx->scan, NGX_HTTP_MODELGW_TOPUP_AMOUNT);

    text.len = v->len;
    text.data = v->text;

    if (text.len > NGX_MODELGW_SCAN_TEXT
        || ngx_modelgw_amount_parse(&text, &t->amount) != NGX_OK
        || t->amount <= 0)
    {
        return ngx_http_modelgw_error(t->request, t->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"amount\" must be euro as decimal "
                                      "text, above 0 and at most 999999999, "
                                      "with at most 9 digits behind the point");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_topup_ask(ngx_http_modelgw_topup_t *t)
{
    ngx_time_t                    *now;
    ngx_http_request_t            *r;
    ngx_http_modelgw_main_conf_t  *mmcf;

    r = t->request;
    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    /* a top-up of worker NONE is nobody's: it could be freed under us */

    if (mmcf->worker == NGX_MODELGW_LEDGER_NONE) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "too many nginx workers use \"modelgw_zone\"");

        return ngx_http_modelgw_error(r, t->ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "The gateway is full, try again later");
    }

    now = ngx_timeofday();

    t->topup = ngx_modelgw_ledger_topup(mmcf->ledger, mmcf->worker, t->index,
                                        &t->id, t->amount,
                                        (uint64_t) now->sec * 1000 + now->msec);
    if (t->topup == NULL) {
        return ngx_http_modelgw_error(r, t->ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "Too many top-ups at a time, try again");
    }

    t->ledger = mmcf->ledger;
    t->start = ngx_current_msec;

    t->timer.handler = ngx_http_modelgw_topup_poll;
    t->timer.data = t;
    t->timer.log = r->connection->log;

    ngx_add_timer(&t->timer, NGX_HTTP_MODELGW_ADMIN_POLL);

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_OK;
}


static void
ngx_http_modelgw_topup_free(void *data)
{
    ngx_http_modelgw_topup_t  *t = data;

    if (t->timer.timer_set) {
        ngx_del_timer(&t->timer);
    }

    if (t->topup) {
        ngx_modelgw_ledger_topup_free(t->ledger, t->topup);
        t->topup = NULL;
    }
}


static void
ngx_http_modelgw_topup_poll(ngx_event_t *ev)
{
    uint64_t                   state;
    ngx_connection_t          *c;
    ngx_http_modelgw_topup_t  *t;

    t = ev->data;
    c = t->request->connection;

    state = __atomic_load_n(&t->topup->state, __ATOMIC_ACQUIRE);

    if (state == NGX_MODELGW_TOPUP_ASKED
        && ngx_current_msec - t->start < NGX_HTTP_MODELGW_TOPUP_WAIT)
    {
        ngx_add_timer(ev, NGX_HTTP_MODELGW_ADMIN_POLL);
        return;
    }

    ngx_http_set_log_request(c->log, t->request);

    ngx_http_modelgw_topup_free(t);

    ngx_http_modelgw_topup_answer(t, (ngx_uint_t) state);

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_modelgw_topup_answer(ngx_http_modelgw_topup_t *t, ngx_uint_t state)
{
    int64_t                  sum;
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_modelgw_ctx_t  *ctx;

    r = t->request;
    ctx = t->ctx;

    switch (state) {

    case NGX_MODELGW_TOPUP_NEW:
    case NGX_MODELGW_TOPUP_KNOWN:
        rc = ngx_http_modelgw_topup_made(t, state == NGX_MODELGW_TOPUP_NEW);
        break;

    case NGX_MODELGW_TOPUP_OTHER:
        rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_CONFLICT,
                                    "TOPUP_CONFLICT",
                                    "A top-up \"%V\" was made with another "
                                    "account or amount", &t->id);
        break;

    default:

        if (state == NGX_MODELGW_TOPUP_FAILED
            && __builtin_add_overflow(ngx_http_modelgw_topup_balance(t),
                                      t->amount, &sum))
        {
            rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                        "INVALID_FIELD",
                                        "\"amount\" would make the balance "
                                        "more than 9223372036 euro");
            break;
        }

        rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                    "SERVICE_UNAVAILABLE",
                                    "The ledger cannot be written; the top-up "
                                    "may still be made: repeat it with the "
                                    "same id");
    }

    if (rc != NGX_OK) {
        ngx_http_modelgw_admin_refuse(r, ctx, rc);
    }
}


static ngx_int_t
ngx_http_modelgw_topup_made(ngx_http_modelgw_topup_t *t, ngx_uint_t fresh)
{
    u_char               amount[NGX_MODELGW_AMOUNT_LEN];
    u_char               balance[NGX_MODELGW_AMOUNT_LEN];
    ngx_str_t            body, sum, left;
    ngx_http_request_t  *r;

    r = t->request;

    sum.data = amount;
    sum.len = ngx_modelgw_amount(amount, t->amount) - amount;

    left.data = balance;
    left.len = ngx_modelgw_amount(balance, ngx_http_modelgw_topup_balance(t))
               - balance;

    if (fresh) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "top-up \"%V\": %V euro for account \"%V\"",
                      &t->id, &sum, &t->account);
    }

    body.data = ngx_pnalloc(r->pool, sizeof("{'id':'','account':'','amount':'',"
                                            "'balance':'','new':false}")
                                     + t->id.len + t->account.len + sum.len
                                     + left.len);
    if (body.data == NULL) {
        return NGX_ERROR;
    }

    /* none of these needs an escape */

    body.len = ngx_sprintf(body.data, "{\"id\":\"%V\",\"account\":\"%V\","
                           "\"amount\":\"%V\",\"balance\":\"%V\",\"new\":%s}",
                           &t->id, &t->account, &sum, &left,
                           fresh ? "true" : "false")
               - body.data;

    ngx_http_modelgw_admin_reply(r, t->ctx,
                                 fresh ? NGX_HTTP_CREATED : NGX_HTTP_OK, &body);

    return NGX_OK;
}


static int64_t
ngx_http_modelgw_topup_balance(ngx_http_modelgw_topup_t *t)
{
    int64_t                        balance;
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(t->ledger, t->index);

    ngx_modelgw_ledger_lock(t->ledger);

    balance = a->balance;

    ngx_modelgw_ledger_unlock(t->ledger);

    return balance;
}
