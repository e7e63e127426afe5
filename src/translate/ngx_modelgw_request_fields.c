
/*
 * The top level of a chat request: what becomes of each of its fields.
 *
 * The table below is that list (translate.md, 2.1).  Fields that change what
 * the answer means are refused, as a client that asked for three answers, or
 * for log probabilities, looks for them in what it gets.  Hints are ignored,
 * and so is what nobody here knows: the upstream would refuse the member, and
 * every month brings a field that some SDK sends unasked.  What is ignored is
 * told to the client by name, and refused in strict mode, so that nobody has
 * to guess.
 *
 * null is as good as absent for all of them.
 *
 * Rejected: one function a field.  Three of four would differ in the name and
 * the type only, and the list could not be read as one.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


#define NGX_MODELGW_REQUEST_IGNORED        511   /* bytes of the header */
#define NGX_MODELGW_REQUEST_IGNORED_NAMES  16
#define NGX_MODELGW_REQUEST_IGNORED_NAME   64    /* bytes of one name */


/* what becomes of a field */

#define KEPT     0                       /* noted for the other files */
#define SEEN     1                       /* read by somebody else */
#define IGNORED  2
#define REFUSED  3


/* the types of values, by the bits of tape nodes, and their name in messages */

typedef struct {
    ngx_uint_t            types;
    const char           *name;
} ngx_modelgw_request_kind_t;

#define ANY      0
#define NUMBER   1
#define STRING   2
#define BOOLEAN  3
#define ARRAY    4
#define OBJECT   5
#define STOP     6
#define CHOICE   7


typedef struct {
    ngx_str_t             name;
    ngx_uint_t            fate;
    ngx_uint_t            kind;
    size_t                offset;        /* KEPT: where the node is noted */
    const char           *fine;          /* REFUSED: a value that is not */
    const char           *instead;       /* REFUSED: end of the message */
} ngx_modelgw_request_field_t;


static ngx_modelgw_request_field_t *ngx_modelgw_request_fields_find(
    ngx_modelgw_request_t *rq, ngx_modelgw_node_t *name);
