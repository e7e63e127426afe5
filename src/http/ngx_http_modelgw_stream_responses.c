
/*
 * Events of a responses stream that is passed on: what is read of them besides
 * usage.
 *
 * Events are numbered, and ours follow the upstream's if it breaks off; they
 * name its response, too.
 *
 * A text comes as deltas, again in the item that is done, and again in the last
 * event.  It is counted once, also where an upstream leaves out the deltas, and
 * where an item begins with all of it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_text.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_stream.h"


static size_t ngx_http_modelgw_stream_again(ngx_http_modelgw_responses_t *rs,
    size_t n);
static size_t ngx_http_modelgw_stream_items(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *data, ngx_uint_t part, ngx_uint_t done);


ngx_int_t
ngx_http_modelgw_stream_responses(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data,
    ngx_uint_t kind)
{
    size_t                         text;
    ngx_modelgw_scan_value_t      *number, *id;
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_responses_t  *rs;

    st = ctx->answer.stream;
    rs = &st->responses;

    number = ngx_modelgw_usage_part(&ctx->answer.usage, st->scan,
                                    NGX_MODELGW_PART_SEQUENCE);

    if (number->type != NGX_MODELGW_SCAN_ABSENT) {
        rs->next = ngx_atoi(number->text, number->len) + 1;
    }

    id = ngx_modelgw_usage_part(&ctx->answer.usage, st->scan,
                                NGX_MODELGW_PART_ID);

    if (rs->id.len == 0 && id->len && id->len <= NGX_MODELGW_SCAN_TEXT) {

        rs->id.data = ngx_pnalloc(st->emit.pool, id->len);
        if (rs->id.data == NULL) {
            return NGX_ERROR;
        }

        rs->id.len = id->len;
        ngx_memcpy(rs->id.data, id->text, id->len);
    }

    ngx_memzero(&st->text, sizeof(ngx_modelgw_text_t));

    if (kind != NGX_MODELGW_DOC_OTHER && kind != NGX_MODELGW_DOC_ERROR
        && kind != NGX_MODELGW_DOC_FAILED)
    {
        rs->begun = 1;
    }

    switch (kind) {

    case NGX_MODELGW_DOC_DELTA:
        ngx_modelgw_text(&st->text, data->data, data->len);

        if (number->type != NGX_MODELGW_SCAN_ABSENT) {
            st->text.number.data = data->data + number->from;
            st->text.number.len = number->to - number->from;
        }

        ctx->answer.finishing = 0;

        text = ngx_http_modelgw_stream_deltas(rs, st->text.n);
        break;

    case NGX_MODELGW_DOC_BEGIN:
        ctx->answer.finishing = 0;

        text = ngx_http_modelgw_stream_items(ctx, data, NGX_MODELGW_PART_ITEM,
                                             0);
        rs->ahead += text;
        rs->text += text;
        break;

    case NGX_MODELGW_DOC_DONE:
        ctx->answer.finishing = 1;
        return NGX_OK;

    case NGX_MODELGW_DOC_ITEM:
        ctx->answer.finishing = 1;
        rs->items += ngx_http_modelgw_stream_items(ctx, data,
                                                   NGX_MODELGW_PART_ITEM, 1);
        text = ngx_http_modelgw_stream_again(rs, rs->items);
        break;

    case NGX_MODELGW_DOC_STOP:
    case NGX_MODELGW_DOC_FAILED:
        text = ngx_http_modelgw_stream_items(ctx, data,
                                             NGX_MODELGW_PART_OUTPUT, 1);
        text = ngx_http_modelgw_stream_again(rs, text);
        break;

    default:
        return NGX_OK;
    }

    ngx_http_modelgw_settle_seen(ctx, text);

    return NGX_OK;
}


size_t
ngx_http_modelgw_stream_deltas(ngx_http_modelgw_responses_t *rs, size_t n)
{
    size_t  known;

    known = ngx_min(n, rs->ahead);

    rs->ahead -= known;
    rs->text += n - known;

    return n - known;
}


/*
 * The items so far have n bytes of text: what came as deltas comes again, or
 * only there.  Returns how many of them are new, and counts these.
 */

static size_t
ngx_http_modelgw_stream_again(ngx_http_modelgw_responses_t *rs, size_t n)
{
    n -= ngx_min(n, rs->text);

    rs->text += n;
    rs->begun |= (n != 0);

    /* an item that is done has no more deltas, those beside it may have */

    rs->ahead = ngx_min(rs->ahead, rs->text - rs->items);

    return n;
}


/* bytes of text in the items of an event */

static size_t
ngx_http_modelgw_stream_items(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data,
    ngx_uint_t part, ngx_uint_t done)
{
    ngx_modelgw_scan_value_t  *v;

    if (ctx->money.slot == NULL) {
        return 0;
    }

    v = ngx_modelgw_usage_part(&ctx->answer.usage, ctx->answer.stream->scan,
                               part);

    return (v->type == NGX_MODELGW_SCAN_ABSENT)
           ? 0 : ngx_modelgw_text_items(data->data + v->from, v->to - v->from,
                                        done);
}
