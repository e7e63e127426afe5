
/*
 * Bodies of the responses API: what is refused, and what is cut out of a body
 * that is passed on.
 *
 * Nothing is stored: the upstream knows one customer, the operator, and what a
 * key stores there, any other key could read if it learns an id.  So "store" is
 * false upstream, and what refers to something stored is refused, or left out
 * if it has no meaning then: reasoning without its encrypted content.  So is
 * reasoning that a translation has sealed, which no vendor can read: users
 * change models in mid-conversation.
 *
 * Tools that run at the vendor are billed by use.  Where calls are paid by
 * tokens, a search is cut out of the tools, since Codex offers one in each
 * call; any other tool is refused unless it is known to run at the client.
 *
 * Tools and items are at fixed places, so that the same words in a schema or in
 * a text mean nothing.  They are found on the worker's tape, which is made only
 * if the scanner has counted members that they have.  Names are compared as the
 * most liberal upstream would: one in another letter case, or given twice, is
 * refused.  What is too deep for the tape is refused, too: no tool is so deep.
 *
 * Values are visited in the order of the document, each once, and a run of
 * elements is one cut.
 *
 * Rejected: marks of the scanner alone, as for the other APIs, which refuse a
 * schema that has the name of a tool in it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_splice.h"
#include "ngx_modelgw_tape.h"
#include "ngx_http_modelgw.h"


/* bytes: of the place of a value in messages; of a type that is quoted */

#define NGX_HTTP_MODELGW_RESPONSES_PATH  128
#define NGX_HTTP_MODELGW_RESPONSES_TYPE  64

/* runs of elements that are cut out; each costs about 350 bytes of memory */

#define NGX_HTTP_MODELGW_RESPONSES_CUTS  32768


typedef struct {
    ngx_http_request_t        *r;
    ngx_http_modelgw_ctx_t    *ctx;
    ngx_modelgw_tape_t        *tape;
    u_char                     path[NGX_HTTP_MODELGW_RESPONSES_PATH];
    u_char                    *end;      /* of path */
    unsigned                   paid:1;   /* the model has prices */
    unsigned                   tokens:1; /* all is to be billed by them */
    unsigned                   search:1; /* was cut out of the tools */
    unsigned                   reasoning:1; /* was cut out of the input */
} ngx_http_modelgw_responses_walk_t;


/* elements that are cut out of an array */

typedef struct {
    ngx_modelgw_node_t        *list;
    ngx_modelgw_node_t        *kept;     /* the last one; NULL: none so far */
} ngx_http_modelgw_responses_list_t;


static ngx_int_t ngx_http_modelgw_responses_store(ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t *ignored);
static ngx_int_t ngx_http_modelgw_responses_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_responses_walk_t *w);
static ngx_int_t ngx_http_modelgw_responses_walk(
    ngx_http_modelgw_responses_walk_t *w);
static ngx_int_t ngx_http_modelgw_responses_input(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *input);
static ngx_int_t ngx_http_modelgw_responses_item(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *item);
static ngx_int_t ngx_http_modelgw_responses_tools(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *tools);
static ngx_int_t ngx_http_modelgw_responses_tool(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *tool);
static ngx_int_t ngx_http_modelgw_responses_container(
    ngx_http_modelgw_responses_walk_t *w, const char *name,
    ngx_modelgw_node_t *node, ngx_uint_t *local);
static ngx_uint_t ngx_http_modelgw_responses_listed(
    ngx_http_modelgw_responses_walk_t *w, const char **names,
    ngx_modelgw_node_t *type);
static ngx_int_t ngx_http_modelgw_responses_choice(
    ngx_http_modelgw_responses_walk_t *w);
static ngx_int_t ngx_http_modelgw_responses_priced(
    ngx_http_modelgw_responses_walk_t *w, const char *name,
    ngx_modelgw_node_t *type);
static ngx_int_t ngx_http_modelgw_responses_members(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *object,
    ngx_str_t *names, ngx_modelgw_node_t **values);
static ngx_int_t ngx_http_modelgw_responses_member(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *key,
    ngx_str_t *names, ngx_uint_t *n);
