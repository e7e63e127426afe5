
/*
 * The tools of a responses request, and the choice among them.
 *
 * They come in four places: "tools", elements of it that are a namespace, and
 * items of the input that bring tools, "additional_tools" and
 * "tool_search_output".  Upstream there is one list of functions, whose names
 * have a small alphabet and a limit, so names are made for it: "N__name" for
 * one in a namespace, and with a digest of the whole name at the end if it does
 * not fit.  The table in the record of the call says what each name was, since
 * the client knows its tools by kind, namespace and name.
 *
 * The same tool may come twice, and is taken once: what a search has found is
 * repeated in each call.  Two that would have one name are refused.
 *
 * A tool that the vendor would run is left out and reported as ignored, if the
 * answer without it is what the model knows: clients declare a web search in
 * every call.  One that would look into the client's data is refused, as the
 * answer would look as if it had.
 *
 * Names are kept in a tree, as there may be thousands.
 *
 * Rejected: names without a digest, cut.  MCP servers have long names that
 * differ at the end.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_responses_private.h"


/* characters of a tool's name */

#define NGX_MODELGW_RESPONSES_NAME_MESSAGES  128
#define NGX_MODELGW_RESPONSES_NAME_CHAT      64

#define NGX_MODELGW_RESPONSES_NAME_DIGEST    4      /* bytes, as hex */

/*
 * The most bytes of a name or a namespace in the request: a tool in a namespace
 * has a copy of both, and there may be thousands of them.
 */

#define NGX_MODELGW_RESPONSES_NAME_MAX       256

#define NGX_MODELGW_RESPONSES_ROOT           ((ngx_uint_t) -1)


typedef struct {
    ngx_str_node_t        sn;            /* by name upstream, and its hash */
    ngx_str_t             name;          /* unescaped, and so is space */
    ngx_str_t             space;
    ngx_uint_t            kind;
    ngx_uint_t            index;         /* of the tool */
    ngx_uint_t            plain;         /* name and space: [A-Za-z0-9_-] */
} ngx_modelgw_responses_name_t;


/* the state of reading a list of tools */

typedef struct {
    ngx_modelgw_request_t        *rq;
    ngx_modelgw_request_plan_t   *plan;

    /* where the list and the tool are, for messages */

    ngx_uint_t                    item;    /* _ROOT: in the top level */
    ngx_uint_t                    outer;
    ngx_uint_t                    inner;   /* _ROOT: not in a namespace */

    ngx_modelgw_node_t           *space;   /* the namespace, or NULL */
    ngx_str_t                     text;    /* unescaped */
    ngx_uint_t                    plain;

    ngx_modelgw_out_t            *names;   /* only names are written; or NULL */
    ngx_uint_t                    n;       /* of them */
} ngx_modelgw_responses_walk_t;


typedef struct {
    ngx_str_t             type;
    ngx_uint_t            prefix;        /* types that begin so */
    const char           *ignored;
    ngx_int_t           (*read)(ngx_modelgw_responses_walk_t *w,
                                ngx_modelgw_node_t **members);
} ngx_modelgw_responses_type_t;


static ngx_int_t ngx_modelgw_responses_tools_items(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t *input);
static ngx_int_t ngx_modelgw_responses_tools_item(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t *item);
static ngx_int_t ngx_modelgw_responses_tools_list(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t *list,
    ngx_uint_t *index);
static ngx_int_t ngx_modelgw_responses_tool(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *obj);
static ngx_int_t ngx_modelgw_responses_tool_function(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t **members);
static ngx_int_t ngx_modelgw_responses_tool_search(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t **members);
static ngx_int_t ngx_modelgw_responses_tool_schema(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t **members,
    ngx_uint_t kind);
static ngx_int_t ngx_modelgw_responses_tool_custom(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t **members);
static const char *ngx_modelgw_responses_tool_format(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t *format,
    ngx_modelgw_request_tool_t *tool);
