
/*
 * The events of a response, as its clients need them.  Each is JSON in one line
 * with the next sequence number; items are numbered from 0, and done before the
 * next one begins; deltas are joined to the texts of "done"; the last event
 * repeats the items that are done.  Anything else aborts the program, which may
 * be a fuzzer.
 *
 * What the events say is kept as words, for tests:
 *
 *     created progress
 *     +message ( ~a ~b ) -completed
 *     +reasoning ( ~a ) -
 *     +function_call:NAMESPACE/NAME:ID ~{} =NAME -completed
 *     completed | incomplete:REASON | failed:CODE error:CODE
 */


#ifndef _RESPONSE_EVENTS_H_INCLUDED_
#define _RESPONSE_EVENTS_H_INCLUDED_


#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_tape.h"


typedef struct {
    u_char               *data;
    size_t                len;
    size_t                size;
} response_text_t;


typedef struct {
    ngx_modelgw_tape_t    tape;
    ngx_modelgw_scan_t   *scan;
    ngx_modelgw_node_t   *event;

    ngx_uint_t            n;             /* events */
    ngx_uint_t            items;
    ngx_uint_t            open;          /* an item is */
    ngx_uint_t            call;          /* it is a call */
    ngx_uint_t            part;
    ngx_uint_t            parts;
    ngx_uint_t            ended;         /* by a last event */
    ngx_uint_t            failed;

    response_text_t       id;            /* of the open item */
    response_text_t       text;          /* deltas of the part, or the call */
    response_text_t       output;        /* items that are done */
    response_text_t       words;
} response_events_t;


#define response_check(ok)                                                    \
    do {                                                                      \
        if (!(ok)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #ok);  \
            abort();                                                          \
        }                                                                     \
    } while (0)


static ngx_inline void
response_add(response_text_t *t, const void *p, size_t len)
{
    if (t->size - t->len < len + 1) {
        t->size = 2 * (t->size + len + 1);
        t->data = realloc(t->data, t->size);
        response_check(t->data != NULL);
    }

    if (len) {
        ngx_memcpy(t->data + t->len, p, len);
        t->len += len;
    }

    t->data[t->len] = '\0';
}


static ngx_inline ngx_uint_t
response_equal(response_text_t *t, ngx_str_t *s)
{
    return t->len == s->len
           && (s->len == 0 || ngx_memcmp(t->data, s->data, s->len) == 0);
}


static ngx_inline void
response_word(response_events_t *v, const char *word, ngx_str_t *more)
{
    if (v->words.len) {
        response_add(&v->words, " ", 1);
    }

    response_add(&v->words, word, ngx_strlen(word));

    if (more) {
        response_add(&v->words, more->data, more->len);
    }
}


static ngx_inline ngx_modelgw_node_t *
response_member(response_events_t *v, ngx_modelgw_node_t *obj,
    const char *name, ngx_uint_t type)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_tape_member(&v->tape, obj, name);

    response_check(node != NULL);
    response_check(node->type == type);

    return node;
}


static ngx_inline ngx_str_t
response_string(response_events_t *v, ngx_modelgw_node_t *obj,
    const char *name)
{
    ngx_str_t  s;

    ngx_modelgw_tape_inside(&v->tape,
                            response_member(v, obj, name,
                                            NGX_MODELGW_TAPE_STRING), &s);
    return s;
}


static ngx_inline ngx_uint_t
response_number(response_events_t *v, ngx_modelgw_node_t *obj,
    const char *name)
{
    ngx_uint_t  n;

    response_check(ngx_modelgw_tape_count(&v->tape,
                           ngx_modelgw_tape_member(&v->tape, obj, name), &n));
    return n;
}


static ngx_inline ngx_uint_t
response_is(ngx_str_t *s, const char *text)
{
    return s->len == ngx_strlen(text)
           && ngx_memcmp(s->data, text, s->len) == 0;
}


static ngx_inline ngx_uint_t
response_ends(ngx_str_t *s, const char *text)
{
    size_t  len;

    len = ngx_strlen(text);

    return s->len >= len && ngx_memcmp(s->data + s->len - len, text, len) == 0;
}


/* all members that the SDKs require; the output is that of the items done */

static ngx_inline void
response_object(response_events_t *v, ngx_modelgw_node_t *obj,
    ngx_uint_t done)
{
    ngx_str_t            raw;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node;

    static const char  *members[] = {
        "id", "object", "created_at", "status", "error", "incomplete_details",
        "instructions", "model", "tools", "output", "parallel_tool_calls",
        "metadata", "tool_choice", "temperature", "top_p", "usage", "store",
        "max_output_tokens", "previous_response_id", "reasoning", "text",
        "truncation", "completed_at"
    };

    for (i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        response_check(ngx_modelgw_tape_member(&v->tape, obj, members[i])
                       != NULL);
    }

    node = response_member(v, obj, "output", NGX_MODELGW_TAPE_ARRAY);
    ngx_modelgw_tape_raw(&v->tape, node, &raw);

    raw.data++;
    raw.len -= 2;

    response_check(done ? response_equal(&v->output, &raw) : raw.len == 0);
}