static ngx_uint_t ngx_http_modelgw_responses_folds(ngx_str_t *key,
    ngx_str_t *name);
static ngx_uint_t ngx_http_modelgw_responses_begins(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *node,
    const char *text);
static ngx_uint_t ngx_http_modelgw_responses_hidden(
    ngx_http_modelgw_responses_walk_t *w, ngx_modelgw_node_t *node);
static ngx_int_t ngx_http_modelgw_responses_cut(
    ngx_http_modelgw_responses_walk_t *w,
    ngx_http_modelgw_responses_list_t *list, ngx_modelgw_node_t *node);
static u_char *ngx_http_modelgw_responses_index(
    ngx_http_modelgw_responses_walk_t *w, ngx_uint_t i);
static ngx_int_t ngx_http_modelgw_responses_ignored(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_responses_walk_t *w,
    ngx_uint_t store);


#define ngx_http_modelgw_responses_string(node)                               \
    ((node) && (node)->type == NGX_MODELGW_TAPE_STRING                        \
     && (node)->to - (node)->from > 2)


/* members that are read, of items */

enum {
    ITEM_TYPE = 0,
    ITEM_ROLE,
    ITEM_ENCRYPTED,
    ITEM_TOOLS,
    ITEM_NAMES
};

static ngx_str_t  ngx_http_modelgw_responses_item_names[] = {
    ngx_string("type"),
    ngx_string("role"),
    ngx_string("encrypted_content"),
    ngx_string("tools"),
    ngx_null_string
};


/* of tools */

enum {
    TOOL_TYPE = 0,
    TOOL_TOOLS,
    TOOL_MODEL,
    TOOL_CONTAINER,
    TOOL_ENVIRONMENT,
    TOOL_STORES,
    TOOL_NAMES
};

static ngx_str_t  ngx_http_modelgw_responses_tool_names[] = {
    ngx_string("type"),
    ngx_string("tools"),
    ngx_string("model"),
    ngx_string("container"),
    ngx_string("environment"),
    ngx_string("vector_store_ids"),
    ngx_null_string
};


/* of containers that tools run in */

enum {
    CONTAINER_TYPE = 0,
    CONTAINER_ID,
    CONTAINER_FILES,
    CONTAINER_SKILLS,
    CONTAINER_NAMES
};

static ngx_str_t  ngx_http_modelgw_responses_container_names[] = {
    ngx_string("type"),
    ngx_string("container_id"),
    ngx_string("file_ids"),
    ngx_string("skills"),
    ngx_null_string
};


/* types of tools that run at the client, or hold others */

static const char  *ngx_http_modelgw_responses_free_types[] = {
    "tool_search",
    "local_shell",
    "apply_patch",

    /* those that the body describes */

    "function",
    "custom",
    "namespace",
    NULL
};

#define NGX_HTTP_MODELGW_RESPONSES_DESCRIBED  3