static ngx_int_t ngx_modelgw_responses_tool_namespace(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t **members);
static ngx_int_t ngx_modelgw_responses_tool_add(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t **members,
    ngx_uint_t kind, ngx_modelgw_request_tool_t *tool);
static ngx_int_t ngx_modelgw_responses_tool_twice(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_responses_name_t *one,
    ngx_modelgw_responses_name_t *two);
static ngx_int_t ngx_modelgw_responses_tool_push(
    ngx_modelgw_responses_walk_t *w, ngx_modelgw_node_t **members,
    ngx_modelgw_responses_name_t *name, ngx_modelgw_request_tool_t *tool);
static ngx_int_t ngx_modelgw_responses_tool_invalid(
    ngx_modelgw_responses_walk_t *w, const char *fault);
static void ngx_modelgw_responses_tool_path(ngx_modelgw_responses_walk_t *w,
    ngx_str_t *path);
static ngx_int_t ngx_modelgw_responses_name_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *obj,
    ngx_modelgw_responses_name_t *name);
static ngx_int_t ngx_modelgw_responses_name_text(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_str_t *text, ngx_uint_t *plain);
static ngx_modelgw_responses_name_t *ngx_modelgw_responses_name_find(
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_responses_name_t *name);
static ngx_int_t ngx_modelgw_responses_name_make(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_responses_name_t *name);
static ngx_int_t ngx_modelgw_responses_name_fit(ngx_modelgw_request_t *rq,
    ngx_str_t *name, size_t limit);
