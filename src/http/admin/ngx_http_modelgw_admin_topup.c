
/*
 * A top-up, or a correction, which may be negative and needs a reason.  Its id
 * makes it safe to repeat.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_scan.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_TOPUP_SIZE    512     /* bytes allocated at first */

/* the prefix of ids of founding credit, which the gateway makes itself */
#define NGX_HTTP_MODELGW_TOPUP_OURS    "founding:"


/* rows of ngx_http_modelgw_topup_fields */

typedef enum {
    NGX_HTTP_MODELGW_TOPUP_ID = 0,
    NGX_HTTP_MODELGW_TOPUP_AMOUNT,
    NGX_HTTP_MODELGW_TOPUP_REASON,
    NGX_HTTP_MODELGW_TOPUP_CORRECTION,
    NGX_HTTP_MODELGW_TOPUP_FIELDS
} ngx_http_modelgw_topup_field_e;


static ngx_int_t ngx_http_modelgw_topup_parse(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_topup_amount(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_topup_answer(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_topup_failed(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_topup_made(ngx_http_modelgw_change_t *c);
static int64_t ngx_http_modelgw_topup_balance(ngx_http_modelgw_change_t *c);


static ngx_modelgw_scan_watch_t  ngx_http_modelgw_topup_fields[] = {
    [NGX_HTTP_MODELGW_TOPUP_ID] =
        { ngx_string("id"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_TOPUP_AMOUNT] =
        { ngx_string("amount"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_TOPUP_REASON] =
        { ngx_string("reason"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_TOPUP_CORRECTION] =
        { ngx_string("correction"), NGX_MODELGW_SCAN_BOOL }
};


ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_topup = {
    NGX_MODELGW_CHANGE_TOPUP,
    ngx_http_modelgw_topup_fields,
    NGX_HTTP_MODELGW_TOPUP_FIELDS,
    NGX_HTTP_MODELGW_TOPUP_REASON,
    ngx_http_modelgw_admin_change_account,
    ngx_http_modelgw_topup_parse,
    ngx_http_modelgw_topup_answer,
    0
};


static ngx_int_t
ngx_http_modelgw_topup_parse(ngx_http_modelgw_change_t *c)
{
    ngx_int_t                  rc;
    ngx_str_t                  id;
    ngx_modelgw_scan_value_t  *v;

    (void) ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_TOPUP_ID, &id);

    if (!ngx_http_modelgw_conf_id(&id)
        || (id.len >= sizeof(NGX_HTTP_MODELGW_TOPUP_OURS) - 1
            && ngx_strncmp(id.data, NGX_HTTP_MODELGW_TOPUP_OURS,
                           sizeof(NGX_HTTP_MODELGW_TOPUP_OURS) - 1)
               == 0))
    {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"id\" must be 1 to 64 letters, digits "
                                      "and \"._@:-\", and not begin with \""
                                      NGX_HTTP_MODELGW_TOPUP_OURS "\"");
    }

    ngx_http_modelgw_admin_name(&c->asked.id, &id);

    v = ngx_modelgw_scan_value(c->scan, NGX_HTTP_MODELGW_TOPUP_CORRECTION);

    c->asked.correction = (v->type == NGX_MODELGW_SCAN_TRUE);

    rc = ngx_http_modelgw_topup_amount(c);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_admin_note(c, NGX_HTTP_MODELGW_TOPUP_REASON);
    }

    if (rc == NGX_OK && c->asked.correction && c->asked.note_len == 0) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "MISSING_FIELD",
                                      "\"reason\" is required for a "
                                      "correction");
    }

    return rc;
}


static ngx_int_t
ngx_http_modelgw_topup_amount(ngx_http_modelgw_change_t *c)
{
    ngx_str_t   text;
    ngx_uint_t  minus;

    (void) ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_TOPUP_AMOUNT,
                                        &text);

    minus = (c->asked.correction && text.len
             && text.len <= NGX_MODELGW_SCAN_TEXT && text.data[0] == '-');

    if (minus) {
        text.data++;
        text.len--;
    }

    if (text.len > NGX_MODELGW_SCAN_TEXT
        || ngx_modelgw_amount_parse(&text, &c->asked.amount) != NGX_OK
        || c->asked.amount <= 0)
    {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"amount\" must be euro as decimal "
                                      "text, above 0 and at most 999999999, "
                                      "with at most 9 digits after the point"
                                      "%s", c->asked.correction
                                      ? "; in a correction it may have a \"-\""
                                      : "");
    }

    if (minus) {
        c->asked.amount = -c->asked.amount;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_topup_answer(ngx_http_modelgw_change_t *c)
{
    ngx_str_t  id;

    switch (c->asked.state) {

    case NGX_MODELGW_CHANGE_MADE:
    case NGX_MODELGW_CHANGE_KNOWN:
        return ngx_http_modelgw_topup_made(c);

    case NGX_MODELGW_CHANGE_OTHER:
        id.len = c->asked.id.len;
        id.data = c->asked.id.data;

        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_CONFLICT,
                                      "TOPUP_CONFLICT",
                                      "A top-up \"%V\" was made with another "
                                      "account or amount", &id);

    default:
        return ngx_http_modelgw_topup_failed(c);
    }
}


static ngx_int_t
ngx_http_modelgw_topup_failed(ngx_http_modelgw_change_t *c)
{
    int64_t  sum;

    if (c->asked.state == NGX_MODELGW_CHANGE_FAILED
        && __builtin_add_overflow(ngx_http_modelgw_topup_balance(c),
                                  c->asked.amount, &sum))
    {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"amount\" would make the balance "
                                      "more than 9223372036 euro");
    }

    return ngx_http_modelgw_error(c->request, c->ctx,
                                  NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "%s cannot be written; the top-up may still "
                                  "be made: repeat it with the same id",
                                  ngx_http_modelgw_admin_books(c->request));
}