ngx_int_t
ngx_http_modelgw_responses(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                          rc;
    ngx_uint_t                         store;
    ngx_http_modelgw_responses_walk_t  w;

    rc = ngx_http_modelgw_responses_state(r, ctx);

    /* a translation leaves out, or refuses, all else that this is about */

    if (rc != NGX_OK || ctx->call.translate) {
        return rc;
    }

    if (ngx_array_init(&ctx->call.cuts, r->pool, 4, sizeof(ngx_modelgw_cut_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memzero(&w, sizeof(ngx_http_modelgw_responses_walk_t));

    rc = ngx_http_modelgw_responses_store(ctx, &store);

    if (rc == NGX_OK && ngx_http_modelgw_hold_marked(ctx)) {
        rc = ngx_http_modelgw_responses_body(r, ctx, &w);
    }

    return (rc == NGX_OK) ? ngx_http_modelgw_responses_ignored(r, ctx, &w,
                                                               store)
                          : rc;
}


ngx_int_t
ngx_http_modelgw_responses_state(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_conf_t   *conf;
    ngx_modelgw_scan_value_t  *v;

    conf = ctx->request.scan_conf;

    for (i = NGX_HTTP_MODELGW_WATCH_STATE;
         i <= NGX_HTTP_MODELGW_WATCH_STATE_LAST;
         i++)
    {
        v = ngx_modelgw_scan_value(ctx->request.scan, i);

        if (v->type != NGX_MODELGW_SCAN_ABSENT
            && v->type != NGX_MODELGW_SCAN_NULL
            && v->type != NGX_MODELGW_SCAN_FALSE)
        {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "UNSUPPORTED_FIELD",
                                          "\"%V\" is not supported, nothing is "
                                          "stored here%s",
                                          &conf->watches[i].path,
                                          i < NGX_HTTP_MODELGW_WATCH_PROMPT
                                          ? ": send the whole input" : "");
        }
    }

    return NGX_OK;
}


/*
 * "store" becomes false, which it is not by default.  *ignored: the client
 * wants it to be true.  NGX_OK, NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_http_modelgw_responses_store(ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t *ignored)
{
    ngx_modelgw_cut_t         *cut;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(ctx->request.scan, NGX_HTTP_MODELGW_WATCH_STORE);

    *ignored = (v->type == NGX_MODELGW_SCAN_TRUE);

    if (v->type == NGX_MODELGW_SCAN_FALSE) {
        return NGX_OK;
    }

    cut = ngx_array_push(&ctx->call.cuts);
    if (cut == NULL) {
        return NGX_ERROR;
    }

    if (v->type == NGX_MODELGW_SCAN_ABSENT) {

        /* "model" and "input" follow */

        cut->from = ngx_modelgw_scan_root(ctx->request.scan) + 1;
        cut->to = cut->from;
        ngx_str_set(&cut->text, "\"store\":false,");

    } else {
        cut->from = v->from;
        cut->to = v->to;
        ngx_str_set(&cut->text, "false");
    }

    return NGX_OK;
}


/* NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_responses_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_responses_walk_t *w)
{
    ngx_int_t     rc;
    ngx_str_t     doc;
    ngx_chain_t  *in;

    in = r->request_body->bufs;

    if (ngx_http_modelgw_translate_whole(r, in, r->headers_in.content_length_n,
                                         &doc)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_translate_body(r, ctx, &doc, &w->tape);

    if (rc == NGX_OK) {
        w->r = r;
        w->ctx = ctx;
        w->end = w->path;
        w->paid = ngx_http_modelgw_hold_paid(r, ctx);
        w->tokens = (w->paid && !ctx->call.model->extras);

        rc = ngx_http_modelgw_responses_walk(w);

    } else if (rc == NGX_DECLINED) {
        rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                    "INVALID_REQUEST",
                                    "The body has too many values");
    }

    if (doc.data != in->buf->pos) {
        (void) ngx_pfree(r->pool, doc.data);
    }

    return rc;
}


/* The functions below return NGX_OK, NGX_DECLINED (refused), NGX_ERROR. */

static ngx_int_t
ngx_http_modelgw_responses_walk(ngx_http_modelgw_responses_walk_t *w)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *root, *name, *value;

    rc = NGX_OK;
    root = ngx_modelgw_tape_root(w->tape);

    for (name = ngx_modelgw_tape_first(w->tape, root);
         name && rc == NGX_OK;
         name = ngx_modelgw_tape_next(w->tape, root, value))
    {
        value = ngx_modelgw_tape_next(w->tape, root, name);

        if (ngx_modelgw_tape_is(w->tape, name, "tools")) {
            w->end = ngx_cpymem(w->path, "tools", 5);
            rc = ngx_http_modelgw_responses_tools(w, value);

        } else if (ngx_modelgw_tape_is(w->tape, name, "input")) {
            w->end = ngx_cpymem(w->path, "input", 5);
            rc = ngx_http_modelgw_responses_input(w, value);
        }
    }

    return (rc == NGX_OK && w->search) ? ngx_http_modelgw_responses_choice(w)
                                       : rc;
}


