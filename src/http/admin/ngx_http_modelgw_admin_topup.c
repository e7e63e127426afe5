
/*
 * A top-up: the body, the writer, the response.
 *
 * The writer of the ledger is a thread of one of the workers.  The top-up is
 * requested through shared memory, where the writer answers when it is durable;
 * a timer polls for that.  The id makes it safe to repeat a top-up, whatever
 * became of this request, so a client that closes its connection, or waits in
 * vain, does not undo it.
 *
 *     body      ngx_http_read_client_request_body() owns the request
 *     asked     the timer owns it; if the client closes its connection, the
 *               cleanup of the request's pool frees the slot in shared memory
 *     answered  finalized
 *
 * The body is one small JSON object with known fields, each at most once, and
 * nothing else.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_scan.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_TOPUP_WAIT    10000   /* milliseconds */
#define NGX_HTTP_MODELGW_TOPUP_SIZE    512     /* bytes allocated at first */

/* the prefix of ids of founding credit, which the gateway makes itself */
#define NGX_HTTP_MODELGW_TOPUP_OURS    "founding:"


/* rows of ngx_http_modelgw_topup_watches */

typedef enum {
    NGX_HTTP_MODELGW_TOPUP_ID = 0,
    NGX_HTTP_MODELGW_TOPUP_AMOUNT,
    NGX_HTTP_MODELGW_TOPUP_FIELDS
} ngx_http_modelgw_topup_field_e;


typedef struct {
    ngx_http_request_t       *request;
    ngx_http_modelgw_ctx_t   *ctx;
    ngx_modelgw_scan_t       *scan;      /* of the body */
    ngx_modelgw_ledger_t     *ledger;
    ngx_modelgw_topup_t      *topup;     /* NULL: not asked, or freed */
    ngx_event_t               timer;
    ngx_msec_t                start;
    ngx_str_t                 account;
    uint32_t                  index;     /* of the account in the ledger */
    ngx_str_t                 id;
    int64_t                   amount;    /* nano-euro */
} ngx_http_modelgw_topup_t;


static void ngx_http_modelgw_topup_read(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_topup_parse(ngx_http_modelgw_topup_t *t);
static ngx_int_t ngx_http_modelgw_topup_body(ngx_http_modelgw_topup_t *t);
static ngx_int_t ngx_http_modelgw_topup_body_text(ngx_http_modelgw_topup_t *t,
    ngx_str_t *text);
static ngx_int_t ngx_http_modelgw_topup_body_check(ngx_http_modelgw_topup_t *t,
    ngx_str_t *text);
static ngx_uint_t ngx_http_modelgw_topup_body_known(ngx_str_t *name);
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
    [NGX_HTTP_MODELGW_TOPUP_ID] =
        { ngx_string("id"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_TOPUP_AMOUNT] =
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


/* the callback gets the request only: the state is found by its cleanup */

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
                                      "No ledger is configured");
    }

    rc = ngx_http_modelgw_admin_query_find(r, ctx, &t->account, &t->index);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_modelgw_topup_body(t);

    return (rc == NGX_OK) ? ngx_http_modelgw_topup_values(t) : rc;
}


/* scans the body into t->scan */

static ngx_int_t
ngx_http_modelgw_topup_body(ngx_http_modelgw_topup_t *t)
{
    u_char                         buf[NGX_MODELGW_SCAN_FAULT_LEN];
    ngx_int_t                      rc;
    ngx_str_t                      text, fault;
    const char                    *code;
    ngx_modelgw_scan_conf_t        conf;
    ngx_http_request_t            *r;
    ngx_modelgw_scan_plan_t       *plan;
    ngx_http_modelgw_main_conf_t  *mmcf;

    r = t->request;

    ngx_str_null(&text);

    rc = ngx_http_modelgw_topup_body_text(t, &text);
    if (rc != NGX_OK) {
        return rc;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));

    conf.watches = ngx_http_modelgw_topup_watches;
    conf.nwatches = NGX_HTTP_MODELGW_TOPUP_FIELDS;
    conf.check = 1;
    conf.skip = mmcf->skip;

    plan = ngx_modelgw_scan_plan(r->pool, &conf);
    if (plan == NULL) {
        return NGX_ERROR;
    }

    t->scan = ngx_modelgw_scan_make(r->pool, plan);
    if (t->scan == NULL) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_scan_feed(t->scan, text.data, text.len) == NGX_OK
        && ngx_modelgw_scan_done(t->scan) == NGX_OK)
    {
        return ngx_http_modelgw_topup_body_check(t, &text);
    }

    fault.data = buf;
    code = "INVALID_JSON";

    if (ngx_modelgw_scan_fault(t->scan, &fault) == NGX_MODELGW_SCAN_FIELD) {
        code = "INVALID_FIELD";
    }

    return ngx_http_modelgw_error(r, t->ctx, NGX_HTTP_BAD_REQUEST, code, "%V",
                                  &fault);
}


