
/*
 * An upstream's event stream: each event leaves as soon as it is complete, as
 * it came, with the model id mapped back; or translated, by translate.c.
 *
 *     OPEN      events are read and passed on
 *     LAST      response.completed or response.incomplete was read, the call is
 *               settled; some upstreams send "[DONE]" after it, as in chat
 *     COMPLETE  the protocol's last event was read ("[DONE]", message_stop), or
 *               what follows LAST
 *     FAILED    an error event of the upstream was read, ours is emitted; or
 *               response.failed, which is passed on
 *     ENDED     last_buf is emitted, the call is settled
 *     REFUSED   an error event was read before anything was sent: it becomes
 *               the status
 *     BROKEN    the upstream broke off, or sent what is no event of the
 *               protocol: an error event of ours is emitted, or it becomes the
 *               status if nothing was sent
 *     GRACE     all is sent, a timer runs until the unclean end
 *
 *     OPEN -- last event --> COMPLETE -- same call --> ENDED
 *     OPEN -- last event of responses --> LAST
 *     LAST -- any event, end of the upstream --> COMPLETE
 *     OPEN -- error event --> FAILED -- same call --> ENDED
 *     OPEN -- error event, nothing sent --> REFUSED
 *     OPEN -- bad or too long event, end without last event --> BROKEN
 *     BROKEN -- upstream finalized, all sent --> GRACE
 *     BROKEN -- upstream finalized, responses --> ENDED
 *
 * What the upstream sends after OPEN is dropped.  The client's stream ends with
 * the last event, since clients wait for the end and not for the event; the
 * upstream has another moment to end its own, so that its connection can be
 * used again.
 *
 * A BROKEN stream ends without last_buf, and so never looks complete: no last
 * chunk, or RST_STREAM, or a closed connection.  That end comes a moment after
 * the error event: clients that find both at once, as node's fetch does, drop
 * the event.  The call is settled and the upstream's connection closed by then.
 * The request is kept by our bit in r->buffered:
 *
 *     BROKEN    ngx_http_writer() sends what is left, within send_timeout
 *     GRACE     the write event is "delayed" by its timer, as for limit_rate;
 *               then our bit is cleared and ngx_http_writer() finalizes the
 *               request
 *
 * A client that leaves in that time, or a worker that has to stop, ends it as
 * any response that is still being sent.
 *
 * Of responses, response.failed is a last event as any other, after which no
 * client takes the answer for complete.  Codex reads on to the end, and shows
 * an unclean one instead of the message: it is a clean one there.
 *
 * An event is scanned in place, when it is complete: one scanner serves all
 * streams of a worker.  Most events repeat the one before with another text;
 * these are recognized by their bytes and not scanned.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_repeat.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_splice.h"
#include "ngx_modelgw_sse.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_text.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_stream.h"


/* for the upstream to end its answer after the last event, ms */

#define NGX_HTTP_MODELGW_STREAM_LINGER    1000

/* from the error event to the unclean end, ms */

#define NGX_HTTP_MODELGW_STREAM_DELAY     200

/* in r->buffered; no filter of nginx uses this bit there */

#define NGX_HTTP_MODELGW_STREAM_BUFFERED  0x08

/* memory for joined data up to this size is kept for the next event, bytes */

#define NGX_HTTP_MODELGW_STREAM_JOINED    65536


/* what an event is, besides NGX_MODELGW_DOC_* */

#define NGX_HTTP_MODELGW_STREAM_NO_DATA   0x10
#define NGX_HTTP_MODELGW_STREAM_DONE      0x11    /* "[DONE]" */


static ngx_modelgw_scan_t *ngx_http_modelgw_stream_scan(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_uint_t protocol);
static ngx_int_t ngx_http_modelgw_stream_feed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b);
static ngx_int_t ngx_http_modelgw_stream_events(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b, const char **reason);
static ngx_int_t ngx_http_modelgw_stream_repeats(ngx_http_modelgw_ctx_t *ctx,
    u_char **pos, u_char *last);
static ngx_int_t ngx_http_modelgw_stream_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev);
static ngx_int_t ngx_http_modelgw_stream_after_last(
    ngx_http_modelgw_stream_t *st, ngx_modelgw_sse_event_t *ev);
