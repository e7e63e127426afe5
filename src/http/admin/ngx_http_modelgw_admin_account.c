
/*
 * Accounts: opened, closed, annotated.
 *
 * A closed account keeps its name, and with it the founding credit that it once
 * got: it cannot get it twice.  Its balance stays.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_scan.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_ACCOUNT_SIZE  512     /* bytes allocated at first */


/* rows of the tables of fields */

typedef enum {
    NGX_HTTP_MODELGW_ACCOUNT_ID = 0,
    NGX_HTTP_MODELGW_ACCOUNT_FOUNDING,
    NGX_HTTP_MODELGW_ACCOUNT_NEW_NOTE,
    NGX_HTTP_MODELGW_ACCOUNT_NEW_FIELDS
} ngx_http_modelgw_account_new_e;

typedef enum {
    NGX_HTTP_MODELGW_ACCOUNT_STATE = 0,
    NGX_HTTP_MODELGW_ACCOUNT_NOTE,
    NGX_HTTP_MODELGW_ACCOUNT_FIELDS
} ngx_http_modelgw_account_set_e;


static ngx_int_t ngx_http_modelgw_account_parse_new(
    ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_account_parse_set(
    ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_account_answer(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_account_exists(ngx_http_modelgw_change_t *c);


static ngx_modelgw_scan_watch_t  ngx_http_modelgw_account_new_fields[] = {
    [NGX_HTTP_MODELGW_ACCOUNT_ID] =
        { ngx_string("id"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_ACCOUNT_FOUNDING] =
        { ngx_string("founding"), NGX_MODELGW_SCAN_BOOL },
    [NGX_HTTP_MODELGW_ACCOUNT_NEW_NOTE] =
        { ngx_string("note"), NGX_MODELGW_SCAN_STRING }
};

static ngx_modelgw_scan_watch_t  ngx_http_modelgw_account_set_fields[] = {
    [NGX_HTTP_MODELGW_ACCOUNT_STATE] =
        { ngx_string("state"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_ACCOUNT_NOTE] =
        { ngx_string("note"), NGX_MODELGW_SCAN_STRING }
};

static ngx_conf_enum_t  ngx_http_modelgw_account_states[] = {
    { ngx_string("open"), 0 },
    { ngx_string("closed"), 1 },
    { ngx_null_string, 0 }
};


ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_account_new = {
    NGX_MODELGW_CHANGE_ACCOUNT_NEW,
    ngx_http_modelgw_account_new_fields,
    NGX_HTTP_MODELGW_ACCOUNT_NEW_FIELDS,
    NGX_HTTP_MODELGW_ACCOUNT_FOUNDING,
    NULL,
    ngx_http_modelgw_account_parse_new,
    ngx_http_modelgw_account_answer,
    0
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_account_set = {
    NGX_MODELGW_CHANGE_ACCOUNT_SET,
    ngx_http_modelgw_account_set_fields,
    NGX_HTTP_MODELGW_ACCOUNT_FIELDS,
    0,
    ngx_http_modelgw_admin_change_account,
    ngx_http_modelgw_account_parse_set,
    ngx_http_modelgw_account_answer,
    0
};


static ngx_int_t
ngx_http_modelgw_account_parse_new(ngx_http_modelgw_change_t *c)
{
    uint32_t                   index;
    ngx_str_t                  id;
    ngx_modelgw_scan_value_t  *v;

    (void) ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_ACCOUNT_ID, &id);

    if (!ngx_http_modelgw_admin_new_id(&id)) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD", "\"id\" must be "
                                      NGX_HTTP_MODELGW_NEW_ID_TAKES);
    }

    ngx_http_modelgw_admin_name(&c->asked.owner, &id);

    if (ngx_modelgw_ledger_account(c->mmcf->ledger, &id, 0, 0, 0, 0, &index)
        == NGX_OK)
    {
        return ngx_http_modelgw_account_exists(c);
    }

    v = ngx_modelgw_scan_value(c->scan, NGX_HTTP_MODELGW_ACCOUNT_FOUNDING);

    c->asked.amount = (v->type == NGX_MODELGW_SCAN_FALSE) ? 0
                                                          : c->mmcf->founding;

    return ngx_http_modelgw_admin_note(c, NGX_HTTP_MODELGW_ACCOUNT_NEW_NOTE);
}


static ngx_int_t
ngx_http_modelgw_account_parse_set(ngx_http_modelgw_change_t *c)
{
    ngx_int_t   rc;
    ngx_str_t   state;
    ngx_uint_t  closed;

    if (ngx_http_modelgw_admin_field(c, NGX_HTTP_MODELGW_ACCOUNT_STATE,
                                     &state))
    {
        if (ngx_http_modelgw_option_word_find(ngx_http_modelgw_account_states,
                                              &state, &closed)
            != NGX_OK)
        {
            return ngx_http_modelgw_error(c->request, c->ctx,
                                          NGX_HTTP_BAD_REQUEST, "INVALID_FIELD",
                                          "\"state\" must be \"open\" or "
                                          "\"closed\"");
        }

        c->asked.closed = (uint32_t) closed;
        c->asked.sets = NGX_MODELGW_CHANGE_STATE;
    }

    rc = ngx_http_modelgw_admin_note(c, NGX_HTTP_MODELGW_ACCOUNT_NOTE);

    if (rc == NGX_OK && c->asked.sets == 0) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "MISSING_FIELD",
                                      "\"state\" or \"note\" is required");
    }

    return rc;
}


static ngx_int_t
ngx_http_modelgw_account_answer(ngx_http_modelgw_change_t *c)
{
    uint32_t                  index;
    ngx_str_t                 id, note, body;
    ngx_uint_t                fresh;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    if (c->asked.state == NGX_MODELGW_CHANGE_OTHER) {
        return ngx_http_modelgw_account_exists(c);
    }

    if (c->asked.state != NGX_MODELGW_CHANGE_MADE
        && c->asked.state != NGX_MODELGW_CHANGE_KNOWN)
    {
        return ngx_http_modelgw_admin_change_failed(c);
    }

    id.len = c->asked.owner.len;
    id.data = c->asked.owner.data;

    if (ngx_modelgw_ledger_account(c->mmcf->ledger, &id, 0, 0, 0, 0, &index)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    fresh = (c->asked.kind == NGX_MODELGW_CHANGE_ACCOUNT_NEW);

    if (fresh) {
        ngx_log_error(NGX_LOG_NOTICE, c->request->connection->log, 0,
                      "account \"%V\" opened", &id);

    } else if (c->asked.sets & NGX_MODELGW_CHANGE_STATE) {
        ngx_log_error(NGX_LOG_NOTICE, c->request->connection->log, 0,
                      "account \"%V\" %s", &id,
                      c->asked.closed ? "closed" : "opened again");
    }

    ngx_modelgw_out_piece(&out, &piece, c->request->pool,
                          NGX_HTTP_MODELGW_ACCOUNT_SIZE);
    ngx_http_modelgw_admin_account_write(&out, c->mmcf, &c->asked, index);

    if (c->asked.sets & NGX_MODELGW_CHANGE_NOTE) {
        note.len = c->asked.note_len;
        note.data = c->asked.note;

        ngx_modelgw_out_text(&out, ",\"note\":");
        ngx_modelgw_out_string(&out, &note);
    }

    ngx_modelgw_out_text(&out, "}");

    if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_admin_reply(c->request, c->ctx,
                                 fresh ? NGX_HTTP_CREATED : NGX_HTTP_OK, &body);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_account_exists(ngx_http_modelgw_change_t *c)
{
    ngx_str_t  id;

    id.len = c->asked.owner.len;
    id.data = c->asked.owner.data;

    return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_CONFLICT,
                                  "ACCOUNT_EXISTS",
                                  "There is an account \"%V\" already", &id);
}