/* the limits of the location keep the body small and in memory */

static ngx_int_t
ngx_http_modelgw_topup_body_text(ngx_http_modelgw_topup_t *t, ngx_str_t *text)
{
    size_t               len;
    u_char              *p;
    ngx_chain_t         *cl, *bufs;
    ngx_http_request_t  *r;

    r = t->request;

    len = 0;
    bufs = r->request_body ? r->request_body->bufs : NULL;

    for (cl = bufs; cl; cl = cl->next) {

        if (cl->buf->in_file) {
            return NGX_ERROR;
        }

        len += cl->buf->last - cl->buf->pos;
    }

    if (len == 0) {
        return ngx_http_modelgw_error(r, t->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_JSON", "The body is empty");
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;
    text->len = len;

    for (cl = bufs; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    return NGX_OK;
}


/*
 * The scanner ignores fields that it does not watch; here they are refused.
 * The text is one valid object, so its keys are the strings before ":" at depth
 * 1; a key written with escapes is refused, too.
 */

static ngx_int_t
ngx_http_modelgw_topup_body_check(ngx_http_modelgw_topup_t *t, ngx_str_t *text)
{
    u_char      *p, *last;
    ngx_str_t    string;
    ngx_uint_t   depth;

    depth = 0;
    ngx_str_null(&string);

    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        switch (*p) {

        case '{':
        case '[':
            depth++;
            break;

        case '}':
        case ']':
            depth--;
            break;

        case '"':
            string.data = ++p;

            while (*p != '"') {
                p += (*p == '\\') ? 2 : 1;
            }

            string.len = p - string.data;
            break;

        case ':':
            if (depth == 1 && !ngx_http_modelgw_topup_body_known(&string)) {
                string.len = ngx_min(string.len, 64);

                return ngx_http_modelgw_error(t->request, t->ctx,
                                              NGX_HTTP_BAD_REQUEST,
                                              "INVALID_FIELD",
                                              "Unknown field \"%V\"",
                                              &string);
            }

            break;
        }
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_modelgw_topup_body_known(ngx_str_t *name)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_watch_t  *w;

    w = ngx_http_modelgw_topup_watches;

    for (i = 0; i < NGX_HTTP_MODELGW_TOPUP_FIELDS; i++) {

        if (w[i].path.len == name->len
            && ngx_memcmp(w[i].path.data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_modelgw_topup_values(ngx_http_modelgw_topup_t *t)
{
    ngx_str_t                  text;
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *v;

    for (i = 0; i < NGX_HTTP_MODELGW_TOPUP_FIELDS; i++) {
        v = ngx_modelgw_scan_value(t->scan, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            return ngx_http_modelgw_error(t->request, t->ctx,
                                          NGX_HTTP_BAD_REQUEST,
                                          "MISSING_FIELD", "\"%V\" is required",
                                          &ngx_http_modelgw_topup_watches[i]
                                              .path);
        }
    }

    v = ngx_modelgw_scan_value(t->scan, NGX_HTTP_MODELGW_TOPUP_ID);

    t->id.len = v->len;
    t->id.data = v->text;

    if (!ngx_http_modelgw_conf_id(&t->id)
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

    v = ngx_modelgw_scan_value(t->scan, NGX_HTTP_MODELGW_TOPUP_AMOUNT);

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
                                      "with at most 9 digits after the point");
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

    /* the slot of a top-up without a worker may be freed at any time */

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
    int64_t                   balance;
    u_char                    amount[NGX_MODELGW_AMOUNT_LEN];
    ngx_str_t                 body, sum;
    ngx_modelgw_out_t         out;
    ngx_http_request_t       *r;
    ngx_modelgw_out_piece_t   piece;

    r = t->request;
    balance = ngx_http_modelgw_topup_balance(t);

    sum.data = amount;
    sum.len = ngx_modelgw_amount(amount, t->amount) - amount;

    if (fresh) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "top-up \"%V\": %V euro for account \"%V\"",
                      &t->id, &sum, &t->account);
    }

    ngx_modelgw_out_piece(&out, &piece, r->pool, NGX_HTTP_MODELGW_TOPUP_SIZE);
    ngx_modelgw_out_text(&out, "{\"id\":");
    ngx_modelgw_out_string(&out, &t->id);
    ngx_modelgw_out_text(&out, ",\"account\":");
    ngx_modelgw_out_string(&out, &t->account);
    ngx_modelgw_out_text(&out, ",\"amount\":");
    ngx_modelgw_out_string(&out, &sum);
    ngx_modelgw_out_text(&out, ",\"balance\":");
    ngx_modelgw_amount_out(&out, balance);

    if (fresh) {
        ngx_modelgw_out_text(&out, ",\"new\":true}");

    } else {
        ngx_modelgw_out_text(&out, ",\"new\":false}");
    }

    if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK) {
        return NGX_ERROR;
    }

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
