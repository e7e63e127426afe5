
/*
 * A request that changes something: the body, the writer, the response.
 *
 * The writer of the ledger is a thread of one of the workers.  The change is
 * requested through shared memory, where the writer answers when it is durable;
 * a timer polls for that.  A change can be repeated, whatever became of this
 * request, so a client that closes its connection, or waits in vain, does not
 * undo it.
 *
 *     body      ngx_http_read_client_request_body() owns the request
 *     asked     the timer owns it; if the client closes its connection, the
 *               cleanup of the request's pool frees the slot in shared memory
 *     answered  finalized
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_CHANGE_WAIT  10000    /* milliseconds */


static void ngx_http_modelgw_change_read(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_change_parse(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_change_start(ngx_http_modelgw_change_t *c);
static void ngx_http_modelgw_change_actor(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_change_ask(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_change_full(ngx_http_modelgw_change_t *c,
    const char *text);
static void ngx_http_modelgw_change_free(void *data);
static void ngx_http_modelgw_change_poll(ngx_event_t *ev);
static ngx_int_t ngx_http_modelgw_change_wait(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_change_end(ngx_http_modelgw_change_t *c);


ngx_int_t
ngx_http_modelgw_admin_change(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_change_kind_t *kind,
    ngx_str_t *id)
{
    ngx_int_t                   rc;
    ngx_pool_cleanup_t         *cln;
    ngx_http_modelgw_change_t  *c;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_modelgw_change_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    c = cln->data;
    ngx_memzero(c, sizeof(ngx_http_modelgw_change_t));

    c->kind = kind;
    c->request = r;
    c->ctx = ctx;
    c->mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    c->id = *id;

    c->asked.kind = kind->kind;
    c->asked.account = NGX_MODELGW_LEDGER_NONE;

    cln->handler = ngx_http_modelgw_change_free;

    rc = ngx_http_read_client_request_body(r, ngx_http_modelgw_change_read);

    return (rc >= NGX_HTTP_SPECIAL_RESPONSE) ? rc : NGX_DONE;
}


/* the callback gets the request only: the state is found by its cleanup */

static void
ngx_http_modelgw_change_read(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_pool_cleanup_t              *cln;
    ngx_http_modelgw_change_t       *c;
    ngx_http_modelgw_change_kind_t  *kind;

    cln = r->pool->cleanup;

    while (cln->handler != ngx_http_modelgw_change_free) {
        cln = cln->next;
    }

    c = cln->data;
    kind = c->kind;

    rc = ngx_http_modelgw_change_parse(c);

    if (rc == NGX_OK) {
        rc = kind->local ? kind->answer(c) : ngx_http_modelgw_change_start(c);
    }

    if (rc != NGX_OK) {
        ngx_http_modelgw_admin_refuse(r, c->ctx, rc);
    }
}


static ngx_int_t
ngx_http_modelgw_change_parse(ngx_http_modelgw_change_t *c)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i;
    ngx_http_modelgw_change_pt    steps[3];

    if (!c->kind->local
        && (c->mmcf->ledger_path.len == 0 || c->mmcf->ledger == NULL))
    {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_NOT_FOUND,
                                      "NOT_FOUND", "No ledger is configured");
    }

    if (!c->kind->local) {
        rc = ngx_http_modelgw_admin_member(c->request, c->ctx);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    steps[0] = c->kind->find;
    steps[1] = ngx_http_modelgw_admin_body;
    steps[2] = c->kind->parse;

    for (i = 0; i < 3; i++) {

        if (steps[i] == NULL) {
            continue;
        }

        rc = steps[i](c);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_modelgw_admin_new_id(ngx_str_t *id)
{
    return ngx_http_modelgw_conf_id(id)
           && id->data[0] != '.' && id->data[0] != '-';
}


ngx_int_t
ngx_http_modelgw_admin_change_account(ngx_http_modelgw_change_t *c)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_admin_accounts_find(c->request, c->ctx, &c->id,
                                              &c->asked.account);

    if (rc == NGX_OK) {
        ngx_http_modelgw_admin_name(&c->asked.owner, &c->id);
    }

    return rc;
}


static ngx_int_t
ngx_http_modelgw_change_start(ngx_http_modelgw_change_t *c)
{
    ngx_int_t            rc;
    ngx_time_t          *now;
    ngx_http_request_t  *r;

    r = c->request;

    /* the slot of a change without a worker may be freed at any time */

    if (c->mmcf->worker == NGX_MODELGW_LEDGER_NONE) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "too many nginx workers use \"modelgw_zone\"");

        return ngx_http_modelgw_change_full(c, "The gateway is full, try again "
                                               "later");
    }

    ngx_http_modelgw_change_actor(c);

    now = ngx_timeofday();

    c->asked.worker = c->mmcf->worker;
    c->asked.time = (uint64_t) now->sec * 1000 + now->msec;

    rc = ngx_http_modelgw_change_ask(c);
    if (rc != NGX_OK) {
        return rc;
    }

    c->start = ngx_current_msec;

    c->timer.handler = ngx_http_modelgw_change_poll;
    c->timer.data = c;
    c->timer.log = r->connection->log;

    ngx_add_timer(&c->timer, NGX_HTTP_MODELGW_ADMIN_POLL);

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_OK;
}


/* who sends the request, and from where, for the audit log */

static void
ngx_http_modelgw_change_actor(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                        *text;
    ngx_http_modelgw_admin_client_t  *client;

    client = c->ctx->client;
    text = &client->name;

    c->asked.actor.len = ngx_min(text->len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(c->asked.actor.data, text->data, c->asked.actor.len);

    text = &c->request->connection->addr_text;

    c->asked.address_len = ngx_min(text->len, NGX_MODELGW_LEDGER_ADDRESS);
    ngx_memcpy(c->asked.address, text->data, c->asked.address_len);
}


/* While too many changes are pending, there is no slot; so it is repeated. */

static ngx_int_t
ngx_http_modelgw_change_ask(ngx_http_modelgw_change_t *c)
{
    if (ngx_modelgw_ledger_change(c->mmcf->ledger, &c->asked, &c->slot)
        == NGX_DECLINED)
    {
        return ngx_http_modelgw_change_full(c, "\"modelgw_zone\" has no room "
                                               "for more accounts");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_change_full(ngx_http_modelgw_change_t *c, const char *text)
{
    return ngx_http_modelgw_error(c->request, c->ctx,
                                  NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE", "%s", text);
}


static void
ngx_http_modelgw_change_free(void *data)
{
    ngx_http_modelgw_change_t  *c = data;

    if (c->timer.timer_set) {
        ngx_del_timer(&c->timer);
    }

    if (c->slot) {
        ngx_modelgw_ledger_change_free(c->mmcf->ledger, c->slot);
        c->slot = NULL;
    }
}


static void
ngx_http_modelgw_change_poll(ngx_event_t *ev)
{
    ngx_int_t                   rc;
    ngx_connection_t           *conn;
    ngx_http_modelgw_change_t  *c;

    c = ev->data;
    conn = c->request->connection;

    ngx_http_set_log_request(conn->log, c->request);

    rc = ngx_http_modelgw_change_wait(c);

    if (rc == NGX_AGAIN) {
        ngx_add_timer(ev, NGX_HTTP_MODELGW_ADMIN_POLL);
        return;
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_change_end(c);
    }

    if (rc != NGX_OK) {
        ngx_http_modelgw_admin_refuse(c->request, c->ctx, rc);
    }

    ngx_http_run_posted_requests(conn);
}


/* NGX_OK: it has ended, or no longer waits; NGX_AGAIN; an error as others */

static ngx_int_t
ngx_http_modelgw_change_wait(ngx_http_modelgw_change_t *c)
{
    ngx_int_t   rc;
    ngx_uint_t  late;

    late = (ngx_current_msec - c->start >= NGX_HTTP_MODELGW_CHANGE_WAIT);

    if (c->slot) {
        return (late
                || __atomic_load_n(&c->slot->state, __ATOMIC_ACQUIRE)
                   != NGX_MODELGW_CHANGE_ASKED)
               ? NGX_OK : NGX_AGAIN;
    }

    if (late) {
        return ngx_http_modelgw_change_full(c, "Too many changes at a time, "
                                               "try again");
    }

    rc = ngx_http_modelgw_change_ask(c);

    return (rc == NGX_OK) ? NGX_AGAIN : rc;
}


static ngx_int_t
ngx_http_modelgw_change_end(ngx_http_modelgw_change_t *c)
{
    uint64_t  state;

    state = __atomic_load_n(&c->slot->state, __ATOMIC_ACQUIRE);

    /* while it is ASKED the writer may change it */

    if (state != NGX_MODELGW_CHANGE_ASKED) {
        c->asked = *c->slot;
    }

    c->asked.state = state;

    ngx_http_modelgw_change_free(c);

    return c->kind->answer(c);
}


ngx_int_t
ngx_http_modelgw_admin_change_failed(ngx_http_modelgw_change_t *c)
{
    return ngx_http_modelgw_error(c->request, c->ctx,
                                  NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "%s cannot be written; the change may still "
                                  "be made: look before you repeat it",
                                  ngx_http_modelgw_admin_books(c->request));
}