static ngx_int_t
ngx_http_modelgw_topup_made(ngx_http_modelgw_change_t *c)
{
    int64_t                   balance;
    u_char                    amount[NGX_MODELGW_AMOUNT_LEN];
    ngx_str_t                 id, sum, body;
    ngx_uint_t                fresh;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    fresh = (c->asked.state == NGX_MODELGW_CHANGE_MADE);
    balance = ngx_http_modelgw_topup_balance(c);

    id.len = c->asked.id.len;
    id.data = c->asked.id.data;

    sum.data = amount;
    sum.len = ngx_modelgw_amount(amount, c->asked.amount) - amount;

    if (fresh) {
        ngx_log_error(NGX_LOG_NOTICE, c->request->connection->log, 0,
                      "%s \"%V\": %V euro for account \"%V\"",
                      c->asked.correction ? "correction" : "top-up",
                      &id, &sum, &c->id);
    }

    ngx_modelgw_out_piece(&out, &piece, c->request->pool,
                          NGX_HTTP_MODELGW_TOPUP_SIZE);
    ngx_modelgw_out_text(&out, "{\"id\":");
    ngx_modelgw_out_string(&out, &id);
    ngx_modelgw_out_text(&out, ",\"account\":");
    ngx_modelgw_out_string(&out, &c->id);
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

    ngx_http_modelgw_admin_reply(c->request, c->ctx,
                                 fresh ? NGX_HTTP_CREATED : NGX_HTTP_OK, &body);

    return NGX_OK;
}


static int64_t
ngx_http_modelgw_topup_balance(ngx_http_modelgw_change_t *c)
{
    int64_t                        balance;
    ngx_modelgw_ledger_t          *ledger;
    ngx_modelgw_ledger_account_t  *a;

    if (c->mmcf->cluster) {
        return c->asked.balance;
    }

    ledger = c->mmcf->ledger;
    a = ngx_modelgw_ledger_account_at(ledger, c->asked.account);

    ngx_modelgw_ledger_lock(ledger);

    balance = a->balance;

    ngx_modelgw_ledger_unlock(ledger);

    return balance;
}