static ngx_inline void
response_item_added(response_events_t *v)
{
    ngx_str_t            s;
    ngx_modelgw_node_t  *item;

    /* only a call that was cut is never done */

    response_check(!v->open || v->call);
    response_check(response_number(v, v->event, "output_index") == v->items++);

    item = response_member(v, v->event, "item", NGX_MODELGW_TAPE_OBJECT);

    v->open = 1;
    v->part = 0;
    v->parts = 0;
    v->id.len = 0;
    v->text.len = 0;

    s = response_string(v, item, "id");
    response_add(&v->id, s.data, s.len);

    s = response_string(v, item, "type");
    v->call = response_ends(&s, "_call");
    response_word(v, "+", &s);

    if (!v->call) {
        return;
    }

    response_add(&v->words, ":", 1);

    if (ngx_modelgw_tape_member(&v->tape, item, "namespace")) {
        s = response_string(v, item, "namespace");
        response_add(&v->words, s.data, s.len);
        response_add(&v->words, "/", 1);
    }

    if (ngx_modelgw_tape_member(&v->tape, item, "name")) {
        s = response_string(v, item, "name");
        response_add(&v->words, s.data, s.len);
    }

    s = response_string(v, item, "call_id");
    response_check(s.len > 0);
    response_add(&v->words, ":", 1);
    response_add(&v->words, s.data, s.len);
}


static ngx_inline void
response_item_done(response_events_t *v)
{
    ngx_str_t            s;
    ngx_modelgw_node_t  *item;

    response_check(v->open && !v->part);
    response_check(response_number(v, v->event, "output_index")
                   == v->items - 1);

    v->open = 0;

    item = response_member(v, v->event, "item", NGX_MODELGW_TAPE_OBJECT);

    s = response_string(v, item, "id");
    response_check(response_equal(&v->id, &s));

    response_word(v, "-", NULL);

    if (ngx_modelgw_tape_member(&v->tape, item, "status")) {
        s = response_string(v, item, "status");
        response_add(&v->words, s.data, s.len);
    }

    if (v->output.len) {
        response_add(&v->output, ",", 1);
    }

    ngx_modelgw_tape_raw(&v->tape, item, &s);
    response_add(&v->output, s.data, s.len);
}


/* parts, deltas and texts of the open item */

static ngx_inline void
response_item_event(response_events_t *v, ngx_str_t *type)
{
    ngx_str_t            s;
    ngx_uint_t           n;
    ngx_modelgw_node_t  *node;

    response_check(v->open);
    response_check(response_number(v, v->event, "output_index")
                   == v->items - 1);

    s = response_string(v, v->event, "item_id");
    response_check(response_equal(&v->id, &s));

    if (!v->call) {
        n = ngx_modelgw_tape_member(&v->tape, v->event, "summary_index")
            ? response_number(v, v->event, "summary_index")
            : response_number(v, v->event, "content_index");

        response_check(n == v->parts);
    }

    if (response_ends(type, "part.added")) {
        response_check(!v->part);
        v->part = 1;
        v->text.len = 0;
        response_word(v, "(", NULL);
        return;
    }

    response_check(v->call || v->part);

    if (response_ends(type, ".delta")) {
        s = response_string(v, v->event, "delta");
        response_check(s.len > 0);
        response_add(&v->text, s.data, s.len);
        response_word(v, "~", &s);
        return;
    }

    if (response_ends(type, "part.done")) {
        v->part = 0;
        v->parts++;
        response_word(v, ")", NULL);

        node = response_member(v, v->event, "part", NGX_MODELGW_TAPE_OBJECT);
        s = ngx_modelgw_tape_member(&v->tape, node, "refusal")
            ? response_string(v, node, "refusal")
            : response_string(v, node, "text");

    } else if (response_ends(type, "arguments.done")) {
        s = response_string(v, v->event, "name");
        response_word(v, "=", &s);
        s = response_string(v, v->event, "arguments");

    } else if (response_ends(type, "input.done")) {
        s = response_string(v, v->event, "input");

    } else if (response_ends(type, "refusal.done")) {
        s = response_string(v, v->event, "refusal");

    } else {
        response_check(response_ends(type, "text.done"));
        s = response_string(v, v->event, "text");
    }

    response_check(response_equal(&v->text, &s));
}


