
/*
 * A chat request as a messages request: the steps, and the top level of what is
 * written.
 *
 * Each step reads its fields and decides: about values that make no sense
 * (INVALID_REQUEST), about what a messages upstream cannot express
 * (UNSUPPORTED_FIELD), and about what the fields mean together.  Steps look
 * back only: whether a call of a tool is forced must be known before thinking
 * is decided, and thinking before temperature.  Writing decides nothing, so it
 * cannot fail but for memory.
 *
 * What is written is a white list, as an upstream refuses members it does not
 * know; values that are not decided here are the client's own bytes.
 *
 * Rejected: translating in one pass over the document.  Chat allows its members
 * in any order, "model" behind 20 MB of "messages" too, and a refusal that
 * comes after half of the request was written could not be one.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


#define NGX_MODELGW_REQUEST_QUOTE  64
#define NGX_MODELGW_REQUEST_USER   256   /* characters; translate.md, 2.1 */


typedef ngx_int_t (*ngx_modelgw_request_step_pt)(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);


static ngx_int_t ngx_modelgw_request_turns(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_format(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_user(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_metadata(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *metadata, ngx_modelgw_node_t **id);
static ngx_int_t ngx_modelgw_request_identifier(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node);
static ngx_uint_t ngx_modelgw_request_personal(ngx_str_t *id);
static void ngx_modelgw_request_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_output(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
static ngx_int_t ngx_modelgw_request_refuse(ngx_modelgw_request_t *rq,
    const char *code, const char *fmt, va_list args);
static u_char *ngx_modelgw_request_cut(u_char *p, u_char *last);


static ngx_modelgw_request_step_pt  ngx_modelgw_request_steps[] = {
    ngx_modelgw_request_fields_read,
    ngx_modelgw_request_turns,
    ngx_modelgw_request_format,
    ngx_modelgw_request_user,
    ngx_modelgw_request_tools_read,
    ngx_modelgw_request_choice_read,
    ngx_modelgw_request_thinking_read,
    ngx_modelgw_request_reasoning_read,
    ngx_modelgw_request_sampling_read,
    NULL
};


ngx_int_t
ngx_modelgw_request(ngx_modelgw_request_t *rq, ngx_modelgw_out_t *out)
{
    ngx_int_t                     rc;
    ngx_modelgw_request_step_pt  *step;
    ngx_modelgw_request_plan_t    plan;

    ngx_memzero(&plan, sizeof(ngx_modelgw_request_plan_t));

    ngx_str_null(&rq->ignored);
    ngx_str_null(&rq->message);
    rq->code = NULL;
    rq->max_tokens = 0;
    rq->include_usage = 0;

    for (step = ngx_modelgw_request_steps; *step; step++) {
        rc = (*step)(rq, &plan);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    ngx_modelgw_request_write(rq, &plan, out);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_turns(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    return ngx_modelgw_request_turns_read(rq, &plan->turns);
}


/* response_format */

static ngx_int_t
ngx_modelgw_request_format(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *type, *format;

    format = plan->fields.response_format;

    if (format == NULL) {
        return NGX_OK;
    }

    type = ngx_modelgw_request_member(rq, format, "type");

    if (!ngx_modelgw_request_string(type)) {
        return ngx_modelgw_request_invalid(rq,
                                      "response_format.type must be a string");
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "json_schema")) {
        return ngx_modelgw_request_schema(rq, plan);
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
                         "response_format.type \"%V\" is not supported", &text);
}


static ngx_int_t
ngx_modelgw_request_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_modelgw_node_t  *node;

    if (!rq->caps->structured) {
        return ngx_modelgw_request_unsupported(rq,
                            "response_format.type \"json_schema\" is not "
                            "supported by this model");
    }

    node = ngx_modelgw_request_member(rq, plan->fields.response_format,
                                      "json_schema");
    node = ngx_modelgw_request_member(rq, node, "schema");

    if (node == NULL || node->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_invalid(rq,
                    "response_format.json_schema.schema must be an object");
    }

    plan->schema = node;

    return NGX_OK;
}


/*
 * Who the end user is: metadata.user_id, else safety_identifier, else user.
 * What looks like personal data is not sent, as the messages API asks for none;
 * then the next one counts.
 */

static ngx_int_t
ngx_modelgw_request_user(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t            rc;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *ids[3];

    static const char  *names[3] = { "metadata", "safety_identifier", "user" };

    ids[1] = plan->fields.safety_identifier;
    ids[2] = plan->fields.user;

    rc = ngx_modelgw_request_metadata(rq, plan->fields.metadata, &ids[0]);

    if (rc != NGX_OK) {
        return rc;
    }

    for (i = 0; i < 3; i++) {

        if (ids[i] == NULL || ngx_modelgw_tape_blank(rq->tape, ids[i])) {
            continue;
        }

        rc = ngx_modelgw_request_identifier(rq, ids[i]);

        if (rc == NGX_OK) {
            plan->user_id = ids[i];
            return NGX_OK;
        }

        if (rc == NGX_DECLINED) {
            rc = ngx_modelgw_request_fields_ignore(rq, names[i]);
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


/* all members but user_id are the client's own notes */

static ngx_int_t
ngx_modelgw_request_metadata(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *metadata, ngx_modelgw_node_t **id)
{
    ngx_modelgw_node_t  *node;

    *id = NULL;

    if (metadata == NULL) {
        return NGX_OK;
    }

    node = ngx_modelgw_request_member(rq, metadata, "user_id");

    if (ngx_modelgw_request_string(node)) {
        *id = node;

    } else if (!ngx_modelgw_request_absent(node)) {
        return ngx_modelgw_request_invalid(rq,
                                           "metadata.user_id must be a string");
    }

    if (metadata->count > (node ? 1 : 0)) {
        return ngx_modelgw_request_fields_ignore(rq, "metadata");
    }

    return NGX_OK;
}


/* NGX_OK: it may be sent, NGX_DECLINED: it may not, NGX_ERROR */

static ngx_int_t
ngx_modelgw_request_identifier(ngx_modelgw_request_t *rq,
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


static void
ngx_modelgw_request_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_modelgw_node_t  *stream;

    ngx_modelgw_out_text(out, "{\"model\":\"");
    ngx_modelgw_out(out, rq->model.data, rq->model.len);
    ngx_modelgw_out_text(out, "\",\"max_tokens\":");
    ngx_modelgw_out_number(out, rq->max_tokens);

    ngx_modelgw_request_turns_write(rq, &plan->turns, plan->json_object, out);
    ngx_modelgw_request_tools_write(rq, plan, out);
    ngx_modelgw_request_choice_write(plan, out);
    ngx_modelgw_request_sampling_write(rq, plan, out);

    stream = plan->fields.stream;

    if (stream && stream->type == NGX_MODELGW_TAPE_TRUE) {
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


/* takes off the last character of the UTF-8 text, which may be a part of one */

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
