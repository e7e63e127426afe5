
/*
 * A chat request as a messages request: what becomes of each field of the top
 * level, the order of decisions, and the top level of the output.
 *
 * A translated field is a row of a table, here or in the file of its concern, a
 * place in ngx_modelgw_request_fields_t, and a function that reads it.  First
 * the fields are found, in the order of the document; then they are read in the
 * order of the tables, since decisions look back: whether a tool call is forced
 * must be known before thinking is decided, and thinking before temperature.
 * Reading refuses values that make no sense (INVALID_REQUEST) and what a
 * messages upstream cannot express (UNSUPPORTED_FIELD).  Writing decides
 * nothing and can fail only for lack of memory.
 *
 * The output is a white list, since an upstream refuses unknown members; values
 * that need no decision are copied byte for byte.
 *
 * Fields that change the meaning of the answer are refused: a client that asks
 * for three choices, or for log probabilities, will look for them.  All others
 * are ignored: hints (seed, presence_penalty, frequency_penalty, logit_bias,
 * store, prediction, prompt_cache_*, moderation, verbosity), the service_tier,
 * which is up to the operator, and unknown fields, since SDKs start sending new
 * ones unasked.  Ignored fields are listed in a header of the answer, and
 * refused in strict mode.  null is the same as absent.
 *
 * Rejected: translating in one pass over the document.  Members come in any
 * order, "model" may follow 20 MB of "messages", and a request cannot be
 * refused once half of it is written.
 *
 * Rejected: looking each field up in the document when it is needed.  It would
 * compare each name once more, and unknown fields must be found anyway.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


#define NGX_MODELGW_REQUEST_QUOTE          64    /* bytes */
#define NGX_MODELGW_REQUEST_USER           256   /* characters */
#define NGX_MODELGW_REQUEST_IGNORED        511   /* bytes of the header */
#define NGX_MODELGW_REQUEST_IGNORED_NAMES  16
#define NGX_MODELGW_REQUEST_IGNORED_NAME   64    /* bytes of one name */


#define ngx_modelgw_request_value(fields, field)                              \
    ((ngx_modelgw_node_t **) ((u_char *) (fields) + (field)->offset))


/* kinds of values: bits by type of node, and the name in messages */

typedef struct {
    ngx_uint_t            types;
    const char           *name;
} ngx_modelgw_request_kind_t;