static ngx_int_t
ngx_http_modelgw_responses_input(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *input)
{
    u_char                             *end;
    ngx_int_t                           rc;
    ngx_uint_t                          i;
    ngx_modelgw_node_t                 *item;
    ngx_http_modelgw_responses_list_t   list;

    if (input->type != NGX_MODELGW_TAPE_ARRAY) {
        return NGX_OK;
    }

    list.list = input;
    list.kept = NULL;

    for (i = 0, item = ngx_modelgw_tape_first(w->tape, input);
         item;
         i++, item = ngx_modelgw_tape_next(w->tape, input, item))
    {
        end = ngx_http_modelgw_responses_index(w, i);

        rc = ngx_http_modelgw_responses_item(w, item);

        w->end = end;

        if (rc == NGX_OK) {
            list.kept = item;
            continue;
        }

        if (rc != NGX_DONE) {
            return rc;
        }

        w->reasoning = 1;

        rc = ngx_http_modelgw_responses_cut(w, &list, item);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


/* NGX_DONE: it is to be cut out */

static ngx_int_t
ngx_http_modelgw_responses_item(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *item)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *v[ITEM_NAMES], *type;

    if (item->type != NGX_MODELGW_TAPE_OBJECT) {
        return NGX_OK;
    }

    rc = ngx_http_modelgw_responses_members(w, item,
                                        ngx_http_modelgw_responses_item_names,
                                        v);
    if (rc != NGX_OK) {
        return rc;
    }

    type = v[ITEM_TYPE];

    if (ngx_modelgw_tape_is(w->tape, type, "item_reference")
        || (!ngx_http_modelgw_responses_string(type)
            && !ngx_http_modelgw_responses_string(v[ITEM_ROLE])))
    {
        return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                      "UNSUPPORTED_FIELD",
                                      "\"%*s\" is a reference to a stored "
                                      "item, and nothing is stored here: set "
                                      "\"store\" to false",
                                      (size_t) (w->end - w->path), w->path);
    }

    /* a vendor refuses a call with reasoning that is sealed by another */

    if (ngx_modelgw_tape_is(w->tape, type, "reasoning")
        && (!ngx_http_modelgw_responses_string(v[ITEM_ENCRYPTED])
            || ngx_http_modelgw_responses_begins(w, v[ITEM_ENCRYPTED],
                                                 NGX_MODELGW_RESPONSES_SEAL)))
    {
        return NGX_DONE;
    }

    /* the tools that a server has listed are no tools of this call */

    if (v[ITEM_TOOLS] == NULL
        || ngx_modelgw_tape_is(w->tape, type, "mcp_list_tools"))
    {
        return NGX_OK;
    }

    w->end = ngx_cpymem(w->end, ".tools", 6);

    return ngx_http_modelgw_responses_tools(w, v[ITEM_TOOLS]);
}


