
/*
 * Content blocks of a messages stream.  The upstream numbers blocks of all
 * kinds together and may send deltas of several in turns; the client wants one
 * content, one reasoning and tool calls that are numbered from 0.  So each
 * block has a state, found by the upstream's index:
 *
 *     (none)     only text is taken for it: some upstreams announce no blocks
 *     TEXT       text; stays so behind its stop
 *     THINKING   reasoning; with NGX_MODELGW_REASONING_FULL it is kept, too,
 *                and given as one entry of "thinking_blocks" at its stop
 *     REDACTED   such an entry at its start, or nothing
 *     TOOL       a call; without arguments until its stop it gets those of its
 *                start, or "{}"
 *     SKIP       nothing of it is shown: the upstream's own tools, what is not
 *                known, and what has stopped
 *
 *     (none) -- start --> TEXT | THINKING | REDACTED | TOOL | SKIP
 *     THINKING, TOOL -- stop, message_stop --> SKIP
 *     any -- start of the same index --> stop, then as from (none)
 *
 * Pieces of a tool's input are never looked at: they end anywhere, and the
 * client puts them together.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_stream_write.h"


/* a type of delta: the member with its text, the kind of block it is for */

typedef struct {
    const char                     *type;
    const char                     *member;
    ngx_modelgw_completion_kind_e   kind;
    ngx_modelgw_chunk_text_pt       handler;
} ngx_modelgw_chunk_block_delta_t;


static ngx_int_t ngx_modelgw_chunk_block_keep(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_modelgw_node_t *content);
static ngx_int_t ngx_modelgw_chunk_block_keep_text(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text);
static void ngx_modelgw_chunk_block_open(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_modelgw_node_t *content);
static void ngx_modelgw_chunk_block_close(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_uint_t complete);
static ngx_int_t ngx_modelgw_chunk_block_text(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text);
static ngx_int_t ngx_modelgw_chunk_block_thinking(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text);
static ngx_int_t ngx_modelgw_chunk_block_signature(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text);
static ngx_int_t ngx_modelgw_chunk_block_args(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text);
static ngx_modelgw_chunk_block_t *ngx_modelgw_chunk_block_find(
    ngx_modelgw_chunk_t *ch, ngx_uint_t index);
static ngx_uint_t ngx_modelgw_chunk_block_index(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event, ngx_uint_t *index);


static ngx_modelgw_chunk_block_delta_t  ngx_modelgw_chunk_block_deltas[] = {

    { "text_delta", "text", NGX_MODELGW_COMPLETION_TEXT,
      ngx_modelgw_chunk_block_text },

    { "input_json_delta", "partial_json", NGX_MODELGW_COMPLETION_TOOL,
      ngx_modelgw_chunk_block_args },

    { "thinking_delta", "thinking", NGX_MODELGW_COMPLETION_THINKING,
      ngx_modelgw_chunk_block_thinking },

    { "signature_delta", "signature", NGX_MODELGW_COMPLETION_THINKING,
      ngx_modelgw_chunk_block_signature },

    { NULL, NULL, NGX_MODELGW_COMPLETION_SKIP, NULL }
};


static ngx_str_t  ngx_modelgw_chunk_block_content =
    ngx_string("{\"content\":\"");
static ngx_str_t  ngx_modelgw_chunk_block_reasoning =
    ngx_string("{\"reasoning_content\":\"");
static ngx_str_t  ngx_modelgw_chunk_block_nothing = ngx_string("{}");


/* what can go wrong goes first: of a refused block nothing is written */