static ngx_int_t ngx_modelgw_request_find(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_modelgw_request_field_t *ngx_modelgw_request_find_field(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_form_t *form,
    ngx_modelgw_node_t *name);
static ngx_int_t ngx_modelgw_request_check_kind(ngx_modelgw_request_t *rq,
    ngx_str_t *name, ngx_uint_t kind, ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_request_other_field(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_form_t *form, ngx_modelgw_node_t *name,
    ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_request_refuse_field(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_refused_t *field, ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_request_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_stream_options(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *options);
static ngx_int_t ngx_modelgw_request_modalities(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *modalities);
static ngx_int_t ngx_modelgw_request_messages(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_request_response_format(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_request_field_t *field, ngx_modelgw_node_t *format);
static ngx_int_t ngx_modelgw_request_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *format,
    const char *path, const char *inside);
static ngx_int_t ngx_modelgw_request_metadata(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *metadata);
static ngx_int_t ngx_modelgw_request_user_id(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node);
static ngx_uint_t ngx_modelgw_request_personal(ngx_str_t *id);
static void ngx_modelgw_request_output(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
static ngx_int_t ngx_modelgw_request_note(ngx_modelgw_request_t *rq,
    ngx_str_t *name);
static ngx_uint_t ngx_modelgw_request_noted(ngx_str_t *list, ngx_str_t *name,
    ngx_uint_t *n);
static ngx_uint_t ngx_modelgw_request_plain_name(ngx_str_t *name);
static ngx_int_t ngx_modelgw_request_refuse(ngx_modelgw_request_t *rq,
    const char *code, const char *fmt, va_list args);
static u_char *ngx_modelgw_request_cut(u_char *p, u_char *last);


static ngx_modelgw_request_kind_t  ngx_modelgw_request_kinds[] = {

    [NGX_MODELGW_REQUEST_ANY] = { ~(ngx_uint_t) 0, "" },

    [NGX_MODELGW_REQUEST_NUMBER] =
        { 1 << NGX_MODELGW_TAPE_NUMBER, "a number" },

    [NGX_MODELGW_REQUEST_STRING] =
        { 1 << NGX_MODELGW_TAPE_STRING, "a string" },

    [NGX_MODELGW_REQUEST_BOOLEAN] =
        { 1 << NGX_MODELGW_TAPE_TRUE|1 << NGX_MODELGW_TAPE_FALSE,
          "true or false" },

    [NGX_MODELGW_REQUEST_ARRAY] =
        { 1 << NGX_MODELGW_TAPE_ARRAY, "an array" },

    [NGX_MODELGW_REQUEST_OBJECT] =
        { 1 << NGX_MODELGW_TAPE_OBJECT, "an object" },

    [NGX_MODELGW_REQUEST_STRINGS] =
        { 1 << NGX_MODELGW_TAPE_STRING|1 << NGX_MODELGW_TAPE_ARRAY,
          "a string or an array" },

    [NGX_MODELGW_REQUEST_CHOICE] =
        { 1 << NGX_MODELGW_TAPE_STRING|1 << NGX_MODELGW_TAPE_OBJECT,
          "a string or an object" }
};


static ngx_modelgw_request_field_t  ngx_modelgw_request_main_fields[] = {

    /* "model" is rq->model; "messages" are read by a step below */

    { ngx_string("model"), NGX_MODELGW_REQUEST_ANY, 0, NULL },
    { ngx_string("messages"), NGX_MODELGW_REQUEST_ANY, 0, NULL },

    ngx_modelgw_request_field(stream, BOOLEAN, ngx_modelgw_request_stream),
    ngx_modelgw_request_field(stream_options, OBJECT,
                              ngx_modelgw_request_stream_options),
    ngx_modelgw_request_field(modalities, ARRAY,
                              ngx_modelgw_request_modalities),

    /* a step, since "messages" must be refused if it is absent, too */

    ngx_modelgw_request_step(ngx_modelgw_request_messages),

    ngx_modelgw_request_field(response_format, OBJECT,
                              ngx_modelgw_request_response_format),
    ngx_modelgw_request_field(metadata, OBJECT, ngx_modelgw_request_metadata),
    ngx_modelgw_request_field(safety_identifier, STRING,
                              ngx_modelgw_request_user),
    ngx_modelgw_request_field(user, STRING, ngx_modelgw_request_user),

    ngx_modelgw_request_fields_end
};


/* in the order of decisions */

static ngx_modelgw_request_field_t  *ngx_modelgw_request_tables[] = {
    ngx_modelgw_request_main_fields,
    ngx_modelgw_request_tools_fields,
    ngx_modelgw_request_params_fields,
    NULL
};


static ngx_modelgw_request_refused_t  ngx_modelgw_request_refused_fields[] = {

    { ngx_string("n"), NGX_MODELGW_REQUEST_NUMBER, "1", "" },
    { ngx_string("logprobs"), NGX_MODELGW_REQUEST_BOOLEAN, "false", "" },
    { ngx_string("top_logprobs"), NGX_MODELGW_REQUEST_NUMBER, "0", "" },
    { ngx_string("audio"), NGX_MODELGW_REQUEST_ANY, NULL, "" },
    { ngx_string("functions"), NGX_MODELGW_REQUEST_ANY, NULL,
      ", use \"tools\"" },
    { ngx_string("function_call"), NGX_MODELGW_REQUEST_ANY, NULL,
      ", use \"tool_choice\"" },
    { ngx_string("web_search_options"), NGX_MODELGW_REQUEST_ANY, NULL, "" },

    { ngx_null_string, 0, NULL, NULL }
};


static ngx_modelgw_request_form_t  ngx_modelgw_request_chat = {
    ngx_modelgw_request_tables,
    ngx_modelgw_request_refused_fields,
    "reasoning_effort"
};


ngx_int_t
ngx_modelgw_request(ngx_modelgw_request_t *rq, ngx_modelgw_out_t *out)
{
    ngx_int_t                   rc;
    ngx_modelgw_request_plan_t  plan;

    ngx_memzero(&plan, sizeof(ngx_modelgw_request_plan_t));

    rc = ngx_modelgw_request_decide(rq, &plan, &ngx_modelgw_request_chat);

    if (rc == NGX_OK) {
        ngx_modelgw_request_write(rq, &plan, out);
    }

    return rc;
}


ngx_int_t
ngx_modelgw_request_decide(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_form_t *form)
{
    ngx_int_t  rc;

    ngx_str_null(&rq->ignored);
    ngx_str_null(&rq->message);
    rq->code = NULL;
    rq->max_tokens = 0;
    rq->include_usage = 0;

    plan->form = form;

    rc = ngx_modelgw_request_find(rq, plan);

    return (rc == NGX_OK) ? ngx_modelgw_request_read(rq, plan) : rc;
}


/* finds the translated fields, and refuses or ignores all others */

static ngx_int_t
ngx_modelgw_request_find(ngx_modelgw_request_t *rq,
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

        field = ngx_modelgw_request_find_field(rq, plan->form, name);

        if (field) {
            if (field->read) {
                *ngx_modelgw_request_value(&plan->fields, field) = value;
            }

            rc = ngx_modelgw_request_check_kind(rq, &field->name, field->kind,
                                                value);

        } else {
            rc = ngx_modelgw_request_other_field(rq, plan->form, name, value);
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


/* returns the row of a field, or NULL if it is not translated */

static ngx_modelgw_request_field_t *
ngx_modelgw_request_find_field(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_form_t *form, ngx_modelgw_node_t *name)
{
    u_char                        ch;
    ngx_str_t                     text;
    ngx_modelgw_request_field_t  *field, **table;

    ngx_modelgw_tape_inside(rq->tape, name, &text);
    ch = text.len ? text.data[0] : '\0';

    for (table = form->tables; *table; table++) {

        for (field = *table; field->name.data; field++) {

            if ((ch == field->name.data[0] || ch == '\\')
                && field->name.len
                && ngx_modelgw_request_named(rq, name, &field->name))
            {
                return field;
            }
        }
    }

    return NULL;
}


static ngx_int_t
ngx_modelgw_request_check_kind(ngx_modelgw_request_t *rq, ngx_str_t *name,
    ngx_uint_t kind, ngx_modelgw_node_t *value)
{
    if (ngx_modelgw_request_kinds[kind].types
        & ((ngx_uint_t) 1 << value->type))
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_invalid(rq, "\"%V\" must be %s", name,
                                       ngx_modelgw_request_kinds[kind].name);
}


static ngx_int_t
ngx_modelgw_request_other_field(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_form_t *form, ngx_modelgw_node_t *name,
    ngx_modelgw_node_t *value)
{
    ngx_int_t                       rc;
    ngx_str_t                       text;
    ngx_modelgw_request_refused_t  *refused;

    for (refused = form->refused; refused->name.len; refused++) {

        if (ngx_modelgw_request_named(rq, name, &refused->name)) {
            return ngx_modelgw_request_refuse_field(rq, refused, value);
        }
    }

    /* a message quotes a part of the name, the list has all of it or nothing */

    rc = rq->strict ? ngx_modelgw_request_quote(rq, name, &text)
                    : ngx_modelgw_tape_text(rq->tape, rq->pool, name, &text);

    return (rc == NGX_OK) ? ngx_modelgw_request_note(rq, &text) : NGX_ERROR;
}


static ngx_int_t
ngx_modelgw_request_refuse_field(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_refused_t *field, ngx_modelgw_node_t *value)
{
    ngx_int_t  rc;
    ngx_str_t  raw;

    rc = ngx_modelgw_request_check_kind(rq, &field->name, field->kind, value);

    if (rc != NGX_OK) {
        return rc;
    }

    if (field->allowed == NULL) {
        return ngx_modelgw_request_unsupported(rq,
                                               "\"%V\" is not supported%s",
                                               &field->name, field->instead);
    }

    ngx_modelgw_tape_raw(rq->tape, value, &raw);

    if (raw.len == ngx_strlen(field->allowed)
        && ngx_memcmp(raw.data, field->allowed, raw.len) == 0)
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_unsupported(rq,
                                   "\"%V\" other than %s is not supported%s",
                                   &field->name, field->allowed,
                                   field->instead);
}


static ngx_int_t
ngx_modelgw_request_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *value;
    ngx_modelgw_request_field_t  *field, **table;

    for (table = plan->form->tables; *table; table++) {

        for (field = *table; field->name.data; field++) {

            if (field->read == NULL) {
                continue;
            }

            value = NULL;

            if (field->name.len) {
                value = *ngx_modelgw_request_value(&plan->fields, field);

                if (value == NULL) {
                    continue;
                }
            }

            rc = field->read(rq, plan, field, value);

            if (rc != NGX_OK) {
                return rc;
            }
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_request_stream(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    plan->stream = (value->type == NGX_MODELGW_TAPE_TRUE);

    return NGX_OK;
}


/* not sent to the upstream, but the client expects a chunk with the usage */

static ngx_int_t
ngx_modelgw_request_stream_options(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *options)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(rq, options, "include_usage");

    if (ngx_modelgw_request_absent(node)) {
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
ngx_modelgw_request_modalities(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *modalities)
{
    ngx_str_t            text;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node;

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


static ngx_int_t
ngx_modelgw_request_messages(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    return ngx_modelgw_request_turns_read(rq, &plan->turns);
}


static ngx_int_t
ngx_modelgw_request_response_format(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *format)
{
    return ngx_modelgw_request_format(rq, plan, format, "response_format",
                                      ".json_schema");
}


ngx_int_t
ngx_modelgw_request_format(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *format,
    const char *path, const char *inside)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *type;

    type = ngx_modelgw_request_member(rq, format, "type");

    if (!ngx_modelgw_request_string(type)) {
        return ngx_modelgw_request_invalid(rq, "%s.type must be a string",
                                           path);
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "json_schema")) {
        return ngx_modelgw_request_schema(rq, plan, format, path, inside);
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "json_object")) {
        plan->json_object = 1;
        return NGX_OK;
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "text")) {
        return NGX_OK;
    }

    if (ngx_modelgw_request_quote(rq, type, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_request_unsupported(rq,
                                   "%s.type \"%V\" is not supported", path,
                                   &text);
}


static ngx_int_t
ngx_modelgw_request_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *format,
    const char *path, const char *inside)
{
    ngx_modelgw_node_t  *node;

    if (!rq->caps->structured) {
        return ngx_modelgw_request_unsupported(rq,
                            "%s.type \"json_schema\" is not supported by "
                            "this model", path);
    }

    node = *inside ? ngx_modelgw_request_member(rq, format, inside + 1)
                   : format;
    node = ngx_modelgw_request_member(rq, node, "schema");

    if (node == NULL || node->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_invalid(rq,
                                           "%s%s.schema must be an object",
                                           path, inside);
    }

    plan->schema = node;

    return NGX_OK;
}


/* only "user_id" is sent, the other members are the client's own notes */

static ngx_int_t
ngx_modelgw_request_metadata(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *metadata)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *id;

    id = ngx_modelgw_request_member(rq, metadata, "user_id");

    if (!ngx_modelgw_request_absent(id) && !ngx_modelgw_request_string(id)) {
        return ngx_modelgw_request_invalid(rq,
                                           "metadata.user_id must be a string");
    }

    if (metadata->count > (id ? 1 : 0)) {
        rc = ngx_modelgw_request_note(rq, &field->name);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (ngx_modelgw_request_absent(id)) {
        return NGX_OK;
    }

    return ngx_modelgw_request_user(rq, plan, field, id);
}


/*
 * The end user: metadata.user_id, else safety_identifier, else user.  One that
 * looks like personal data is not sent, as the messages API asks for none; the
 * next one is used then.
 */

ngx_int_t
ngx_modelgw_request_user(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *id)
{
    ngx_int_t  rc;

    if (plan->user_id || ngx_modelgw_tape_blank(rq->tape, id)) {
        return NGX_OK;
    }

    rc = ngx_modelgw_request_user_id(rq, id);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_note(rq, &field->name);
    }

    if (rc == NGX_OK) {
        plan->user_id = id;
    }

    return rc;
}


/* NGX_OK: the id may be sent, NGX_DECLINED: it may not, NGX_ERROR: no memory */

static ngx_int_t
ngx_modelgw_request_user_id(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node)
{
    size_t     i, n;
    ngx_str_t  id;

    if (ngx_modelgw_tape_text(rq->tape, rq->pool, node, &id) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0, n = 0; i < id.len; i++) {
        n += (id.data[i] & 0xc0) != 0x80;
    }

    if (n > NGX_MODELGW_REQUEST_USER || ngx_modelgw_request_personal(&id)) {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* a mail address, or a phone number with its country */

static ngx_uint_t
ngx_modelgw_request_personal(ngx_str_t *id)
{
    size_t  i;

    static u_char  marks[] = "0123456789 -./()";

    if (ngx_strlchr(id->data, id->data + id->len, '@')) {
        return 1;
    }

    if (id->len < 2 || id->data[0] != '+') {
        return 0;
    }

    for (i = 1; i < id->len; i++) {

        if (ngx_strlchr(marks, marks + sizeof(marks) - 1, id->data[i])
            == NULL)
        {
            return 0;
        }
    }

    return 1;
}


void
ngx_modelgw_request_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_modelgw_out_text(out, "{\"model\":\"");
    ngx_modelgw_out(out, rq->model.data, rq->model.len);
    ngx_modelgw_out_text(out, "\",\"max_tokens\":");
    ngx_modelgw_out_number(out, rq->max_tokens);

    ngx_modelgw_request_turns_write(rq, &plan->turns, plan->json_object, out);
    ngx_modelgw_request_tools_write(rq, plan, out);
    ngx_modelgw_request_sampling_write(rq, plan, out);

    if (plan->stream) {
        ngx_modelgw_out_text(out, ",\"stream\":true");
    }

    if (plan->user_id) {
        ngx_modelgw_out_text(out, ",\"metadata\":{\"user_id\":");
        ngx_modelgw_request_raw(rq, plan->user_id, out);
        ngx_modelgw_out_text(out, "}");
    }

    ngx_modelgw_request_thinking_write(rq, plan, out);
    ngx_modelgw_request_output(rq, plan, out);

    ngx_modelgw_out_text(out, "}");
}


/* output_config: the format of the answer, and the effort */

static void
ngx_modelgw_request_output(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_str_t  *effort;

    effort = plan->reasoning.effort;

    if (plan->schema == NULL && effort == NULL) {
        return;
    }

    ngx_modelgw_out_text(out, ",\"output_config\":{");

    if (plan->schema) {
        ngx_modelgw_out_text(out, "\"format\":{\"type\":\"json_schema\","
                                  "\"schema\":");
        ngx_modelgw_request_raw(rq, plan->schema, out);
        ngx_modelgw_out_text(out, "}");
    }

    if (plan->schema && effort) {
        ngx_modelgw_out_text(out, ",");
    }

    if (effort) {
        ngx_modelgw_out_text(out, "\"effort\":\"");
        ngx_modelgw_out(out, effort->data, effort->len);
        ngx_modelgw_out_text(out, "\"");
    }

    ngx_modelgw_out_text(out, "}");
}


ngx_int_t
ngx_modelgw_request_ignore(ngx_modelgw_request_t *rq, const char *name)
{
    ngx_str_t  text;

    text.data = (u_char *) name;
    text.len = ngx_strlen(name);

    return ngx_modelgw_request_note(rq, &text);
}


/*
 * Adds the name to the list of ignored fields, which becomes a header of the
 * answer: once, if it has no other characters than a header may, and if there
 * is room.
 */

static ngx_int_t
ngx_modelgw_request_note(ngx_modelgw_request_t *rq, ngx_str_t *name)
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

    if (!ngx_modelgw_request_plain_name(name)
        || list->len + 1 + name->len > NGX_MODELGW_REQUEST_IGNORED
        || ngx_modelgw_request_noted(list, name, &n)
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


/* whether the name is in the list; *n: the number of names before it */

static ngx_uint_t
ngx_modelgw_request_noted(ngx_str_t *list, ngx_str_t *name, ngx_uint_t *n)
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
ngx_modelgw_request_plain_name(ngx_str_t *name)
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


ngx_int_t
ngx_modelgw_request_invalid(ngx_modelgw_request_t *rq, const char *fmt, ...)
{
    va_list    args;
    ngx_int_t  rc;

    va_start(args, fmt);
    rc = ngx_modelgw_request_refuse(rq, "INVALID_REQUEST", fmt, args);
    va_end(args);

    return rc;
}


ngx_int_t
ngx_modelgw_request_unsupported(ngx_modelgw_request_t *rq, const char *fmt,
    ...)
{
    va_list    args;
    ngx_int_t  rc;

    va_start(args, fmt);
    rc = ngx_modelgw_request_refuse(rq, "UNSUPPORTED_FIELD", fmt, args);
    va_end(args);

    return rc;
}


static ngx_int_t
ngx_modelgw_request_refuse(ngx_modelgw_request_t *rq, const char *code,
    const char *fmt, va_list args)
{
    u_char  *p, *last, *end;

    p = ngx_pnalloc(rq->pool, NGX_MODELGW_REQUEST_MESSAGE);
    if (p == NULL) {
        return NGX_ERROR;
    }

    end = p + NGX_MODELGW_REQUEST_MESSAGE;
    last = ngx_vslprintf(p, end, fmt, args);

    if (last == end) {
        last = ngx_modelgw_request_cut(p, last);
    }

    rq->code = code;
    rq->message.data = p;
    rq->message.len = last - p;

    return NGX_DECLINED;
}


ngx_int_t
ngx_modelgw_request_quote(ngx_modelgw_request_t *rq, ngx_modelgw_node_t *node,
    ngx_str_t *text)
{
    if (ngx_modelgw_tape_text(rq->tape, rq->pool, node, text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text->len > NGX_MODELGW_REQUEST_QUOTE) {
        text->len = ngx_modelgw_request_cut(text->data,
                                       text->data + NGX_MODELGW_REQUEST_QUOTE)
                    - text->data;
    }

    return NGX_OK;
}


/* removes the last character of a UTF-8 text, which may be incomplete */

static u_char *
ngx_modelgw_request_cut(u_char *p, u_char *last)
{
    while (last > p && (last[-1] & 0xc0) == 0x80) {
        last--;
    }

    return (last > p) ? last - 1 : p;
}


void
ngx_modelgw_request_raw(ngx_modelgw_request_t *rq, ngx_modelgw_node_t *node,
    ngx_modelgw_out_t *out)
{
    ngx_str_t  raw;

    ngx_modelgw_tape_raw(rq->tape, node, &raw);
    ngx_modelgw_out_borrowed(out, raw.data, raw.len);
}
