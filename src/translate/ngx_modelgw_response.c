
/*
 * Answers of the responses API: what both readers, of messages and of chat
 * answers, have in common.  The readers are in response_messages.c and
 * response_chat.c, what they report to in response_write.c.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_response_private.h"


static ngx_int_t ngx_modelgw_response_init(ngx_modelgw_response_stream_t *st,
    ngx_pool_t *pool, ngx_modelgw_response_t *rs, ngx_modelgw_tape_t *tape,
    size_t max, ngx_uint_t events, ngx_modelgw_out_t *out);


ngx_int_t
ngx_modelgw_response(ngx_modelgw_response_t *rs, ngx_pool_t *pool,
    ngx_modelgw_tape_t *tape, ngx_modelgw_out_t *out)
{
    ngx_modelgw_response_stream_t  st;

    if (ngx_modelgw_response_init(&st, pool, rs, tape, NGX_MAX_SIZE_T_VALUE, 0,
                                  out)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return st.reader->whole(&st, ngx_modelgw_tape_root(tape));
}


ngx_modelgw_response_stream_t *
ngx_modelgw_response_stream_create(ngx_pool_t *pool,
    ngx_modelgw_response_t *rs, ngx_modelgw_tape_t *tape, size_t max,
    ngx_modelgw_out_t *out)
{
    ngx_modelgw_response_stream_t  *st;

    st = ngx_palloc(pool, sizeof(ngx_modelgw_response_stream_t));
    if (st == NULL) {
        return NULL;
    }

    if (ngx_modelgw_response_init(st, pool, rs, tape, max, 1, out) != NGX_OK) {
        return NULL;
    }

    return st;
}


static ngx_int_t
ngx_modelgw_response_init(ngx_modelgw_response_stream_t *st, ngx_pool_t *pool,
    ngx_modelgw_response_t *rs, ngx_modelgw_tape_t *tape, size_t max,
    ngx_uint_t events, ngx_modelgw_out_t *out)
{
    ngx_memzero(st, sizeof(ngx_modelgw_response_stream_t));

    st->tape = tape;
    st->reader = (rs->protocol == NGX_MODELGW_CHAT)
                 ? &ngx_modelgw_response_chat : &ngx_modelgw_response_messages;

    if (ngx_modelgw_response_write_init(&st->write, rs, pool, tape->skip, max,
                                        events, out)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return st->reader->init(st);
}


ngx_int_t
ngx_modelgw_response_stream_event(ngx_modelgw_response_stream_t *st,
    ngx_str_t *data, ngx_str_t *name, ngx_uint_t borrowed)
{
    ngx_int_t  rc;

    st->text = NULL;

    if (ngx_modelgw_response_write_room(&st->write, data->len) != NGX_OK) {
        return NGX_DECLINED;
    }

    ngx_modelgw_tape_reset(st->tape);

    rc = ngx_modelgw_tape_feed(st->tape, data->data, data->len);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_modelgw_tape_done(st->tape, data->data) != NGX_OK) {
        return NGX_DECLINED;
    }

    st->write.borrowed = borrowed;

    return st->reader->event(st, ngx_modelgw_tape_root(st->tape), name);
}


u_char *
ngx_modelgw_response_stream_text(ngx_modelgw_response_stream_t *st)
{
    return st->text;
}


ngx_int_t
ngx_modelgw_response_stream_repeat(ngx_modelgw_response_stream_t *st,
    ngx_str_t *text, ngx_uint_t borrowed)
{
    if (ngx_modelgw_response_write_room(&st->write, text->len) != NGX_OK) {
        return NGX_DECLINED;
    }

    st->write.borrowed = borrowed;

    return st->handler(&st->write, st->block, text);
}


ngx_int_t
ngx_modelgw_response_delta(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_response_text_pt handler, ngx_modelgw_response_block_t *block,
    ngx_str_t *text)
{
    st->handler = handler;
    st->block = block;
    st->text = text->len ? text->data : NULL;

    return handler(&st->write, block, text);
}


ngx_int_t
ngx_modelgw_response_stream_end(ngx_modelgw_response_stream_t *st)
{
    return st->reader->end(st);
}


void
ngx_modelgw_response_stream_ping(ngx_modelgw_response_stream_t *st)
{
    ngx_modelgw_response_write_ping(&st->write);
}


void
ngx_modelgw_response_stream_error(ngx_modelgw_response_stream_t *st,
    ngx_str_t *code, ngx_str_t *message)
{
    ngx_modelgw_response_write_error(&st->write, code, message);
}


ngx_int_t
ngx_modelgw_response_error(ngx_modelgw_response_t *rs, ngx_pool_t *pool,
    ngx_str_t *id, uint64_t seq, ngx_str_t *code, ngx_str_t *message,
    ngx_modelgw_out_t *out)
{
    ngx_modelgw_responses_call_t  call;
    ngx_modelgw_response_write_t  w;

    ngx_memzero(&call, sizeof(ngx_modelgw_responses_call_t));

    rs->call = &call;

    /* the events of its start were another's, if there were any */

    if (ngx_modelgw_response_write_init(&w, rs, pool, NULL, 0, seq == 0, out)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_response_write_start(&w, id);

    w.events = 1;
    w.seq += seq;

    ngx_modelgw_response_write_error(&w, code, message);

    return NGX_OK;
}
