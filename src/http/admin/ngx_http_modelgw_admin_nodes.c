
/*
 * The nodes of a cluster: GET /nodes, PATCH /nodes/NUM, and POST
 * /nodes/NUM/write-off.  All of them work on the database, from any node.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_out.h"

#include "ngx_http_modelgw_admin.h"


#define NGX_HTTP_MODELGW_NODE_SIZE  256  /* bytes of an answer, about */


static ngx_int_t ngx_http_modelgw_node_none(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_node_change(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_node_parse_set(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_node_parse_write_off(
    ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_node_answer(ngx_http_modelgw_change_t *c);


static ngx_modelgw_scan_watch_t  ngx_http_modelgw_node_set_fields[] = {
    { ngx_string("drain"), NGX_MODELGW_SCAN_BOOL }
};

static ngx_modelgw_scan_watch_t  ngx_http_modelgw_node_write_off_fields[] = {
    { ngx_string("charge"), NGX_MODELGW_SCAN_BOOL }
};


ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_node_set = {
    NGX_MODELGW_CHANGE_NODE_SET,
    ngx_http_modelgw_node_set_fields,
    1,
    1,
    ngx_http_modelgw_node_change,
    ngx_http_modelgw_node_parse_set,
    ngx_http_modelgw_node_answer,
    0
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_node_write_off = {
    NGX_MODELGW_CHANGE_NODE_WRITE_OFF,
    ngx_http_modelgw_node_write_off_fields,
    1,
    0,
    ngx_http_modelgw_node_change,
    ngx_http_modelgw_node_parse_write_off,
    ngx_http_modelgw_node_answer,
    0
};


ngx_int_t
ngx_http_modelgw_admin_nodes_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job)
{
    return job->mmcf->cluster ? NGX_OK : ngx_http_modelgw_node_none(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_node_none(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                  "No cluster is configured");
}


ngx_int_t
ngx_http_modelgw_admin_nodes(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_modelgw_lease_node_t  *node;

    node = ngx_modelgw_node(job->mmcf->ledger);

    return ngx_modelgw_store_nodes(store, node ? node->num : 0, &job->body,
                                   job->pool);
}


/* the number in the path; whether there is such a node is found later */

static ngx_int_t
ngx_http_modelgw_node_change(ngx_http_modelgw_change_t *c)
{
    if (c->mmcf->cluster == NULL) {
        return ngx_http_modelgw_node_none(c->request, c->ctx);
    }

    if (c->id.len > NGX_INT32_LEN || ngx_atoi(c->id.data, c->id.len) < 1) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_NOT_FOUND,
                                      "NOT_FOUND", "No such node: \"%V\"",
                                      &c->id);
    }

    ngx_http_modelgw_admin_name(&c->asked.id, &c->id);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_node_parse_set(ngx_http_modelgw_change_t *c)
{
    c->asked.closed = (ngx_modelgw_scan_value(c->scan, 0)->type
                       == NGX_MODELGW_SCAN_TRUE);
    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_node_parse_write_off(ngx_http_modelgw_change_t *c)
{
    c->asked.correction = (ngx_modelgw_scan_value(c->scan, 0)->type
                           == NGX_MODELGW_SCAN_TRUE);
    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_node_answer(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                 name, body;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    if (c->asked.state == NGX_MODELGW_CHANGE_MISSING) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_NOT_FOUND,
                                      "NOT_FOUND", "No such node: \"%V\"",
                                      &c->id);
    }

    if (c->asked.state != NGX_MODELGW_CHANGE_MADE
        && c->asked.state != NGX_MODELGW_CHANGE_KNOWN)
    {
        return ngx_http_modelgw_admin_change_failed(c);
    }

    name.len = c->asked.owner.len;
    name.data = c->asked.owner.data;

    ngx_modelgw_out_piece(&out, &piece, c->request->pool,
                          NGX_HTTP_MODELGW_NODE_SIZE);

    ngx_modelgw_out_text(&out, "{\"num\":");
    ngx_modelgw_out_number(&out, ngx_atoi(c->id.data, c->id.len));
    ngx_modelgw_out_text(&out, ",\"name\":");
    ngx_modelgw_out_string(&out, &name);

    if (c->asked.kind == NGX_MODELGW_CHANGE_NODE_WRITE_OFF) {
        ngx_modelgw_out_text(&out, ",\"state\":\"written off\",\"amount\":");
        ngx_modelgw_amount_out(&out, c->asked.amount);

    } else if (c->asked.closed) {
        ngx_modelgw_out_text(&out, ",\"state\":\"draining\"");

    } else {
        ngx_modelgw_out_text(&out, ",\"state\":\"member\"");
    }

    ngx_modelgw_out_text(&out, "}");

    if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_admin_reply(c->request, c->ctx, NGX_HTTP_OK, &body);

    return NGX_OK;
}