static ngx_int_t
ngx_http_modelgw_responses_tools(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *tools)
{
    u_char                             *end;
    ngx_int_t                           rc;
    ngx_uint_t                          i;
    ngx_modelgw_node_t                 *tool;
    ngx_http_modelgw_responses_list_t   list;

    if (tools->type != NGX_MODELGW_TAPE_ARRAY
        && tools->type != NGX_MODELGW_TAPE_OBJECT)
    {
        return NGX_OK;
    }

    if (tools->type == NGX_MODELGW_TAPE_OBJECT
        || ngx_http_modelgw_responses_hidden(w, tools))
    {
        return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"%*s\" must be an array, and not be "
                                      "too deep",
                                      (size_t) (w->end - w->path), w->path);
    }

    list.list = tools;
    list.kept = NULL;

    for (i = 0, tool = ngx_modelgw_tape_first(w->tape, tools);
         tool;
         i++, tool = ngx_modelgw_tape_next(w->tape, tools, tool))
    {
        end = ngx_http_modelgw_responses_index(w, i);

        rc = ngx_http_modelgw_responses_tool(w, tool);

        w->end = end;

        if (rc == NGX_OK) {
            list.kept = tool;
            continue;
        }

        if (rc != NGX_DONE) {
            return rc;
        }

        w->search = 1;

        rc = ngx_http_modelgw_responses_cut(w, &list, tool);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


/* NGX_DONE: it is to be cut out */

static ngx_int_t
ngx_http_modelgw_responses_tool(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *tool)
{
    ngx_int_t             rc;
    ngx_uint_t            local, known;
    const char          **types;
    ngx_modelgw_node_t   *v[TOOL_NAMES], *type;

    if (tool->type != NGX_MODELGW_TAPE_OBJECT) {
        return NGX_OK;
    }

    rc = ngx_http_modelgw_responses_members(w, tool,
                                        ngx_http_modelgw_responses_tool_names,
                                        v);
    if (rc != NGX_OK) {
        return rc;
    }

    type = v[TOOL_TYPE];

    if (v[TOOL_STORES] || ngx_modelgw_tape_is(w->tape, type, "file_search")) {
        return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                      "UNSUPPORTED_FIELD",
                                      "\"%*s\" searches stored files, and "
                                      "nothing is stored here",
                                      (size_t) (w->end - w->path), w->path);
    }

    local = 0;
    types = ngx_http_modelgw_responses_free_types;
    known = ngx_http_modelgw_responses_listed(w, types, type);

    rc = ngx_http_modelgw_responses_container(w, "container",
                                              v[TOOL_CONTAINER], NULL);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_modelgw_responses_container(w, "environment",
                                              v[TOOL_ENVIRONMENT], &local);
    if (rc != NGX_OK) {
        return rc;
    }

    if (w->paid && v[TOOL_MODEL]
        && v[TOOL_MODEL]->type != NGX_MODELGW_TAPE_NULL
        && !known)
    {
        return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"%*s.model\" names a second model, "
                                      "which is not available here",
                                      (size_t) (w->end - w->path), w->path);
    }

    if (w->tokens && !known
        && !(local && ngx_modelgw_tape_is(w->tape, type, "shell")))
    {
        return ngx_http_modelgw_responses_begins(w, type, "web_search")
               ? NGX_DONE
               : ngx_http_modelgw_responses_priced(w, ".type", type);
    }

    types += NGX_HTTP_MODELGW_RESPONSES_DESCRIBED;

    if (!ngx_http_modelgw_responses_listed(w, types, type)) {
        w->ctx->call.tools++;
    }

    if (v[TOOL_TOOLS] == NULL) {
        return NGX_OK;
    }

    w->end = ngx_cpymem(w->end, ".tools", 6);

    return ngx_http_modelgw_responses_tools(w, v[TOOL_TOOLS]);
}


/*
 * What a tool runs in: by its id, or with files, it is the operator's, who is
 * the vendor's customer.  *local is set if it is the client's computer; local
 * is NULL for a member that cannot name that.
 */

static ngx_int_t
ngx_http_modelgw_responses_container(ngx_http_modelgw_responses_walk_t *w,
    const char *name, ngx_modelgw_node_t *node, ngx_uint_t *local)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *v[CONTAINER_NAMES], *stored;

    if (node == NULL || node->type == NGX_MODELGW_TAPE_NULL) {
        return NGX_OK;
    }

    stored = node;

    if (node->type == NGX_MODELGW_TAPE_OBJECT) {
        rc = ngx_http_modelgw_responses_members(w, node,
                                   ngx_http_modelgw_responses_container_names,
                                   v);
        if (rc != NGX_OK) {
            return rc;
        }

        if (local && ngx_modelgw_tape_is(w->tape, v[CONTAINER_TYPE], "local"))
        {
            *local = 1;
            return NGX_OK;
        }

        stored = v[CONTAINER_ID];

        if (stored == NULL && v[CONTAINER_FILES] && v[CONTAINER_FILES]->count) {
            stored = v[CONTAINER_FILES];
        }

        if (stored == NULL && v[CONTAINER_SKILLS] && v[CONTAINER_SKILLS]->count)
        {
            stored = v[CONTAINER_SKILLS];
        }
    }

    if (stored == NULL || stored->type == NGX_MODELGW_TAPE_NULL) {
        return NGX_OK;
    }

    return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                  "UNSUPPORTED_FIELD",
                                  "\"%*s.%s\" refers to what is stored, and "
                                  "nothing is stored here",
                                  (size_t) (w->end - w->path), w->path, name);
}


