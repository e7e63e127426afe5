
/*
 * Thinking that comes back.
 *
 * It was sealed for the client, which sends it with the conversation: "mgw1."
 * and the upstream's blocks as base64url.  The seal is no secret and no proof,
 * it is the client's to change.  So only blocks that can be nothing but
 * thinking are taken, byte for byte, since the upstream has signed them.  What
 * is broken, or was sealed by another vendor, is dropped without a word: users
 * change models in mid-conversation.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_responses_private.h"


#define NGX_MODELGW_RESPONSES_SEAL_MAX  (8 * 1024 * 1024)   /* bytes */


static ngx_int_t ngx_modelgw_responses_unseal_index(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_tape_t **tape, ngx_str_t *doc);
static ngx_uint_t ngx_modelgw_responses_unseal_check(
    ngx_modelgw_tape_t *tape);
static ngx_uint_t ngx_modelgw_responses_unseal_block(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *block);


ngx_int_t
ngx_modelgw_responses_unseal(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_tape_t **tape, ngx_str_t *text, ngx_str_t *doc)
{
    u_char              *p;
    size_t               prefix;
    ngx_int_t            rc;
    ngx_str_t            blocks;
    ngx_modelgw_node_t  *list;

    /* the scanner wants an object */

    static u_char  before[] = "{\"a\":";

    prefix = sizeof(NGX_MODELGW_RESPONSES_SEAL) - 1;

    if (text->len < prefix
        || text->len > NGX_MODELGW_RESPONSES_SEAL_MAX
        || ngx_memcmp(text->data, NGX_MODELGW_RESPONSES_SEAL, prefix) != 0)
    {
        return NGX_DECLINED;
    }

    text->data += prefix;
    text->len -= prefix;

    p = ngx_pnalloc(w->rq->pool, sizeof(before)
                                 + ngx_base64_decoded_length(text->len));
    if (p == NULL) {
        return NGX_ERROR;
    }

    doc->data = p;
    blocks.data = ngx_cpymem(p, before, sizeof(before) - 1);

    if (ngx_decode_base64url(&blocks, text) != NGX_OK) {
        return NGX_DECLINED;
    }

    p = blocks.data + blocks.len;
    *p++ = '}';
    doc->len = p - doc->data;

    rc = ngx_modelgw_responses_unseal_index(w, tape, doc);

    if (rc != NGX_OK) {
        return rc;
    }

    if (!ngx_modelgw_responses_unseal_check(*tape)) {
        return NGX_DECLINED;
    }

    list = &ngx_modelgw_tape_root(*tape)[2];
    ngx_modelgw_tape_inside(*tape, list, doc);

    return NGX_OK;
}


/* NGX_OK, NGX_DECLINED (not JSON), NGX_ERROR (no memory) */

static ngx_int_t
ngx_modelgw_responses_unseal_index(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_tape_t **tape, ngx_str_t *doc)
{
    ngx_int_t            rc;
    ngx_modelgw_tape_t  *t;

    rc = ngx_modelgw_request_call_check(w, doc);

    if (rc != NGX_OK) {
        return rc;
    }

    t = *tape;

    if (t == NULL) {
        t = ngx_pcalloc(w->rq->pool, sizeof(ngx_modelgw_tape_t));
        if (t == NULL) {
            return NGX_ERROR;
        }

        ngx_modelgw_tape_init(t, w->rq->pool, w->rq->skip);
        *tape = t;

    } else {
        ngx_modelgw_tape_reset(t);
    }

    rc = ngx_modelgw_tape_feed(t, doc->data, doc->len);

    return (rc == NGX_OK) ? ngx_modelgw_tape_done(t, doc->data) : rc;
}


/* whether the document is {"a":[...]}, and has nothing but thinking */

static ngx_uint_t
ngx_modelgw_responses_unseal_check(ngx_modelgw_tape_t *tape)
{
    ngx_modelgw_node_t  *root, *list, *block;

    root = ngx_modelgw_tape_root(tape);
    list = &root[2];

    if (root->count != 1
        || list->type != NGX_MODELGW_TAPE_ARRAY || list->count == 0)
    {
        return 0;
    }

    for (block = ngx_modelgw_tape_first(tape, list);
         block;
         block = ngx_modelgw_tape_next(tape, list, block))
    {
        if (!ngx_modelgw_responses_unseal_block(tape, block)) {
            return 0;
        }
    }

    return 1;
}


/*
 * A type that is given twice could be another one upstream; unsigned thinking
 * would be refused there.  Thinking has no breakpoint of the prompt cache: one
 * that is hidden in a seal would not be seen by what prices the call.
 */

static ngx_uint_t
ngx_modelgw_responses_unseal_block(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *block)
{
    ngx_uint_t           types;
    const char          *proof;
    ngx_modelgw_node_t  *name, *value;

    types = 0;
    proof = NULL;

    if (block->type != NGX_MODELGW_TAPE_OBJECT) {
        return 0;
    }

    for (name = ngx_modelgw_tape_first(tape, block);
         name;
         name = ngx_modelgw_tape_next(tape, block, value))
    {
        value = ngx_modelgw_tape_next(tape, block, name);

        if (ngx_modelgw_tape_is(tape, name, "cache_control")) {
            return 0;
        }

        if (!ngx_modelgw_tape_is(tape, name, "type")) {
            continue;
        }

        types++;

        if (ngx_modelgw_tape_is(tape, value, "thinking")) {
            proof = "signature";

        } else if (ngx_modelgw_tape_is(tape, value, "redacted_thinking")) {
            proof = "data";
        }
    }

    if (types != 1 || proof == NULL) {
        return 0;
    }

    value = ngx_modelgw_tape_member(tape, block, proof);

    return ngx_modelgw_request_string(value)
           && !ngx_modelgw_tape_blank(tape, value);
}