static ngx_int_t ngx_http_modelgw_stream_translate(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev, ngx_str_t *data,
    ngx_uint_t kind);
static ngx_int_t ngx_http_modelgw_stream_pass(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *raw, ngx_modelgw_cut_t *model, ngx_uint_t borrowed);
static ngx_int_t ngx_http_modelgw_stream_read(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data, ngx_uint_t *kind);
static ngx_int_t ngx_http_modelgw_stream_data(ngx_http_modelgw_stream_t *st,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data);
static ngx_int_t ngx_http_modelgw_stream_finished(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *data);
static void ngx_http_modelgw_stream_model(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_cut_t *model);
static ngx_int_t ngx_http_modelgw_stream_break(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason);
static ngx_int_t ngx_http_modelgw_stream_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_stream_begin(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_rest(ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_translate_rest(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_last(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_linger(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_stream_done(ngx_modelgw_sse_event_t *ev);
static void ngx_http_modelgw_stream_grace(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


ngx_int_t
ngx_http_modelgw_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_loc_conf_t   *mlcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    st = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_stream_t));
    if (st == NULL) {
        return NGX_ERROR;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    st->scan = ngx_http_modelgw_stream_scan(mmcf, ctx->call.protocol);
    if (st->scan == NULL) {
        return NGX_ERROR;
    }

    ngx_modelgw_sse_init(&st->sse, r->pool, mlcf->max_event_size);
    ngx_modelgw_repeat_init(&st->repeat, r->pool, mmcf->skip,
                            mlcf->max_event_size);

    st->emit.pool = r->pool;

    ctx->answer.stream = st;
    ctx->answer.usage.events = 1;

    ngx_http_clear_content_length(r);

    if (ctx->call.translate
        && ngx_http_modelgw_translate_stream_init(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_keepalive_init(r, ctx);
}


/* the worker's scanner for events of the protocol; NULL: no memory */

static ngx_modelgw_scan_t *
ngx_http_modelgw_stream_scan(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_uint_t protocol)
{
    ngx_modelgw_scan_t  **scan;

    scan = &ngx_http_modelgw_plan(mmcf->scans, protocol);

    if (*scan == NULL) {
        *scan = ngx_modelgw_scan_make(ngx_cycle->pool,
                                      ngx_http_modelgw_plan(mmcf->plans,
                                                            protocol));
    }

    return *scan;
}


ngx_int_t
ngx_http_modelgw_stream_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t                   rc;
    ngx_uint_t                  last;
    ngx_chain_t                *cl;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    if (st->state == NGX_HTTP_MODELGW_STREAM_GRACE) {
        r->buffered &= ~NGX_HTTP_MODELGW_STREAM_BUFFERED;
        return NGX_OK;
    }

    ngx_http_modelgw_emit_begin(&st->emit, in);

    last = (in && ctx->upstream.rc != NGX_AGAIN);

    for (cl = in; cl; cl = cl->next) {

        if (ngx_http_modelgw_stream_feed(r, ctx, cl->buf) != NGX_OK) {
            return NGX_ERROR;
        }

        if (cl->buf->last_buf) {
            last = 1;
        }
    }

    if (last && ngx_http_modelgw_stream_end(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_stream_begin(r, ctx);

    if ((st->state == NGX_HTTP_MODELGW_STREAM_LAST
         || st->state == NGX_HTTP_MODELGW_STREAM_COMPLETE
         || st->state == NGX_HTTP_MODELGW_STREAM_FAILED)
        && ngx_http_modelgw_stream_last(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_stream_output(r, ctx, in);

    if (st->state == NGX_HTTP_MODELGW_STREAM_BROKEN && rc != NGX_ERROR) {
        ngx_http_modelgw_stream_grace(r, ctx);
    }

    return rc;
}


static ngx_int_t
ngx_http_modelgw_stream_feed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b)
{
    ngx_int_t                   rc;
    const char                 *reason;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    ngx_http_modelgw_emit_at(&st->emit, b);

    /* an upstream that goes on after its last event may do so for ever */

    if (st->state == NGX_HTTP_MODELGW_STREAM_ENDED && b->pos != b->last) {
        ngx_http_modelgw_upstream_stop(r);
    }

    rc = ngx_http_modelgw_stream_events(r, ctx, b, &reason);

    if (rc == NGX_DECLINED) {
        ngx_modelgw_error_nginx(NGX_HTTP_BAD_GATEWAY, 1, &ctx->error);

        rc = ngx_http_modelgw_stream_break(r, ctx, reason);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    /* it may go on after its error event, too */

    if (st->state == NGX_HTTP_MODELGW_STREAM_REFUSED
        && ctx->upstream.rc == NGX_AGAIN)
    {
        ngx_http_modelgw_upstream_stop(r);
    }

    ngx_http_modelgw_emit_read(&st->emit, b);

    return NGX_OK;
}


/*
 * Reads the events in a buf, until one of them ends the stream.
 *     NGX_OK        all were read, or the state is not OPEN any more
 *     NGX_DECLINED  one cannot be passed on, *reason says why
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_events(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b, const char **reason)
{
    u_char                     *p;
    ngx_int_t                   rc;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    p = b->pos;
    st = ctx->answer.stream;

    *reason = "an event is none of the protocol";

    while (st->state == NGX_HTTP_MODELGW_STREAM_OPEN
           || st->state == NGX_HTTP_MODELGW_STREAM_LAST)
    {

        rc = ngx_http_modelgw_stream_repeats(ctx, &p, b->last);
        if (rc != NGX_OK) {
            return rc;
        }

        rc = ngx_modelgw_sse_next(&st->sse, &p, b->last, &ev);

        if (rc == NGX_AGAIN) {
            break;
        }

        if (rc != NGX_OK) {
            *reason = "an event is longer than \"modelgw_max_event_size\"";
            return rc;
        }

        st->emit.hint = b->last - p + st->emit.ahead;

        rc = ngx_http_modelgw_stream_event(r, ctx, &ev);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


/*
 * Passes on the events at *pos, up to last, that repeat the one before except
 * for its text; moves *pos past them.  Returns as _event().
 */

static ngx_int_t
ngx_http_modelgw_stream_repeats(ngx_http_modelgw_ctx_t *ctx, u_char **pos,
    u_char *last)
{
    size_t                       n;
    u_char                      *first;
    ngx_int_t                    rc;
    ngx_buf_t                   *b;
    ngx_modelgw_cut_t            model;
    ngx_http_modelgw_stream_t   *st;
    ngx_modelgw_repeat_event_t   ev;

    st = ctx->answer.stream;

    if (!ngx_modelgw_sse_between(&st->sse)) {
        return NGX_OK;
    }

    n = 0;
    first = *pos;
    rc = NGX_OK;
    model.text = ctx->call.service_json;

    while (rc == NGX_OK
           && ngx_modelgw_repeat_next(&st->repeat, pos, last, &ev) == NGX_OK)
    {
        st->emit.hint = last - *pos + st->emit.ahead;

        n += ev.n;

        if (st->translate) {
            rc = ngx_http_modelgw_translate_repeat(ctx, &ev.text);
            continue;
        }

        model.from = ev.from;
        model.to = ev.to;

        rc = ngx_http_modelgw_stream_pass(ctx, &ev.raw, &model, 1);

        b = st->emit.tail;

        if (rc == NGX_OK && b && b->temporary) {
            n += ngx_modelgw_repeat_copy(&st->repeat, pos, last, b);
        }
    }

    if (*pos != first && st->repeat.number < NGX_MODELGW_REPEAT_HOLES) {
        st->responses.next = st->repeat.value + 1;
    }

    if (n && ctx->money.slot) {
        n = ngx_http_modelgw_stream_deltas(&st->responses, n);
        ngx_http_modelgw_settle_seen(ctx, n);
    }

    return rc;
}


/*
 * Passes an event on, or drops it on purpose; may change the state.
 *     NGX_OK
 *     NGX_DECLINED  it is no event of the protocol
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    ngx_int_t                   rc;
    ngx_str_t                   data;
    ngx_uint_t                  kind;
    ngx_modelgw_cut_t           model;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    if (st->state == NGX_HTTP_MODELGW_STREAM_LAST) {
        return ngx_http_modelgw_stream_after_last(st, ev);
    }

    ngx_modelgw_repeat_forget(&st->repeat);
    st->text.last.data = NULL;

    rc = ngx_http_modelgw_stream_read(ctx, ev, &data, &kind);
    if (rc != NGX_OK) {
        return rc;
    }

    if (st->translate) {
        return ngx_http_modelgw_stream_translate(r, ctx, ev, &data, kind);
    }

    ngx_http_modelgw_stream_model(ctx, ev, &model);

    switch (kind) {

    case NGX_MODELGW_DOC_ERROR:
        return ngx_http_modelgw_stream_error(r, ctx, &data);

    case NGX_MODELGW_DOC_FAILED:
        rc = ngx_http_modelgw_stream_failed(r, ctx, &data);

        if (rc != NGX_DECLINED) {
            return rc;
        }

        break;

    case NGX_MODELGW_DOC_USAGE:
        if (!ctx->call.usage_asked) {
            return NGX_OK;
        }

        break;

    case NGX_MODELGW_DOC_STOP:
        st->state = (ctx->call.protocol == NGX_MODELGW_RESPONSES)
                    ? NGX_HTTP_MODELGW_STREAM_LAST
                    : NGX_HTTP_MODELGW_STREAM_COMPLETE;
        break;

    case NGX_HTTP_MODELGW_STREAM_DONE:
        st->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;
        break;

    case NGX_MODELGW_DOC_OTHER:
    case NGX_MODELGW_DOC_DELTA:
        if (ngx_modelgw_repeat_keep(&st->repeat, ev, &st->text, &model)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        break;

    default: /* NGX_MODELGW_DOC_BEGIN, _ITEM, _DONE,
                NGX_HTTP_MODELGW_STREAM_NO_DATA */
        break;
    }

    return ngx_http_modelgw_stream_pass(ctx, &ev->raw, &model, ev->borrowed);
}


/* passes "[DONE]" on, drops any other event; NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_stream_after_last(ngx_http_modelgw_stream_t *st,
    ngx_modelgw_sse_event_t *ev)
{
    st->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;

    return ngx_http_modelgw_stream_done(ev)
           ? ngx_http_modelgw_emit(&st->emit, ev->raw.data, ev->raw.len,
                                   ev->borrowed)
           : NGX_OK;
}


/* returns as _event() */

static ngx_int_t
ngx_http_modelgw_stream_translate(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev, ngx_str_t *data,
    ngx_uint_t kind)
{
    ngx_int_t  rc;

    switch (kind) {

    case NGX_HTTP_MODELGW_STREAM_NO_DATA:
        return NGX_OK;

    case NGX_HTTP_MODELGW_STREAM_DONE:

        /* some look-alikes of the messages API send it */

        rc = ngx_http_modelgw_translate_end(ctx);
        break;

    default:
        rc = ngx_http_modelgw_translate_event(ctx, ev, data);
        break;
    }

    switch (rc) {

    case NGX_DONE:
        ctx->answer.stream->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;
        return NGX_OK;

    case NGX_ABORT:
        return ngx_http_modelgw_stream_error(r, ctx, data);

    default: /* NGX_OK, NGX_DECLINED, NGX_ERROR */
        return rc;
    }
}


static ngx_int_t
ngx_http_modelgw_stream_pass(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *raw,
    ngx_modelgw_cut_t *model, ngx_uint_t borrowed)
{
    ngx_http_modelgw_emit_t  *em;

    em = &ctx->answer.stream->emit;

    return model->to
           ? ngx_http_modelgw_emit_replaced(em, raw, model, borrowed)
           : ngx_http_modelgw_emit(em, raw->data, raw->len, borrowed);
}


/*
 * Reads an event: *data is its data in one piece, valid until the next event,
 * *kind what it is.  Its usage is merged and its text counted.
 *     NGX_OK
 *     NGX_DECLINED  it is no event of the protocol
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_read(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data, ngx_uint_t *kind)
{
    ngx_uint_t                  protocol;
    ngx_modelgw_scan_t         *scan;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;
    scan = st->scan;
    protocol = ctx->call.protocol;

    ngx_modelgw_scan_reset(scan);

    if (ngx_http_modelgw_stream_data(st, ev, data) != NGX_OK) {
        return NGX_ERROR;
    }

    if ((protocol == NGX_MODELGW_CHAT || st->translate)
        && ngx_http_modelgw_stream_done(ev))
    {
        *kind = NGX_HTTP_MODELGW_STREAM_DONE;
        return NGX_OK;
    }

    /* a comment, or a name without data, or lines of data that are empty:
       nothing but the lines - 1 LFs that join them */

    if (data->len == 0 || data->len < ev->lines) {
        *kind = NGX_HTTP_MODELGW_STREAM_NO_DATA;
        return NGX_OK;
    }

    if (ngx_modelgw_scan_feed(scan, data->data, data->len) != NGX_OK
        || ngx_modelgw_scan_done(scan) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    *kind = ngx_modelgw_usage_merge(&ctx->answer.usage, protocol, scan);

    if (protocol == NGX_MODELGW_RESPONSES) {
        return ngx_http_modelgw_stream_responses(ctx, data, *kind);
    }

    ngx_modelgw_text(&st->text, data->data, data->len);

    ngx_http_modelgw_settle_seen(ctx, st->text.n);

    return (protocol == NGX_MODELGW_CHAT && st->text.finished)
           ? ngx_http_modelgw_stream_finished(ctx, data) : NGX_OK;
}


/* the first line decides, as in clients */

static ngx_uint_t
ngx_http_modelgw_stream_done(ngx_modelgw_sse_event_t *ev)
{
    return ev->data.len == 6 && ngx_memcmp(ev->data.data, "[DONE]", 6) == 0;
}


/*
 * An event's data: one line of it is not copied, several are joined by LF, and
 * valid until the next call.
 *     NGX_OK, NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_http_modelgw_stream_data(ngx_http_modelgw_stream_t *st,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data)
{
    u_char      *p, *state;
    ngx_str_t    line;
    ngx_pool_t  *pool;

    if (ev->lines < 2) {
        *data = ev->data;
        return NGX_OK;
    }

    pool = st->emit.pool;

    if (st->room < ev->raw.len || st->room > NGX_HTTP_MODELGW_STREAM_JOINED) {

        if (st->joined) {
            (void) ngx_pfree(pool, st->joined);
        }

        st->room = 0;
        st->joined = ngx_palloc(pool, 2 * ev->raw.len);
        if (st->joined == NULL) {
            return NGX_ERROR;
        }

        st->room = 2 * ev->raw.len;
    }

    p = st->joined;
    state = NULL;

    while (ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK) {
        p = ngx_cpymem(p, line.data, line.len);
        *p++ = LF;
    }

    data->data = st->joined;
    data->len = p - 1 - st->joined;

    return NGX_OK;
}


/*
 * A choice of a chat call has finished in this event: usage follows if it is
 * the last one.  Calls for several choices have them looked up by index.
 *     NGX_OK, NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_http_modelgw_stream_finished(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_int_t               rc;
    ngx_modelgw_tape_t     *tape;
    ngx_modelgw_choices_t  *choices;

    if (ctx->call.choices == 1) {
        ctx->answer.finishing = 1;
        return NGX_OK;
    }

    rc = ngx_http_modelgw_translate_index(ctx->main, data, &tape);

    if (rc == NGX_OK) {
        choices = &ctx->answer.stream->choices;

        ngx_modelgw_choices_end(choices, tape);

        ctx->answer.finishing = (choices->n >= ctx->call.choices);
    }

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/*
 * What to do in the raw bytes of the event just read: its model id is replaced,
 * or model->to is 0.
 */

static void
ngx_http_modelgw_stream_model(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_cut_t *model)
{
    off_t       from, to, start;
    u_char     *state;
    ngx_str_t   line;

    model->from = 0;
    model->to = 0;
    model->text = ctx->call.service_json;

    if (ngx_modelgw_usage_model(&ctx->answer.usage, ctx->call.protocol,
                                ctx->answer.stream->scan, &from, &to)
        != NGX_OK)
    {
        return;
    }

    /* the data was read in one piece; no token crosses the end of a line */

    state = NULL;

    for (start = 0;
         ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK;
         start += line.len + 1)
    {
        if (to <= start + (off_t) line.len) {
            model->from = from - start + (line.data - ev->raw.data);
            model->to = to - start + (line.data - ev->raw.data);
            return;
        }
    }
}


/* The caller has set ctx->error.  NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_stream_break(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason)
{
    ngx_http_modelgw_stream_t  *st;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "upstream of group \"%V\", model \"%V\": stream cannot be "
                  "passed on: %s", &ngx_http_modelgw_ctx_group(ctx)->name,
                  &ctx->call.upstream_id, reason);

    st = ctx->answer.stream;
    st->state = NGX_HTTP_MODELGW_STREAM_BROKEN;

    if (ctx->upstream.rc == NGX_AGAIN) {
        ngx_http_modelgw_upstream_stop(r);
    }

    /* with nothing sent yet it becomes the status */

    if (ctx->answer.header_held && st->emit.out == NULL) {
        return NGX_OK;
    }

    r->keepalive = 0;

    return ngx_http_modelgw_stream_emit_error(r, ctx);
}


/* the upstream has ended, or was ended; NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_stream_end(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    rc = NGX_OK;
    st = ctx->answer.stream;

    if (st->state == NGX_HTTP_MODELGW_STREAM_LAST) {
        st->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;

        /* LF of a CR LF at the end of the last event may have come alone */

        if (ngx_modelgw_sse_rest(&st->sse, &ev) == NGX_OK
            && ev.raw.len == 1 && ev.raw.data[0] == LF)
        {
            rc = ngx_http_modelgw_emit(&st->emit, ev.raw.data, 1, 0);
        }
    }

    if (st->state == NGX_HTTP_MODELGW_STREAM_OPEN) {
        rc = st->translate ? ngx_http_modelgw_stream_translate_rest(r, ctx)
                           : ngx_http_modelgw_stream_rest(ctx);
    }

    if (rc == NGX_DECLINED) {

        if (ctx->upstream.rc == NGX_HTTP_GATEWAY_TIME_OUT) {
            ngx_modelgw_error_nginx(NGX_HTTP_GATEWAY_TIME_OUT, 1, &ctx->error);

        } else if (st->translate) {
            ngx_modelgw_error_truncated(&ctx->error);

        } else {
            ngx_modelgw_error_nginx(NGX_HTTP_BAD_GATEWAY, 1, &ctx->error);
        }

        rc = ngx_http_modelgw_stream_break(r, ctx,
                                           "it ended before its last event");
    }

    if (rc == NGX_OK && st->state == NGX_HTTP_MODELGW_STREAM_BROKEN) {
        ngx_http_modelgw_stream_begin(r, ctx);
        ngx_http_modelgw_settle(r, ctx);

        if (st->begun
            && ctx->request.endpoint->protocol == NGX_MODELGW_RESPONSES)
        {
            st->state = NGX_HTTP_MODELGW_STREAM_ENDED;
            rc = ngx_http_modelgw_emit_last(&st->emit);
        }
    }

    return rc;
}


/* before the call is settled: its first event may be its last one, too */

static void
ngx_http_modelgw_stream_begin(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    if (st->emit.out && !st->begun) {
        st->begun = 1;

        if (ctx->abort == NULL) {
            ngx_http_modelgw_answered(r, ctx);
        }
    }
}


/*
 * An event without its blank line is none (WHATWG HTML, 9.2.6), except for the
 * last one, which is completed.
 *     NGX_OK        that was it
 *     NGX_DECLINED  the last event has not come
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_rest(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_str_t                   data;
    ngx_uint_t                  kind;
    ngx_modelgw_cut_t           model;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    if (ngx_modelgw_sse_rest(&st->sse, &ev) != NGX_OK) {
        return NGX_DECLINED;
    }

    rc = ngx_http_modelgw_stream_read(ctx, &ev, &data, &kind);
    if (rc != NGX_OK) {
        return rc;
    }

    if (kind != NGX_MODELGW_DOC_STOP && kind != NGX_HTTP_MODELGW_STREAM_DONE) {
        return NGX_DECLINED;
    }

    st->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;

    ngx_http_modelgw_stream_model(ctx, &ev, &model);

    if (ngx_http_modelgw_stream_pass(ctx, &ev.raw, &model, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit(&st->emit, (u_char *) "\n\n", 2, 0);
}


/*
 * The same for a stream that is translated, whose last event may be missing if
 * all that it would end is complete.
 */

static ngx_int_t
ngx_http_modelgw_stream_translate_rest(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    if (ngx_modelgw_sse_rest(&st->sse, &ev) == NGX_OK) {
        rc = ngx_http_modelgw_stream_event(r, ctx, &ev);

        /* one that is cut off is no event: NGX_DECLINED */

        if (rc == NGX_ERROR || st->state != NGX_HTTP_MODELGW_STREAM_OPEN) {
            return rc;
        }
    }

    rc = ngx_http_modelgw_translate_end(ctx);

    if (rc != NGX_DONE) {
        return rc;
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "upstream of group \"%V\", model \"%V\": stream has no "
                  "\"message_stop\"", &ngx_http_modelgw_ctx_group(ctx)->name,
                  &ctx->call.upstream_id);

    st->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;

    return NGX_OK;
}


/*
 * The last event is emitted: settles the call, gives the upstream a moment to
 * end its answer, and ends the client's stream unless the state is LAST.
 *     NGX_OK, NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_http_modelgw_stream_last(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    if (!ctx->answer.complete) {
        ctx->answer.complete = (st->state != NGX_HTTP_MODELGW_STREAM_FAILED);

        ngx_http_modelgw_settle(r, ctx);

        if (ngx_http_modelgw_stream_linger(r) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (st->state == NGX_HTTP_MODELGW_STREAM_LAST) {
        return NGX_OK;
    }

    st->state = NGX_HTTP_MODELGW_STREAM_ENDED;

    return ngx_http_modelgw_emit_last(&st->emit);
}


/* NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_stream_linger(ngx_http_request_t *r)
{
    ngx_http_upstream_t       *u;
    ngx_http_upstream_conf_t  *conf;

    u = r->upstream;

    if (u->length == 0) {
        return NGX_OK;
    }

    conf = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));
    if (conf == NULL) {
        return NGX_ERROR;
    }

    *conf = *u->conf;
    conf->read_timeout = ngx_min(conf->read_timeout,
                                 NGX_HTTP_MODELGW_STREAM_LINGER);
    u->conf = conf;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_stream_output(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t                   rc;
    ngx_str_t                   value;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    if (ctx->answer.header_held) {

        if (st->emit.out == NULL) {
            return (st->state == NGX_HTTP_MODELGW_STREAM_OPEN)
                   ? NGX_OK : ngx_http_modelgw_filter_error(r, ctx);
        }

        /* an nginx in front of this one would collect events */

        ngx_str_set(&value, "no");

        if (ngx_http_modelgw_headers_add(r, "X-Accel-Buffering", &value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        rc = ngx_http_modelgw_filter_header(r, ctx);

        if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
            return rc;
        }
    }

    /* nginx passes NULL to send the rest of the output */

    if (st->emit.out == NULL && st->emit.busy == NULL && in != NULL) {
        return NGX_OK;
    }

    st->passed = ngx_current_msec;

    return ngx_http_modelgw_emit_send(r, &st->emit);
}


/* the state is BROKEN */

static void
ngx_http_modelgw_stream_grace(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_connection_t  *c;

    c = r->connection;

    /* not if it became a status, or the client has left */

    if (ctx->upstream.rc == NGX_AGAIN
        || ctx->answer.mode != NGX_HTTP_MODELGW_STREAM
        || ctx->abort)
    {
        return;
    }

    r->buffered |= NGX_HTTP_MODELGW_STREAM_BUFFERED;

    if (c->buffered) {
        return;
    }

    ctx->answer.stream->state = NGX_HTTP_MODELGW_STREAM_GRACE;

    c->write->delayed = 1;
    ngx_add_timer(c->write, NGX_HTTP_MODELGW_STREAM_DELAY);
}