ngx_int_t
ngx_modelgw_chunk_block_start(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event)
{
    ngx_int_t                   rc;
    ngx_str_t                   text;
    ngx_modelgw_node_t         *content;
    ngx_modelgw_chunk_block_t  *old, block;

    ngx_memzero(&block, sizeof(ngx_modelgw_chunk_block_t));

    if (!ngx_modelgw_chunk_block_index(ch, event, &block.index)
        || ch->nstarts++ == NGX_MODELGW_CHUNK_MAX_BLOCKS)
    {
        return NGX_DECLINED;
    }

    content = ngx_modelgw_tape_member(ch->tape, event, "content_block");
    block.kind = ngx_modelgw_completion_kind(ch->tape, content);

    if (block.kind == NGX_MODELGW_COMPLETION_TOOL
        && (!ngx_modelgw_completion_string(ch->tape, content, "id", &text)
            || !ngx_modelgw_completion_string(ch->tape, content, "name",
                                              &text)))
    {
        return NGX_DECLINED;
    }

    rc = ngx_modelgw_chunk_block_keep(ch, &block, content);
    if (rc != NGX_OK) {
        return rc;
    }

    old = ngx_modelgw_chunk_block_find(ch, block.index);

    if (old) {
        ngx_modelgw_chunk_block_close(ch, old, 1);

    } else {
        old = ngx_array_push(&ch->blocks);
        if (old == NULL) {
            return NGX_ERROR;
        }
    }

    *old = block;

    ngx_modelgw_chunk_block_open(ch, old, content);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_chunk_block_delta(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                         text;
    ngx_uint_t                        index;
    ngx_modelgw_node_t               *delta, *type;
    ngx_modelgw_chunk_block_t        *block;
    ngx_modelgw_chunk_block_delta_t  *d;

    if (!ngx_modelgw_chunk_block_index(ch, event, &index)) {
        return NGX_DECLINED;
    }

    delta = ngx_modelgw_tape_member(ch->tape, event, "delta");
    type = ngx_modelgw_tape_member(ch->tape, delta, "type");

    for (d = ngx_modelgw_chunk_block_deltas; d->type; d++) {
        if (ngx_modelgw_tape_is(ch->tape, type, d->type)) {
            break;
        }
    }

    block = ngx_modelgw_chunk_block_find(ch, index);

    if (d->kind != (block ? block->kind : NGX_MODELGW_COMPLETION_TEXT)
        || d->handler == NULL)
    {
        return NGX_OK;
    }

    (void) ngx_modelgw_completion_string(ch->tape, delta, d->member, &text);

    ch->handler = d->handler;
    ch->block = block;
    ch->text = text.data;

    return text.len ? d->handler(ch, block, &text) : NGX_OK;
}


ngx_int_t
ngx_modelgw_chunk_block_stop(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event)
{
    ngx_uint_t                  index;
    ngx_modelgw_chunk_block_t  *block;

    if (!ngx_modelgw_chunk_block_index(ch, event, &index)) {
        return NGX_DECLINED;
    }

    block = ngx_modelgw_chunk_block_find(ch, index);

    if (block) {
        ngx_modelgw_chunk_block_close(ch, block, 1);
    }

    return NGX_OK;
}


void
ngx_modelgw_chunk_block_end(ngx_modelgw_chunk_t *ch, ngx_uint_t complete)
{
    ngx_uint_t                  i;
    ngx_modelgw_chunk_block_t  *block;

    block = ch->blocks.elts;

    for (i = 0; i < ch->blocks.nelts; i++) {
        ngx_modelgw_chunk_block_close(ch, &block[i], complete);
    }
}


/* what the start of a block brings and its stop needs */

static ngx_int_t
ngx_modelgw_chunk_block_keep(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_modelgw_node_t *content)
{
    ngx_int_t   rc;
    ngx_str_t   text;

    switch (block->kind) {

    case NGX_MODELGW_COMPLETION_TOOL:
        if (!ngx_modelgw_completion_input(ch->tape, content, &text)) {
            return NGX_OK;
        }

        return ngx_modelgw_chunk_block_keep_text(ch, block, &text);

    case NGX_MODELGW_COMPLETION_THINKING:
        if (ch->c->reasoning != NGX_MODELGW_REASONING_FULL) {
            return NGX_OK;
        }

        (void) ngx_modelgw_completion_string(ch->tape, content, "thinking",
                                             &text);

        rc = ngx_modelgw_chunk_block_keep_text(ch, block, &text);

        if (rc != NGX_OK
            || !ngx_modelgw_completion_string(ch->tape, content, "signature",
                                              &text))
        {
            return rc;
        }

        return ngx_modelgw_chunk_keep(ch, &block->kept->signature, &text);

    default: /* TEXT, REDACTED, SKIP */
        return NGX_OK;
    }
}


static ngx_int_t
ngx_modelgw_chunk_block_keep_text(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text)
{
    block->kept = ngx_modelgw_chunk_keep_get(ch);
    if (block->kept == NULL) {
        return NGX_ERROR;
    }

    return ngx_modelgw_chunk_keep(ch, &block->kept->text, text);
}


static void
ngx_modelgw_chunk_block_open(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_modelgw_node_t *content)
{
    ngx_str_t  id, text, none;

    switch (block->kind) {

    case NGX_MODELGW_COMPLETION_TEXT:
        if (ngx_modelgw_completion_string(ch->tape, content, "text", &text)
            && text.len)
        {
            ngx_modelgw_chunk_write_string(ch,
                                     &ngx_modelgw_chunk_block_content, &text);
        }

        break;

    case NGX_MODELGW_COMPLETION_THINKING:
        if (ch->c->reasoning != NGX_MODELGW_REASONING_OFF
            && ngx_modelgw_completion_string(ch->tape, content, "thinking",
                                             &text)
            && text.len)
        {
            ngx_modelgw_chunk_write_string(ch,
                                   &ngx_modelgw_chunk_block_reasoning, &text);
        }

        break;

    case NGX_MODELGW_COMPLETION_TOOL:
        (void) ngx_modelgw_completion_string(ch->tape, content, "id", &id);
        (void) ngx_modelgw_completion_string(ch->tape, content, "name",
                                             &text);

        block->tool = ch->ntools++;
        ngx_modelgw_chunk_write_tool(ch, block->tool, &id, &text);
        break;

    case NGX_MODELGW_COMPLETION_REDACTED:
        if (ch->c->reasoning == NGX_MODELGW_REASONING_FULL) {
            (void) ngx_modelgw_completion_string(ch->tape, content, "data",
                                                 &text);
            ngx_str_null(&none);
            ngx_modelgw_chunk_write_thinking(ch, block, &text, &none);
        }

        break;

    default: /* SKIP */
        break;
    }
}


static void
ngx_modelgw_chunk_block_close(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_uint_t complete)
{
    ngx_modelgw_chunk_kept_t  *kept;

    kept = block->kept;

    if (block->kind == NGX_MODELGW_COMPLETION_TEXT) {
        return;
    }

    if (block->kind == NGX_MODELGW_COMPLETION_TOOL
        && !block->args
        && (kept || complete))
    {
        ngx_modelgw_chunk_write_args(ch, block->tool,
                                     kept ? &kept->text.text
                                          : &ngx_modelgw_chunk_block_nothing,
                                     1);
    }

    if (block->kind == NGX_MODELGW_COMPLETION_THINKING && kept) {
        ngx_modelgw_chunk_write_thinking(ch, block, &kept->text.text,
                                         &kept->signature.text);
    }

    if (kept) {
        ngx_modelgw_chunk_keep_put(ch, kept);
        block->kept = NULL;
    }

    block->kind = NGX_MODELGW_COMPLETION_SKIP;
}


static ngx_int_t
ngx_modelgw_chunk_block_text(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text)
{
    ngx_modelgw_chunk_write_string(ch, &ngx_modelgw_chunk_block_content, text);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_chunk_block_thinking(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text)
{
    ngx_int_t  rc;

    if (block->kept) {
        rc = ngx_modelgw_chunk_keep(ch, &block->kept->text, text);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (ch->c->reasoning != NGX_MODELGW_REASONING_OFF) {
        ngx_modelgw_chunk_write_string(ch, &ngx_modelgw_chunk_block_reasoning,
                                       text);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_chunk_block_signature(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text)
{
    if (block->kept == NULL) {
        return NGX_OK;
    }

    return ngx_modelgw_chunk_keep(ch, &block->kept->signature, text);
}


static ngx_int_t
ngx_modelgw_chunk_block_args(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text)
{
    block->args = 1;

    ngx_modelgw_chunk_write_args(ch, block->tool, text, 0);

    return NGX_OK;
}


/* from the last one on: it is nearly always the one that is meant */

static ngx_modelgw_chunk_block_t *
ngx_modelgw_chunk_block_find(ngx_modelgw_chunk_t *ch, ngx_uint_t index)
{
    ngx_uint_t                  i;
    ngx_modelgw_chunk_block_t  *block;

    block = ch->blocks.elts;

    for (i = ch->blocks.nelts; i > 0; i--) {
        if (block[i - 1].index == index) {
            return &block[i - 1];
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_modelgw_chunk_block_index(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event, ngx_uint_t *index)
{
    return ngx_modelgw_tape_count(ch->tape,
                      ngx_modelgw_tape_member(ch->tape, event, "index"),
                      index);
}
