
/*
 * What floor 1 does with an upstream's answer, in short: a stream passes the
 * reader of events, the scanner, the usage and the codec, a whole answer the
 * scanner, the tape and the other codec.  For tests and for answer_cli.c; the
 * program includes stub.h or unit.h before.
 */


#ifndef _ANSWER_H_INCLUDED_
#define _ANSWER_H_INCLUDED_


#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_stream.h"
#include "ngx_modelgw_completion.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_response.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_sse.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_usage.h"


typedef struct {
    ngx_pool_t               *pool;
    ngx_modelgw_skip_pt       skip;

    ngx_modelgw_completion_t  c;
    ngx_modelgw_usage_t       usage;
    ngx_modelgw_out_t         out;
    ngx_modelgw_scan_conf_t   conf;
    ngx_modelgw_scan_t       *scan;

    ngx_modelgw_sse_t         sse;
    ngx_modelgw_tape_t        tape;
    ngx_modelgw_stream_t     *stream;

    /* of the responses API, after answer_responses() */
    ngx_uint_t                       protocol;
    ngx_modelgw_response_t           rs;
    ngx_modelgw_responses_call_t     call;
    ngx_modelgw_response_stream_t   *response;

    u_char                   *joined;    /* data of several lines */
    ngx_int_t                 rc;        /* NGX_OK: the stream goes on */
    ngx_uint_t                events;

    u_char                   *text;      /* what was written */
    size_t                    len;
    size_t                    size;
    size_t                    borrowed;  /* bytes of it */
    ngx_uint_t                drop;      /* do not collect it */
    ngx_uint_t                broken;    /* a sink that fails */
} answer_t;


static ngx_inline ngx_int_t
answer_write(void *data, u_char *p, size_t len, ngx_uint_t borrowed)
{
    answer_t  *a = data;

    if (a->broken) {
        return NGX_ERROR;
    }

    if (borrowed) {
        a->borrowed += len;
    }

    if (a->drop) {
        a->len += len;
        return NGX_OK;
    }

    if (len > a->size - a->len) {
        a->size = 2 * (a->size + len);
        a->text = realloc(a->text, a->size);

        if (a->text == NULL) {
            abort();
        }
    }

    ngx_memcpy(a->text + a->len, p, len);
    a->len += len;

    return NGX_OK;
}


static ngx_inline void
answer_init(answer_t *a, ngx_pool_t *pool, ngx_uint_t reasoning,
    ngx_uint_t include_usage, size_t max)
{
    ngx_uint_t                   n;
    ngx_modelgw_skip_variant_t  *variants;

    ngx_memzero(a, sizeof(answer_t));

    variants = ngx_modelgw_skip_variants(&n);

    a->pool = pool;
    a->skip = variants[0].skip;

    ngx_str_set(&a->c.model, "\"m\"");
    a->c.created = 1;
    a->c.reasoning = reasoning;
    a->c.include_usage = include_usage;
    a->c.usage = &a->usage;

    ngx_modelgw_usage_init(&a->usage);

    a->out.write = answer_write;
    a->out.data = a;

    a->protocol = NGX_MODELGW_MESSAGES;

    ngx_modelgw_usage_conf(&a->conf, a->protocol, a->skip);
    ngx_modelgw_sse_init(&a->sse, pool, NGX_MODELGW_SSE_MAX_EVENT);
    ngx_modelgw_tape_init(&a->tape, pool, a->skip);

    a->scan = ngx_modelgw_scan_create(pool, &a->conf);
    a->stream = ngx_modelgw_stream_create(pool, &a->c, &a->tape, max, &a->out);

    if (a->scan == NULL || a->stream == NULL) {
        a->rc = NGX_ERROR;
    }
}


/* for a client of the responses API, and an upstream of that protocol */

static ngx_inline void
answer_responses(answer_t *a, ngx_uint_t protocol, size_t max)
{
    a->protocol = protocol;

    a->rs.model = a->c.model;
    a->rs.created = a->c.created;
    a->rs.now = a->c.created + 1;
    a->rs.protocol = protocol;
    a->rs.usage = &a->usage;
    a->rs.call = &a->call;

    ngx_modelgw_usage_conf(&a->conf, protocol, a->skip);

    a->scan = ngx_modelgw_scan_create(a->pool, &a->conf);
    a->response = ngx_modelgw_response_stream_create(a->pool, &a->rs, &a->tape,
                                                     max, &a->out);

    if (a->scan == NULL
        || a->response == NULL
        || ngx_array_init(&a->call.tools, a->pool, 4,
                          sizeof(ngx_modelgw_responses_tool_t))
           != NGX_OK)
    {
        a->rc = NGX_ERROR;
    }
}


static ngx_inline void
answer_tool(answer_t *a, ngx_uint_t kind, const char *upstream,
    const char *space, const char *name)
{
    ngx_modelgw_responses_tool_t  *tool;

    tool = ngx_array_push(&a->call.tools);
    if (tool == NULL) {
        abort();
    }

    tool->kind = kind;
    tool->upstream.data = (u_char *) upstream;
    tool->upstream.len = ngx_strlen(upstream);
    tool->space.data = (u_char *) space;
    tool->space.len = ngx_strlen(space);
    tool->name.data = (u_char *) name;
    tool->name.len = ngx_strlen(name);
}