static ngx_uint_t
ngx_http_modelgw_responses_listed(ngx_http_modelgw_responses_walk_t *w,
    const char **names, ngx_modelgw_node_t *type)
{
    const char  **name;

    for (name = names; *name; name++) {

        if (ngx_modelgw_tape_is(w->tape, type, *name)) {
            return 1;
        }
    }

    return 0;
}


/* a search that the call must use cannot be left out */

static ngx_int_t
ngx_http_modelgw_responses_choice(ngx_http_modelgw_responses_walk_t *w)
{
    ngx_modelgw_node_t  *choice, *type;

    choice = ngx_modelgw_tape_member(w->tape, ngx_modelgw_tape_root(w->tape),
                                     "tool_choice");
    type = ngx_modelgw_tape_member(w->tape, choice, "type");

    if (!ngx_http_modelgw_responses_begins(w, type, "web_search")) {
        return NGX_OK;
    }

    w->end = ngx_cpymem(w->path, "tool_choice", 11);

    return ngx_http_modelgw_responses_priced(w, ".type", type);
}


static ngx_int_t
ngx_http_modelgw_responses_priced(ngx_http_modelgw_responses_walk_t *w,
    const char *name, ngx_modelgw_node_t *type)
{
    ngx_str_t  text;

    ngx_str_set(&text, "none");

    if (type && type->type == NGX_MODELGW_TAPE_STRING) {
        ngx_modelgw_tape_inside(w->tape, type, &text);
        text.len = ngx_min(text.len, NGX_HTTP_MODELGW_RESPONSES_TYPE);
    }

    return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                  "INVALID_FIELD",
                                  "\"%*s%s\": \"%V\" has a price of its own "
                                  "and is not available for this model",
                                  (size_t) (w->end - w->path), w->path, name,
                                  &text);
}


/* sets the values of an object's members by the table; NULL: not there */

static ngx_int_t
ngx_http_modelgw_responses_members(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *object, ngx_str_t *names, ngx_modelgw_node_t **values)
{
    ngx_int_t            rc;
    ngx_uint_t           n;
    ngx_modelgw_node_t  *key, *value;

    if (ngx_http_modelgw_responses_hidden(w, object)) {
        return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD", "\"%*s\" is too deep",
                                      (size_t) (w->end - w->path), w->path);
    }

    for (n = 0; names[n].len; n++) {
        values[n] = NULL;
    }

    for (key = ngx_modelgw_tape_first(w->tape, object);
         key;
         key = ngx_modelgw_tape_next(w->tape, object, value))
    {
        value = ngx_modelgw_tape_next(w->tape, object, key);

        rc = ngx_http_modelgw_responses_member(w, key, names, &n);

        if (rc == NGX_DECLINED) {
            continue;
        }

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_ABORT || values[n]) {
            return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                          "INVALID_FIELD",
                                          "\"%*s\" must have \"%V\" once, "
                                          "written so",
                                          (size_t) (w->end - w->path), w->path,
                                          &names[n]);
        }

        values[n] = value;
    }

    return NGX_OK;
}


/*
 *     NGX_OK        *n is the index of the name
 *     NGX_DECLINED  it is none of them
 *     NGX_ABORT     it is written differently
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_responses_member(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *key, ngx_str_t *names, ngx_uint_t *n)
{
    ngx_str_t  text;

    if (ngx_modelgw_tape_text(w->tape, w->r->pool, key, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    for (*n = 0; names[*n].len; (*n)++) {

        if (ngx_http_modelgw_responses_folds(&text, &names[*n])) {
            return (text.len == names[*n].len
                    && ngx_memcmp(text.data, names[*n].data, text.len) == 0)
                   ? NGX_OK : NGX_ABORT;
        }
    }

    return NGX_DECLINED;
}


/* as the scanner folds: ASCII case, U+017F, U+212A */