static ngx_inline void
response_ended(response_events_t *v, ngx_str_t *type)
{
    ngx_str_t            s;
    ngx_modelgw_node_t  *obj;

    /* a call that was cut may be open, anything if the response has failed */

    v->ended = 1;
    v->failed = response_ends(type, ".failed");

    response_check(!v->open || v->call || v->failed);

    obj = response_member(v, v->event, "response", NGX_MODELGW_TAPE_OBJECT);
    response_object(v, obj, 1);

    s = response_string(v, obj, "status");
    response_check(type->len == 9 + s.len && response_ends(type,
                   v->failed ? "failed"
                   : response_is(&s, "completed") ? "completed"
                                                  : "incomplete"));

    response_word(v, "", &s);

    if (v->failed) {
        obj = response_member(v, obj, "error", NGX_MODELGW_TAPE_OBJECT);
        s = response_string(v, obj, "code");

    } else if (response_is(&s, "incomplete")) {
        obj = response_member(v, obj, "incomplete_details",
                              NGX_MODELGW_TAPE_OBJECT);
        s = response_string(v, obj, "reason");

    } else {
        return;
    }

    response_add(&v->words, ":", 1);
    response_add(&v->words, s.data, s.len);
}


static ngx_inline void
response_event(response_events_t *v, u_char *p, size_t len, ngx_str_t *name)
{
    ngx_str_t  type;

    ngx_modelgw_scan_reset(v->scan);
    response_check(ngx_modelgw_scan_feed(v->scan, p, len) == NGX_OK);
    response_check(ngx_modelgw_scan_done(v->scan) == NGX_OK);

    ngx_modelgw_tape_reset(&v->tape);
    response_check(ngx_modelgw_tape_feed(&v->tape, p, len) == NGX_OK);
    response_check(ngx_modelgw_tape_done(&v->tape, p) == NGX_OK);

    v->event = ngx_modelgw_tape_root(&v->tape);

    type = response_string(v, v->event, "type");
    response_check(type.len == name->len
                   && ngx_memcmp(type.data, name->data, type.len) == 0);

    response_check(response_number(v, v->event, "sequence_number") == v->n);

    if (response_is(&type, "error")) {
        response_check(v->ended && v->failed);
        type = response_string(v, v->event, "code");
        response_word(v, "error:", &type);
        v->failed = 0;

    } else {
        response_check(!v->ended);

        if (v->n < 2) {
            response_check(response_is(&type, v->n ? "response.in_progress"
                                                   : "response.created"));
            response_object(v, response_member(v, v->event, "response",
                                               NGX_MODELGW_TAPE_OBJECT), 0);
            response_word(v, v->n ? "progress" : "created", NULL);

        } else if (response_is(&type, "keepalive")) {
            response_word(v, "keepalive", NULL);

        } else if (response_is(&type, "response.output_item.added")) {
            response_item_added(v);

        } else if (response_is(&type, "response.output_item.done")) {
            response_item_done(v);

        } else if (response_is(&type, "response.completed")
                   || response_is(&type, "response.incomplete")
                   || response_is(&type, "response.failed"))
        {
            response_ended(v, &type);

        } else {
            response_item_event(v, &type);
        }
    }

    v->n++;
}


/* reads all events of a stream */

static ngx_inline void
response_events(response_events_t *v, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip, u_char *p, size_t len)
{
    u_char                   *last, *end;
    ngx_str_t                 name;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(v, sizeof(response_events_t));
    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));

    conf.skip = skip;

    v->scan = ngx_modelgw_scan_create(pool, &conf);
    response_check(v->scan != NULL);

    ngx_modelgw_tape_init(&v->tape, pool, skip);

    last = p + len;

    while (p < last) {
        response_check(last - p > 7 && ngx_memcmp(p, "event: ", 7) == 0);

        name.data = p + 7;
        p = (u_char *) memchr(p, LF, last - p);
        response_check(p != NULL);
        name.len = p - name.data;

        p++;
        response_check(last - p > 6 && ngx_memcmp(p, "data: ", 6) == 0);
        p += 6;

        end = (u_char *) memchr(p, LF, last - p);
        response_check(end != NULL && end + 1 < last && end[1] == LF);
        response_check(memchr(p, CR, end - p) == NULL);

        response_event(v, p, end - p, &name);

        p = end + 2;
    }

    response_check(!v->failed);
}


static ngx_inline void
response_events_free(response_events_t *v)
{
    free(v->id.data);
    free(v->text.data);
    free(v->output.data);
    free(v->words.data);
}


#endif /* _RESPONSE_EVENTS_H_INCLUDED_ */