static ngx_int_t ngx_modelgw_request_fields_take(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_fields_t *fields, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_request_fields_refuse(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_field_t *field, ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_request_fields_unknown(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *name);
static ngx_int_t ngx_modelgw_request_fields_note(ngx_modelgw_request_t *rq,
    ngx_str_t *name);
static ngx_uint_t ngx_modelgw_request_fields_noted(ngx_str_t *list,
    ngx_str_t *name, ngx_uint_t *n);
static ngx_uint_t ngx_modelgw_request_fields_plain(ngx_str_t *name);
static ngx_int_t ngx_modelgw_request_fields_options(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *options);
static ngx_int_t ngx_modelgw_request_fields_modalities(
    ngx_modelgw_request_t *rq, ngx_modelgw_node_t *modalities);


static ngx_modelgw_request_kind_t  ngx_modelgw_request_kinds[] = {
    { ~(ngx_uint_t) 0, "" },
    { 1 << NGX_MODELGW_TAPE_NUMBER, "a number" },
    { 1 << NGX_MODELGW_TAPE_STRING, "a string" },
    { 1 << NGX_MODELGW_TAPE_TRUE|1 << NGX_MODELGW_TAPE_FALSE,
      "true or false" },
    { 1 << NGX_MODELGW_TAPE_ARRAY, "an array" },
    { 1 << NGX_MODELGW_TAPE_OBJECT, "an object" },
    { 1 << NGX_MODELGW_TAPE_STRING|1 << NGX_MODELGW_TAPE_ARRAY,
      "a string or an array" },
    { 1 << NGX_MODELGW_TAPE_STRING|1 << NGX_MODELGW_TAPE_OBJECT,
      "a string or an object" }
};


#define ngx_modelgw_request_kept(name, kind)                                  \
    { ngx_string(#name), KEPT, kind,                                          \
      offsetof(ngx_modelgw_request_fields_t, name), NULL, NULL }

#define ngx_modelgw_request_ignored(name)                                     \
    { ngx_string(#name), IGNORED, ANY, 0, NULL, NULL }


static ngx_modelgw_request_field_t  ngx_modelgw_request_table[] = {

    { ngx_string("model"), SEEN, ANY, 0, NULL, NULL },
    { ngx_string("messages"), SEEN, ANY, 0, NULL, NULL },

    ngx_modelgw_request_kept(max_completion_tokens, NUMBER),
    ngx_modelgw_request_kept(max_tokens, NUMBER),
    ngx_modelgw_request_kept(stream, BOOLEAN),
    ngx_modelgw_request_kept(stream_options, OBJECT),
    ngx_modelgw_request_kept(temperature, NUMBER),
    ngx_modelgw_request_kept(top_p, NUMBER),
    ngx_modelgw_request_kept(top_k, NUMBER),
    ngx_modelgw_request_kept(stop, STOP),
    ngx_modelgw_request_kept(modalities, ARRAY),
    ngx_modelgw_request_kept(response_format, OBJECT),
    ngx_modelgw_request_kept(user, STRING),
    ngx_modelgw_request_kept(safety_identifier, STRING),
    ngx_modelgw_request_kept(metadata, OBJECT),
    ngx_modelgw_request_kept(tools, ARRAY),
    ngx_modelgw_request_kept(tool_choice, CHOICE),
    ngx_modelgw_request_kept(parallel_tool_calls, BOOLEAN),
    ngx_modelgw_request_kept(reasoning_effort, STRING),
    ngx_modelgw_request_kept(thinking, OBJECT),

    { ngx_string("n"), REFUSED, NUMBER, 0, "1", "" },
    { ngx_string("logprobs"), REFUSED, BOOLEAN, 0, "false", "" },
    { ngx_string("top_logprobs"), REFUSED, NUMBER, 0, "0", "" },
    { ngx_string("audio"), REFUSED, ANY, 0, NULL, "" },
    { ngx_string("functions"), REFUSED, ANY, 0, NULL, ", use \"tools\"" },
    { ngx_string("function_call"), REFUSED, ANY, 0, NULL,
      ", use \"tool_choice\"" },
    { ngx_string("web_search_options"), REFUSED, ANY, 0, NULL, "" },

    ngx_modelgw_request_ignored(seed),
    ngx_modelgw_request_ignored(presence_penalty),
    ngx_modelgw_request_ignored(frequency_penalty),
    ngx_modelgw_request_ignored(logit_bias),
    ngx_modelgw_request_ignored(store),
    ngx_modelgw_request_ignored(prediction),
    ngx_modelgw_request_ignored(prompt_cache_key),
    ngx_modelgw_request_ignored(prompt_cache_retention),
    ngx_modelgw_request_ignored(prompt_cache_options),
    ngx_modelgw_request_ignored(moderation),
    ngx_modelgw_request_ignored(verbosity),
    ngx_modelgw_request_ignored(service_tier),

    { ngx_null_string, 0, 0, 0, NULL, NULL }
};


ngx_int_t
ngx_modelgw_request_fields_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *root, *name, *value;
    ngx_modelgw_request_field_t  *field;

    root = ngx_modelgw_tape_root(rq->tape);

    if (root->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_invalid(rq, "the body must be an object");
    }

    for (name = ngx_modelgw_tape_first(rq->tape, root);
         name;
         name = ngx_modelgw_tape_next(rq->tape, root, value))
    {
        value = ngx_modelgw_tape_next(rq->tape, root, name);

        if (value->type == NGX_MODELGW_TAPE_NULL) {
            continue;
        }

        field = ngx_modelgw_request_fields_find(rq, name);

        if (field) {
            rc = ngx_modelgw_request_fields_take(rq, &plan->fields, field,
                                                 value);

        } else {
            rc = ngx_modelgw_request_fields_unknown(rq, name);
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    rc = ngx_modelgw_request_fields_options(rq, plan->fields.stream_options);

    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_modelgw_request_fields_modalities(rq, plan->fields.modalities);
}


static ngx_modelgw_request_field_t *
ngx_modelgw_request_fields_find(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *name)
{
    ngx_modelgw_request_field_t  *field;

    for (field = ngx_modelgw_request_table; field->name.len; field++) {

        if (ngx_modelgw_tape_is(rq->tape, name, (char *) field->name.data)) {
            return field;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_modelgw_request_fields_take(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_fields_t *fields, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_modelgw_node_t         **node;
    ngx_modelgw_request_kind_t  *kind;

    kind = &ngx_modelgw_request_kinds[field->kind];

    if (!(kind->types & ((ngx_uint_t) 1 << value->type))) {
        return ngx_modelgw_request_invalid(rq, "\"%V\" must be %s",
                                           &field->name, kind->name);
    }

    switch (field->fate) {

    case KEPT:
        node = (ngx_modelgw_node_t **) ((u_char *) fields + field->offset);
        *node = value;

        return NGX_OK;

    case IGNORED:
        return ngx_modelgw_request_fields_note(rq, &field->name);

    case REFUSED:
        return ngx_modelgw_request_fields_refuse(rq, field, value);

    default: /* SEEN */
        return NGX_OK;
    }
}


static ngx_int_t
ngx_modelgw_request_fields_refuse(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_field_t *field, ngx_modelgw_node_t *value)
{
    ngx_str_t  raw;

    if (field->fine == NULL) {
        return ngx_modelgw_request_unsupported(rq,
                                               "\"%V\" is not supported%s",
                                               &field->name, field->instead);
    }

    ngx_modelgw_tape_raw(rq->tape, value, &raw);

    if (raw.len == ngx_strlen(field->fine)
        && ngx_memcmp(raw.data, field->fine, raw.len) == 0)
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_unsupported(rq,
                                   "\"%V\" other than %s is not supported%s",
                                   &field->name, field->fine, field->instead);
}


/* a name of the client's */

static ngx_int_t
ngx_modelgw_request_fields_unknown(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *name)
{
    ngx_int_t  rc;
    ngx_str_t  text;

    /* a message quotes a part of it, the list has all of it or nothing */

    rc = rq->strict ? ngx_modelgw_request_quote(rq, name, &text)
                    : ngx_modelgw_tape_text(rq->tape, rq->pool, name, &text);

    return (rc == NGX_OK) ? ngx_modelgw_request_fields_note(rq, &text)
                          : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_request_fields_ignore(ngx_modelgw_request_t *rq, const char *name)
{
    ngx_str_t  text;

    text.data = (u_char *) name;
    text.len = ngx_strlen(name);

    return ngx_modelgw_request_fields_note(rq, &text);
}


/*
 * Adds the name to the list, which becomes a header of the answer: once, and
 * if it is a name that can stand there and there is room.
 */

static ngx_int_t
ngx_modelgw_request_fields_note(ngx_modelgw_request_t *rq, ngx_str_t *name)
{
    u_char      *p;
    ngx_str_t   *list;
    ngx_uint_t   n;

    if (rq->strict) {
        return ngx_modelgw_request_unsupported(rq,
                            "\"%V\" is not supported, it would have no effect",
                            name);
    }

    list = &rq->ignored;

    if (!ngx_modelgw_request_fields_plain(name)
        || list->len + 1 + name->len > NGX_MODELGW_REQUEST_IGNORED
        || ngx_modelgw_request_fields_noted(list, name, &n)
        || n >= NGX_MODELGW_REQUEST_IGNORED_NAMES)
    {
        return NGX_OK;
    }

    if (list->data == NULL) {
        list->data = ngx_pnalloc(rq->pool, NGX_MODELGW_REQUEST_IGNORED);
        if (list->data == NULL) {
            return NGX_ERROR;
        }
    }

    p = list->data + list->len;

    if (list->len) {
        *p++ = ',';
    }

    p = ngx_cpymem(p, name->data, name->len);
    list->len = p - list->data;

    return NGX_OK;
}


/* whether the name is in the list; *n is how many are */

static ngx_uint_t
ngx_modelgw_request_fields_noted(ngx_str_t *list, ngx_str_t *name,
    ngx_uint_t *n)
{
    u_char  *p, *end, *last;

    *n = 0;

    if (list->len == 0) {
        return 0;
    }

    last = list->data + list->len;

    for (p = list->data; p < last; p = end + 1) {
        end = ngx_strlchr(p, last, ',');

        if (end == NULL) {
            end = last;
        }

        if ((size_t) (end - p) == name->len
            && ngx_memcmp(p, name->data, name->len) == 0)
        {
            return 1;
        }

        (*n)++;
    }

    return 0;
}


static ngx_uint_t
ngx_modelgw_request_fields_plain(ngx_str_t *name)
{
    size_t  i;
    u_char  ch;

    for (i = 0; i < name->len; i++) {
        ch = name->data[i];

        if ((ch < 'a' || ch > 'z') && (ch < 'A' || ch > 'Z')
            && (ch < '0' || ch > '9') && ch != '_' && ch != '.' && ch != '-')
        {
            return 0;
        }
    }

    return name->len && name->len <= NGX_MODELGW_REQUEST_IGNORED_NAME;
}


/* stream_options never reach the upstream, but say what the client expects */

static ngx_int_t
ngx_modelgw_request_fields_options(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *options)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(rq, options, "include_usage");

    if (node == NULL || node->type == NGX_MODELGW_TAPE_NULL) {
        return NGX_OK;
    }

    if (node->type != NGX_MODELGW_TAPE_TRUE
        && node->type != NGX_MODELGW_TAPE_FALSE)
    {
        return ngx_modelgw_request_invalid(rq,
                        "stream_options.include_usage must be true or false");
    }

    rq->include_usage = (node->type == NGX_MODELGW_TAPE_TRUE);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_fields_modalities(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *modalities)
{
    ngx_str_t            text;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node;

    if (modalities == NULL) {
        return NGX_OK;
    }

    node = ngx_modelgw_tape_first(rq->tape, modalities);

    for (i = 0; node; i++) {

        if (node->type != NGX_MODELGW_TAPE_STRING) {
            return ngx_modelgw_request_invalid(rq,
                                         "modalities[%ui] must be a string", i);
        }

        if (!ngx_modelgw_tape_is(rq->tape, node, "text")) {

            if (ngx_modelgw_request_quote(rq, node, &text) != NGX_OK) {
                return NGX_ERROR;
            }

            return ngx_modelgw_request_unsupported(rq,
                             "modalities[%ui] \"%V\" is not supported", i,
                             &text);
        }

        node = ngx_modelgw_tape_next(rq->tape, modalities, node);
    }

    return NGX_OK;
}
