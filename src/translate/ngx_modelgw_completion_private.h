
/*
 * What whole answers (completion.c) and streams (chunk.c) share, so that both
 * say the same about the same message: the kinds of content blocks, what a stop
 * reason means, usage as the client sees it; see completion_parts.c.
 */


#ifndef _NGX_MODELGW_COMPLETION_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_COMPLETION_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_usage.h"


typedef enum {
    NGX_MODELGW_COMPLETION_SKIP = 0,     /* nothing that chat knows */
    NGX_MODELGW_COMPLETION_TEXT,
    NGX_MODELGW_COMPLETION_THINKING,
    NGX_MODELGW_COMPLETION_REDACTED,
    NGX_MODELGW_COMPLETION_TOOL
} ngx_modelgw_completion_kind_e;


/* a stop reason, and the finish reasons it becomes */

typedef struct {
    const char           *name;
    ngx_str_t             plain;         /* without tool calls */
    ngx_str_t             tools;         /* with them */
    unsigned              calls:1;       /* tool calls are whole, and meant */
    unsigned              refused:1;     /* there is a text about it */
} ngx_modelgw_completion_stop_t;


/* ids longer than this are not the upstream's */
#define NGX_MODELGW_COMPLETION_ID  256


/* The kind of a content block. */
ngx_modelgw_completion_kind_e ngx_modelgw_completion_kind(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *block);

/*
 * What is between the quotes of the object's member of that name; empty, and
 * the return value 0, if it is absent or no string.
 */
ngx_uint_t ngx_modelgw_completion_string(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *obj, const char *name, ngx_str_t *inside);

/*
 * The message's id, as the inside of a JSON string; buf, of
 * NGX_MODELGW_COMPLETION_ID bytes, holds it.
 */
void ngx_modelgw_completion_id(ngx_modelgw_completion_t *c,
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *message, u_char *buf,
    ngx_str_t *id);

/*
 * The bytes of a tool_use block's input; empty, and the return value 0, if
 * there is none or nothing in it: then "{}" is what the client gets.
 */
ngx_uint_t ngx_modelgw_completion_input(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *block, ngx_str_t *input);

/*
 * What the stop reason means; node may be NULL, or a reason that is not known.
 */
ngx_modelgw_completion_stop_t *ngx_modelgw_completion_stop(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node);

/* The finish reason of an answer with so many tool calls. */
ngx_str_t *ngx_modelgw_completion_finish(ngx_modelgw_completion_stop_t *stop,
    ngx_uint_t ntools);

/* The text about a refusal, as the inside of a JSON string. */
void ngx_modelgw_completion_refusal(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *details, ngx_str_t *text);

/*
 * Writes the members of an entry of "thinking_blocks", without braces; text is
 * the data of a redacted block; a signature without data is left out.
 */
void ngx_modelgw_completion_thinking(ngx_modelgw_out_t *out,
    ngx_modelgw_completion_kind_e kind, ngx_str_t *text, ngx_str_t *signature);

/* Writes the usage as chat counts it. */
void ngx_modelgw_completion_usage(ngx_modelgw_out_t *out,
    ngx_modelgw_usage_t *usage);


#endif /* _NGX_MODELGW_COMPLETION_PRIVATE_H_INCLUDED_ */