static ngx_int_t ngx_modelgw_responses_choice_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_responses_choice_named(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_responses_choice_allowed(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_responses_choice_find(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *obj,
    ngx_modelgw_request_tool_t **tool);


static ngx_modelgw_responses_type_t  ngx_modelgw_responses_types[] = {

    { ngx_string("function"), 0, NULL, ngx_modelgw_responses_tool_function },
    { ngx_string("custom"), 0, NULL, ngx_modelgw_responses_tool_custom },
    { ngx_string("namespace"), 0, NULL, ngx_modelgw_responses_tool_namespace },
    { ngx_string("tool_search"), 0, NULL, ngx_modelgw_responses_tool_search },
    { ngx_string("web_search"), 1, "tools.web_search", NULL },
    { ngx_string("image_generation"), 0, "tools.image_generation", NULL },

    { ngx_null_string, 0, NULL, NULL }
};


ngx_int_t
ngx_modelgw_responses_tools(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_int_t                      rc;
    ngx_modelgw_node_t            *input;
    ngx_modelgw_responses_walk_t   w;

    if (ngx_array_init(&plan->tools.list, rq->pool, 16,
                       sizeof(ngx_modelgw_request_tool_t))
        != NGX_OK
        || ngx_array_init(&plan->call->tools, rq->pool, 16,
                          sizeof(ngx_modelgw_responses_tool_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_rbtree_init(&plan->names, &plan->sentinel,
                    ngx_str_rbtree_insert_value);

    ngx_memzero(&w, sizeof(ngx_modelgw_responses_walk_t));

    w.rq = rq;
    w.plan = plan;
    w.plain = 1;
    w.item = NGX_MODELGW_RESPONSES_ROOT;
    w.inner = NGX_MODELGW_RESPONSES_ROOT;

    rc = NGX_OK;

    if (plan->fields.tools) {
        rc = ngx_modelgw_responses_tools_list(&w, plan->fields.tools, &w.outer);
    }

    input = ngx_modelgw_request_member(rq, ngx_modelgw_tape_root(rq->tape),
                                       "input");

    return (rc == NGX_OK) ? ngx_modelgw_responses_tools_items(&w, input) : rc;
}


/* first those that the client has added, then those that were found */

static ngx_int_t
ngx_modelgw_responses_tools_items(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *input)
{
    ngx_int_t            rc;
    ngx_uint_t           found;
    ngx_modelgw_node_t  *item, *type;
    ngx_modelgw_tape_t  *tape;

    found = 0;
    tape = w->rq->tape;

    /* a string has no first element */

    item = ngx_modelgw_tape_first(tape, input);

    for (w->item = 0; item; w->item++) {
        type = ngx_modelgw_request_member(w->rq, item, "type");

        if (ngx_modelgw_tape_is(tape, type, "tool_search_output")) {
            found = 1;

        } else if (ngx_modelgw_tape_is(tape, type, "additional_tools")) {
            rc = ngx_modelgw_responses_tools_item(w, item);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        item = ngx_modelgw_tape_next(tape, input, item);
    }

    item = found ? ngx_modelgw_tape_first(tape, input) : NULL;

    for (w->item = 0; item; w->item++) {
        type = ngx_modelgw_request_member(w->rq, item, "type");

        if (ngx_modelgw_tape_is(tape, type, "tool_search_output")) {
            rc = ngx_modelgw_responses_tools_item(w, item);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        item = ngx_modelgw_tape_next(tape, input, item);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_tools_item(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *item)
{
    ngx_modelgw_node_t  *list;

    list = ngx_modelgw_request_member(w->rq, item, "tools");

    if (list == NULL || list->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_request_invalid(w->rq,
                                           "input[%ui].tools must be an array",
                                           w->item);
    }

    return ngx_modelgw_responses_tools_list(w, list, &w->outer);
}


static ngx_int_t
ngx_modelgw_responses_tools_list(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *list, ngx_uint_t *index)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_tape_first(w->rq->tape, list);

    for (*index = 0; node; (*index)++) {

        rc = ngx_modelgw_responses_tool(w, node);
        if (rc != NGX_OK) {
            return rc;
        }

        node = ngx_modelgw_tape_next(w->rq->tape, list, node);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_tool(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *obj)
{
    u_char                         buf[128];
    ngx_str_t                      path, text;
    ngx_modelgw_node_t            *type, *members[NGX_MODELGW_TOOL_MEMBERS];
    ngx_modelgw_responses_type_t  *t;

    ngx_modelgw_request_tool_members(w->rq, obj, members);

    type = members[NGX_MODELGW_TOOL_TYPE];

    if (!ngx_modelgw_request_string(type)) {
        return ngx_modelgw_responses_tool_invalid(w, ".type must be a string");
    }

    if (ngx_modelgw_request_quote(w->rq, type, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    for (t = ngx_modelgw_responses_types; t->type.len; t++) {

        if (text.len < t->type.len
            || (text.len > t->type.len && !t->prefix)
            || ngx_memcmp(text.data, t->type.data, t->type.len) != 0)
        {
            continue;
        }

        return t->read ? t->read(w, members)
                       : ngx_modelgw_request_ignore(w->rq, t->ignored);
    }

    path.data = buf;
    ngx_modelgw_responses_tool_path(w, &path);

    return ngx_modelgw_request_unsupported(w->rq,
                                           "%V.type \"%V\" is not supported",
                                           &path, &text);
}


static ngx_int_t
ngx_modelgw_responses_tool_function(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t **members)
{
    return ngx_modelgw_responses_tool_schema(w, members,
                                             NGX_MODELGW_RESPONSES_FUNCTION);
}


/* a search for tools that the client runs is a function of that name */

static ngx_int_t
ngx_modelgw_responses_tool_search(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t **members)
{
    if (!ngx_modelgw_tape_is(w->rq->tape, members[NGX_MODELGW_TOOL_EXECUTION],
                             "client"))
    {
        return ngx_modelgw_request_ignore(w->rq, "tools.tool_search");
    }

    return ngx_modelgw_responses_tool_schema(w, members,
                                             NGX_MODELGW_RESPONSES_SEARCH);
}


static ngx_int_t
ngx_modelgw_responses_tool_schema(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t **members, ngx_uint_t kind)
{
    ngx_int_t                    rc;
    const char                  *fault;
    ngx_modelgw_request_tool_t   tool;

    ngx_memzero(&tool, sizeof(ngx_modelgw_request_tool_t));

    fault = ngx_modelgw_request_tool_details(w->rq, members, &tool);

    if (fault) {
        return ngx_modelgw_responses_tool_invalid(w, fault);
    }

    if (tool.strict && !w->rq->caps->strict) {
        tool.strict = 0;

        rc = ngx_modelgw_request_ignore(w->rq, "tools.strict");
        if (rc != NGX_OK) {
            return rc;
        }
    }

    return ngx_modelgw_responses_tool_add(w, members, kind, &tool);
}


static ngx_int_t
ngx_modelgw_responses_tool_custom(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t **members)
{
    const char                  *fault;
    ngx_modelgw_node_t          *node;
    ngx_modelgw_request_tool_t   tool;

    ngx_memzero(&tool, sizeof(ngx_modelgw_request_tool_t));

    fault = ngx_modelgw_request_tool_details(w->rq, members, &tool);

    tool.custom = 1;
    tool.strict = 0;

    node = members[NGX_MODELGW_TOOL_FORMAT];

    if (fault == NULL && !ngx_modelgw_request_absent(node)) {
        fault = ngx_modelgw_responses_tool_format(w, node, &tool);
    }

    if (fault) {
        return ngx_modelgw_responses_tool_invalid(w, fault);
    }

    return ngx_modelgw_responses_tool_add(w, members,
                                          NGX_MODELGW_RESPONSES_CUSTOM, &tool);
}


/* returns NULL, or what is wrong */

static const char *
ngx_modelgw_responses_tool_format(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t *format, ngx_modelgw_request_tool_t *tool)
{
    ngx_modelgw_tape_t  *tape;
    ngx_modelgw_node_t  *type, *syntax, *definition;

    tape = w->rq->tape;
    type = ngx_modelgw_request_member(w->rq, format, "type");

    if (ngx_modelgw_tape_is(tape, type, "text")) {
        return NULL;
    }

    if (!ngx_modelgw_tape_is(tape, type, "grammar")) {
        return ".format.type must be \"text\" or \"grammar\"";
    }

    syntax = ngx_modelgw_request_member(w->rq, format, "syntax");
    definition = ngx_modelgw_request_member(w->rq, format, "definition");

    tool->regex = ngx_modelgw_tape_is(tape, syntax, "regex");

    if (!tool->regex && !ngx_modelgw_tape_is(tape, syntax, "lark")) {
        return ".format.syntax must be \"lark\" or \"regex\"";
    }

    if (!ngx_modelgw_request_string(definition)) {
        return ".format.definition must be a string";
    }

    tool->definition = definition;

    return NULL;
}


static ngx_int_t
ngx_modelgw_responses_tool_namespace(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t **members)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *list, *name;

    if (w->space) {
        return ngx_modelgw_responses_tool_invalid(w,
                                          " is a namespace in a namespace");
    }

    name = members[NGX_MODELGW_TOOL_NAME];

    rc = ngx_modelgw_responses_name_text(w->rq, name, &w->text, &w->plain);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_DECLINED || w->text.len == 0) {
        return ngx_modelgw_responses_tool_invalid(w,
                                  ".name must be a string of 1 to 256 bytes");
    }

    list = members[NGX_MODELGW_TOOL_TOOLS];

    if (list == NULL || list->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_responses_tool_invalid(w, ".tools must be an array");
    }

    w->space = name;

    rc = ngx_modelgw_responses_tools_list(w, list, &w->inner);

    w->space = NULL;
    ngx_str_null(&w->text);
    w->plain = 1;
    w->inner = NGX_MODELGW_RESPONSES_ROOT;

    return rc;
}


static ngx_int_t
ngx_modelgw_responses_tool_add(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t **members, ngx_uint_t kind,
    ngx_modelgw_request_tool_t *tool)
{
    ngx_int_t                      rc;
    ngx_modelgw_responses_name_t  *twin, name;

    ngx_memzero(&name, sizeof(ngx_modelgw_responses_name_t));

    name.kind = kind;

    if (kind == NGX_MODELGW_RESPONSES_SEARCH) {
        ngx_str_set(&name.name, "tool_search");
        name.plain = 1;

    } else {
        name.space = w->text;
        name.plain = w->plain;

        rc = ngx_modelgw_responses_name_text(w->rq,
                                             members[NGX_MODELGW_TOOL_NAME],
                                             &name.name, &name.plain);

        if (rc == NGX_DECLINED || (rc == NGX_OK && name.name.len == 0)) {
            return ngx_modelgw_responses_tool_invalid(w,
                                  ".name must be a string of 1 to 256 bytes");
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (ngx_modelgw_responses_name_make(w->rq, w->plan, &name) != NGX_OK) {
        return NGX_ERROR;
    }

    if (w->names) {
        if (w->n++) {
            ngx_modelgw_out_text(w->names, ",");
        }

        ngx_modelgw_out_text(w->names, "\\\"");
        ngx_modelgw_out(w->names, name.sn.str.data, name.sn.str.len);
        ngx_modelgw_out_text(w->names, "\\\"");

        return NGX_OK;
    }

    twin = ngx_modelgw_responses_name_find(w->plan, &name);

    if (twin) {
        return ngx_modelgw_responses_tool_twice(w, twin, &name);
    }

    return ngx_modelgw_responses_tool_push(w, members, &name, tool);
}


static ngx_int_t
ngx_modelgw_responses_tool_twice(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_responses_name_t *one, ngx_modelgw_responses_name_t *two)
{
    u_char     buf[128];
    ngx_str_t  path;

    if (one->kind == two->kind
        && one->name.len == two->name.len
        && one->space.len == two->space.len
        && ngx_memcmp(one->name.data, two->name.data, one->name.len) == 0
        && (one->space.len == 0
            || ngx_memcmp(one->space.data, two->space.data, one->space.len)
               == 0))
    {
        return NGX_OK;
    }

    path.data = buf;
    ngx_modelgw_responses_tool_path(w, &path);

    return ngx_modelgw_request_invalid(w->rq,
                             "%V is not the only tool that would be called "
                             "\"%V\"", &path, &two->sn.str);
}


static ngx_int_t
ngx_modelgw_responses_tool_push(ngx_modelgw_responses_walk_t *w,
    ngx_modelgw_node_t **members, ngx_modelgw_responses_name_t *name,
    ngx_modelgw_request_tool_t *tool)
{
    ngx_modelgw_request_tool_t    *upstream;
    ngx_modelgw_responses_name_t  *node;
    ngx_modelgw_responses_tool_t  *known;

    node = ngx_palloc(w->rq->pool, sizeof(ngx_modelgw_responses_name_t));
    if (node == NULL) {
        return NGX_ERROR;
    }

    *node = *name;

    node->index = w->plan->tools.list.nelts;
    ngx_rbtree_insert(&w->plan->names, &node->sn.node);

    upstream = ngx_array_push(&w->plan->tools.list);
    known = ngx_array_push(&w->plan->call->tools);

    if (upstream == NULL || known == NULL) {
        return NGX_ERROR;
    }

    *upstream = *tool;
    upstream->name = name->sn.str;

    ngx_memzero(known, sizeof(ngx_modelgw_responses_tool_t));

    known->upstream = name->sn.str;
    known->kind = name->kind;
    known->name = name->name;

    if (name->kind != NGX_MODELGW_RESPONSES_SEARCH) {
        ngx_modelgw_tape_inside(w->rq->tape, members[NGX_MODELGW_TOOL_NAME],
                                &known->name);
    }

    if (w->space) {
        ngx_modelgw_tape_inside(w->rq->tape, w->space, &known->space);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_tool_invalid(ngx_modelgw_responses_walk_t *w,
    const char *fault)
{
    u_char     buf[128];
    ngx_str_t  path;

    path.data = buf;
    ngx_modelgw_responses_tool_path(w, &path);

    return ngx_modelgw_request_invalid(w->rq, "%V%s", &path, fault);
}


/* sets *path to input[1].tools[2].tools[3]; path->data has room */

static void
ngx_modelgw_responses_tool_path(ngx_modelgw_responses_walk_t *w,
    ngx_str_t *path)
{
    u_char  *p;

    p = path->data;

    if (w->item != NGX_MODELGW_RESPONSES_ROOT) {
        p = ngx_sprintf(p, "input[%ui].", w->item);
    }

    p = ngx_sprintf(p, "tools[%ui]", w->outer);

    if (w->inner != NGX_MODELGW_RESPONSES_ROOT) {
        p = ngx_sprintf(p, ".tools[%ui]", w->inner);
    }

    path->len = p - path->data;
}


ngx_int_t
ngx_modelgw_responses_found(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *item, ngx_str_t *text)
{
    ngx_int_t                      rc;
    ngx_modelgw_out_t              out;
    ngx_modelgw_out_piece_t        piece;
    ngx_modelgw_responses_walk_t   w;

    ngx_memzero(&w, sizeof(ngx_modelgw_responses_walk_t));

    w.rq = rq;
    w.plan = plan;
    w.plain = 1;
    w.inner = NGX_MODELGW_RESPONSES_ROOT;
    w.names = &out;

    ngx_modelgw_out_piece(&out, &piece, rq->pool, 256);
    ngx_modelgw_out_text(&out, "{\\\"tools\\\":[");

    rc = ngx_modelgw_responses_tools_list(&w,
                             ngx_modelgw_request_member(rq, item, "tools"),
                             &w.outer);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_modelgw_out_text(&out, "]}");

    return ngx_modelgw_out_piece_done(&out, text);
}


ngx_int_t
ngx_modelgw_responses_name(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *obj, ngx_str_t *name)
{
    ngx_int_t                     rc;
    ngx_modelgw_responses_name_t  made;

    rc = ngx_modelgw_responses_name_read(rq, plan, obj, &made);
    *name = made.sn.str;

    return rc;
}


/* like ngx_modelgw_responses_name() */

static ngx_int_t
ngx_modelgw_responses_name_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *obj,
    ngx_modelgw_responses_name_t *name)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *space;

    ngx_memzero(name, sizeof(ngx_modelgw_responses_name_t));

    name->plain = 1;

    rc = ngx_modelgw_responses_name_text(rq,
                             ngx_modelgw_request_member(rq, obj, "name"),
                             &name->name, &name->plain);

    space = ngx_modelgw_request_member(rq, obj, "namespace");

    if (rc == NGX_OK && !ngx_modelgw_request_absent(space)) {
        rc = ngx_modelgw_responses_name_text(rq, space, &name->space,
                                             &name->plain);
    }

    if (rc == NGX_OK && name->name.len == 0) {
        return NGX_DECLINED;
    }

    return (rc == NGX_OK) ? ngx_modelgw_responses_name_make(rq, plan, name)
                          : rc;
}


/*
 * Sets *text to a name or a namespace, and *plain to 0 if it is not plain; most
 * are as written, and have no escapes then.
 *     NGX_OK
 *     NGX_DECLINED  it is not a string, or too long
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_modelgw_responses_name_text(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_str_t *text, ngx_uint_t *plain)
{
    if (!ngx_modelgw_request_string(node)) {
        return NGX_DECLINED;
    }

    ngx_modelgw_tape_inside(rq->tape, node, text);

    if (text->len > NGX_MODELGW_RESPONSES_NAME_MAX) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_request_plain_text(text)) {
        return NGX_OK;
    }

    if (ngx_modelgw_tape_text(rq->tape, rq->pool, node, text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (!ngx_modelgw_request_plain_text(text)) {
        *plain = 0;
    }

    return NGX_OK;
}


/* sets the name upstream: NGX_OK, NGX_ERROR (no memory, or OpenSSL failed) */

static ngx_int_t
ngx_modelgw_responses_name_make(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_responses_name_t *name)
{
    u_char     *p;
    size_t      limit;
    ngx_str_t  *full;

    full = &name->sn.str;
    *full = name->name;

    if (name->space.len) {
        full->len = name->space.len + 2 + name->name.len;

        full->data = ngx_pnalloc(rq->pool, full->len);
        if (full->data == NULL) {
            return NGX_ERROR;
        }

        p = ngx_cpymem(full->data, name->space.data, name->space.len);
        *p++ = '_';
        *p++ = '_';
        ngx_memcpy(p, name->name.data, name->name.len);
    }

    limit = (plan->protocol == NGX_MODELGW_CHAT)
            ? NGX_MODELGW_RESPONSES_NAME_CHAT
            : NGX_MODELGW_RESPONSES_NAME_MESSAGES;

    if ((full->len > limit || !name->plain)
        && ngx_modelgw_responses_name_fit(rq, full, limit) != NGX_OK)
    {
        return NGX_ERROR;
    }

    name->sn.node.key = ngx_murmur_hash2(full->data, full->len);

    return NGX_OK;
}


/* returns the tool of that name upstream, or NULL */

static ngx_modelgw_responses_name_t *
ngx_modelgw_responses_name_find(ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_responses_name_t *name)
{
    return (ngx_modelgw_responses_name_t *)
               ngx_str_rbtree_lookup(&plan->names, &name->sn.str,
                                     (uint32_t) name->sn.node.key);
}


/* cuts the name, so that a part of its digest fits after it */

static ngx_int_t
ngx_modelgw_responses_name_fit(ngx_modelgw_request_t *rq, ngx_str_t *name,
    size_t limit)
{
    u_char  *p, *data, digest[NGX_MODELGW_KEY_DIGEST];

    limit -= 1 + 2 * NGX_MODELGW_RESPONSES_NAME_DIGEST;

    data = ngx_pnalloc(rq->pool, name->len
                                 + 1 + 2 * NGX_MODELGW_RESPONSES_NAME_DIGEST);
    if (data == NULL || ngx_modelgw_key_digest(name, digest) != NGX_OK) {
        return NGX_ERROR;
    }

    p = ngx_modelgw_request_sanitise(data, name);

    if ((size_t) (p - data) > limit) {
        p = data + limit;
    }

    *p++ = '_';
    p = ngx_hex_dump(p, digest, NGX_MODELGW_RESPONSES_NAME_DIGEST);

    name->data = data;
    name->len = p - data;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_responses_choice(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *choice)
{
    ngx_int_t                     rc;
    ngx_modelgw_request_tools_t  *tools;

    tools = &plan->tools;

    rc = ngx_modelgw_responses_choice_read(rq, plan, choice);

    if (rc != NGX_OK) {
        return rc;
    }

    /* clients send "auto" in each call */

    if (tools->choice == NGX_MODELGW_REQUEST_CHOICE_AUTO) {
        tools->choice = NGX_MODELGW_REQUEST_CHOICE_DEFAULT;
    }

    return ngx_modelgw_request_choice_force(rq, tools);
}


static ngx_int_t
ngx_modelgw_responses_choice_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *choice)
{
    ngx_modelgw_node_t  *type;

    if (choice->type == NGX_MODELGW_TAPE_STRING) {
        return ngx_modelgw_request_choice_word(rq, &plan->tools, choice);
    }

    type = ngx_modelgw_request_member(rq, choice, "type");

    if (ngx_modelgw_tape_is(rq->tape, type, "function")
        || ngx_modelgw_tape_is(rq->tape, type, "custom"))
    {
        return ngx_modelgw_responses_choice_named(rq, plan, choice);
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "allowed_tools")) {
        return ngx_modelgw_responses_choice_allowed(rq, plan, choice);
    }

    return ngx_modelgw_request_choice_other(rq, type);
}


static ngx_int_t
ngx_modelgw_responses_choice_named(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *choice)
{
    ngx_int_t                    rc;
    ngx_modelgw_request_tool_t  *tool;

    rc = ngx_modelgw_responses_choice_find(rq, plan, choice, &tool);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_invalid(rq,
                                 "tool_choice.name must be a string of 1 to "
                                 "256 bytes");
    }

    if (rc != NGX_OK) {
        return rc;
    }

    if (tool == NULL) {
        return ngx_modelgw_request_invalid(rq,
                                  "tool_choice.name is not in \"tools\"");
    }

    plan->tools.choice = NGX_MODELGW_REQUEST_CHOICE_TOOL;
    plan->tools.name = tool->name;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_choice_allowed(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *choice)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i, n;
    ngx_modelgw_node_t          *node, *allowed;
    ngx_modelgw_request_tool_t  *tool;

    node = ngx_modelgw_request_member(rq, choice, "mode");

    if (!ngx_modelgw_request_choice_mode(rq, &plan->tools, node, 1)) {
        return ngx_modelgw_request_invalid(rq,
                       "tool_choice.mode must be \"auto\" or \"required\"");
    }

    allowed = ngx_modelgw_request_member(rq, choice, "tools");

    if (allowed == NULL || allowed->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_request_invalid(rq,
                                         "tool_choice.tools must be an array");
    }

    tool = plan->tools.list.elts;

    for (i = 0; i < plan->tools.list.nelts; i++) {
        tool[i].left_out = 1;
    }

    n = 0;

    for (node = ngx_modelgw_tape_first(rq->tape, allowed);
         node;
         node = ngx_modelgw_tape_next(rq->tape, allowed, node))
    {
        rc = ngx_modelgw_responses_choice_find(rq, plan, node, &tool);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        /* hosted ones have been left out */

        if (rc == NGX_OK && tool) {
            tool->left_out = 0;
            n++;
        }
    }

    if (n == 0) {
        return ngx_modelgw_request_invalid(rq,
                                  "tool_choice.tools names none of \"tools\"");
    }

    return NGX_OK;
}


/*
 * Finds a tool by type, name and namespace; NULL if it was not declared.
 *     NGX_OK, NGX_DECLINED (no such type, or no name), NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_modelgw_responses_choice_find(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *obj,
    ngx_modelgw_request_tool_t **tool)
{
    ngx_int_t                      rc;
    ngx_uint_t                     kind;
    ngx_modelgw_node_t            *type;
    ngx_modelgw_request_tool_t    *list;
    ngx_modelgw_responses_name_t  *name, given;

    *tool = NULL;
    type = ngx_modelgw_request_member(rq, obj, "type");

    if (ngx_modelgw_tape_is(rq->tape, type, "function")) {
        kind = NGX_MODELGW_RESPONSES_FUNCTION;

    } else if (ngx_modelgw_tape_is(rq->tape, type, "custom")) {
        kind = NGX_MODELGW_RESPONSES_CUSTOM;

    } else {
        return NGX_DECLINED;
    }

    rc = ngx_modelgw_responses_name_read(rq, plan, obj, &given);
    if (rc != NGX_OK) {
        return rc;
    }

    name = ngx_modelgw_responses_name_find(plan, &given);

    if (name && name->kind == kind) {
        list = plan->tools.list.elts;
        *tool = &list[name->index];
    }

    return NGX_OK;
}