static ngx_uint_t
ngx_http_modelgw_responses_folds(ngx_str_t *key, ngx_str_t *name)
{
    u_char  *p, *q, *last, *end;

    p = key->data;
    last = p + key->len;
    end = name->data + name->len;

    for (q = name->data; q < end; q++) {

        if (p == last) {
            return 0;
        }

        if (ngx_tolower(*p) == *q) {
            p++;

        } else if (*q == 's' && last - p >= 2
                   && ngx_memcmp(p, "\xc5\xbf", 2) == 0)
        {
            p += 2;

        } else if (*q == 'k' && last - p >= 3
                   && ngx_memcmp(p, "\xe2\x84\xaa", 3) == 0)
        {
            p += 3;

        } else {
            return 0;
        }
    }

    return p == last;
}


/* one that is written with escapes does not, and is refused then */

static ngx_uint_t
ngx_http_modelgw_responses_begins(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *node, const char *text)
{
    size_t     len;
    ngx_str_t  inside;

    if (node == NULL || node->type != NGX_MODELGW_TAPE_STRING) {
        return 0;
    }

    ngx_modelgw_tape_inside(w->tape, node, &inside);

    len = ngx_strlen(text);

    return inside.len >= len && ngx_memcmp(inside.data, text, len) == 0;
}


/* whether a container has contents that are not on the tape */

static ngx_uint_t
ngx_http_modelgw_responses_hidden(ngx_http_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *node)
{
    return node->count
           && node->after == (uint32_t) (node - w->tape->nodes) + 1;
}


/*
 * Cuts out an element with one of the commas at it: that before it, if an
 * element was kept.
 */

static ngx_int_t
ngx_http_modelgw_responses_cut(ngx_http_modelgw_responses_walk_t *w,
    ngx_http_modelgw_responses_list_t *list, ngx_modelgw_node_t *node)
{
    off_t                from, to;
    ngx_array_t         *cuts;
    ngx_modelgw_cut_t   *cut;
    ngx_modelgw_node_t  *next;

    if (list->kept) {
        from = list->kept->to;
        to = node->to;

    } else {
        next = ngx_modelgw_tape_next(w->tape, list->list, node);

        from = node->from;
        to = next ? next->from : node->to;
    }

    cuts = &w->ctx->call.cuts;

    if (cuts->nelts) {
        cut = (ngx_modelgw_cut_t *) cuts->elts + cuts->nelts - 1;

        if (cut->text.len == 0 && from >= cut->from && from <= cut->to) {
            cut->to = to;
            return NGX_OK;
        }
    }

    if (cuts->nelts == NGX_HTTP_MODELGW_RESPONSES_CUTS) {
        return ngx_http_modelgw_error(w->r, w->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_REQUEST",
                                      "The body has too many elements that "
                                      "cannot be sent");
    }

    cut = ngx_array_push(cuts);
    if (cut == NULL) {
        return NGX_ERROR;
    }

    cut->from = from;
    cut->to = to;
    ngx_str_null(&cut->text);

    return NGX_OK;
}


/* adds an index to the path; returns its end without it */

static u_char *
ngx_http_modelgw_responses_index(ngx_http_modelgw_responses_walk_t *w,
    ngx_uint_t i)
{
    u_char  *end;

    end = w->end;

    w->end = ngx_snprintf(end, w->path + sizeof(w->path) - end, "[%ui]", i);

    return end;
}


/* NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_responses_ignored(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_responses_walk_t *w,
    ngx_uint_t store)
{
    u_char      *p;
    ngx_str_t   *list;

    static const char  names[] = "store,tools.web_search,input.reasoning,";

    if (!store && !w->search && !w->reasoning) {
        return NGX_OK;
    }

    list = &ctx->call.ignored;

    list->data = ngx_pnalloc(r->pool, sizeof(names) - 1);
    if (list->data == NULL) {
        return NGX_ERROR;
    }

    p = list->data;

    if (store) {
        p = ngx_cpymem(p, "store,", 6);
    }

    if (w->search) {
        p = ngx_cpymem(p, "tools.web_search,", 17);
    }

    if (w->reasoning) {
        p = ngx_cpymem(p, "input.reasoning,", 16);
    }

    list->len = p - 1 - list->data;

    return NGX_OK;
}