static ngx_inline void
answer_free(answer_t *a)
{
    free(a->text);
    free(a->joined);

    a->text = NULL;
    a->joined = NULL;
}


/* strict JSON, an object; its usage is merged */

static ngx_inline ngx_int_t
answer_scan(answer_t *a, u_char *p, size_t len)
{
    ngx_modelgw_scan_reset(a->scan);

    if (ngx_modelgw_scan_feed(a->scan, p, len) != NGX_OK
        || ngx_modelgw_scan_done(a->scan) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    (void) ngx_modelgw_usage_merge(&a->usage, a->protocol, a->scan);

    return NGX_OK;
}


static ngx_inline void
answer_event(answer_t *a, ngx_modelgw_sse_event_t *ev)
{
    u_char     *state;
    size_t      lines;
    ngx_str_t   data, line;
    ngx_uint_t  borrowed;

    state = NULL;
    lines = 0;
    borrowed = ev->borrowed;
    ngx_str_null(&data);

    while (ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK) {

        if (lines++ == 0) {
            data = line;
            continue;
        }

        if (lines == 2) {
            free(a->joined);
            a->joined = malloc(ev->raw.len);

            if (a->joined == NULL) {
                abort();
            }

            ngx_memcpy(a->joined, data.data, data.len);
            data.data = a->joined;
            borrowed = 0;
        }

        data.data[data.len++] = LF;
        ngx_memcpy(data.data + data.len, line.data, line.len);
        data.len += line.len;
    }

    if (data.len == 0) {
        return;
    }

    a->events++;

    if (a->protocol == NGX_MODELGW_CHAT
        && data.len == 6 && ngx_memcmp(data.data, "[DONE]", 6) == 0)
    {
        a->rc = ngx_modelgw_response_stream_end(a->response);
        return;
    }

    a->rc = answer_scan(a, data.data, data.len);

    if (a->rc != NGX_OK) {
        return;
    }

    if (a->response) {
        a->rc = ngx_modelgw_response_stream_event(a->response, &data, &ev->name,
                                                  borrowed);

    } else {
        a->rc = ngx_modelgw_stream_event(a->stream, &data, &ev->name, borrowed);
    }
}


/* the next bytes of a stream; they may be freed afterwards */

static ngx_inline ngx_int_t
answer_feed(answer_t *a, u_char *p, size_t len)
{
    u_char                   *last;
    ngx_int_t                 rc;
    ngx_modelgw_sse_event_t   ev;

    last = p + len;

    while (a->rc == NGX_OK) {
        rc = ngx_modelgw_sse_next(&a->sse, &p, last, &ev);

        if (rc == NGX_AGAIN) {
            break;
        }

        if (rc != NGX_OK) {
            a->rc = rc;
            break;
        }

        answer_event(a, &ev);
    }

    return a->rc;
}


static ngx_inline ngx_int_t
answer_end(answer_t *a)
{
    ngx_modelgw_sse_event_t  ev;

    if (a->rc == NGX_OK && ngx_modelgw_sse_rest(&a->sse, &ev) == NGX_OK) {
        answer_event(a, &ev);
    }

    if (a->rc == NGX_OK) {
        a->rc = a->response ? ngx_modelgw_response_stream_end(a->response)
                            : ngx_modelgw_stream_end(a->stream);
    }

    return a->rc;
}


/* a whole stream, in pieces of chunk bytes that are freed */

static ngx_inline ngx_int_t
answer_stream(answer_t *a, const u_char *p, size_t len, size_t chunk)
{
    size_t   at, n;
    u_char  *piece;

    for (at = 0; at < len; at += n) {
        n = ngx_min(chunk, len - at);

        piece = malloc(n);
        if (piece == NULL) {
            abort();
        }

        ngx_memcpy(piece, p + at, n);
        (void) answer_feed(a, piece, n);
        free(piece);
    }

    return answer_end(a);
}


/* a whole answer */

static ngx_inline ngx_int_t
answer_message(answer_t *a, u_char *p, size_t len)
{
    ngx_int_t           rc;
    ngx_modelgw_tape_t  tape;

    a->rc = answer_scan(a, p, len);

    if (a->rc != NGX_OK) {
        return a->rc;
    }

    ngx_modelgw_tape_init(&tape, a->pool, a->skip);

    rc = ngx_modelgw_tape_feed(&tape, p, len);

    if (rc == NGX_OK) {
        rc = ngx_modelgw_tape_done(&tape, p);
    }

    if (rc == NGX_OK) {
        rc = a->response
             ? ngx_modelgw_response(&a->rs, a->pool, &tape, &a->out)
             : ngx_modelgw_completion(&a->c, &tape, &a->out);
    }

    a->rc = rc;

    return a->rc;
}


#endif /* _ANSWER_H_INCLUDED_ */
