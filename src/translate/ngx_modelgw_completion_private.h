
/*
 * What whole answers and streams share: the kinds of content blocks, the
 * meaning of stop reasons, usage as the client sees it; see completion.c.
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
    NGX_MODELGW_COMPLETION_SKIP = 0,     /* unknown to chat */
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
    unsigned              calls:1;       /* tool calls are complete */
    unsigned              refused:1;     /* "refusal" is sent */
    unsigned              limit:1;       /* of tokens: the answer is cut */
} ngx_modelgw_completion_stop_t;


/* events of a stream */

typedef enum {
    NGX_MODELGW_COMPLETION_BLOCK_DELTA = 0,
    NGX_MODELGW_COMPLETION_BLOCK_START,
    NGX_MODELGW_COMPLETION_BLOCK_STOP,
    NGX_MODELGW_COMPLETION_PING,
    NGX_MODELGW_COMPLETION_MESSAGE_START,
    NGX_MODELGW_COMPLETION_MESSAGE_DELTA,
    NGX_MODELGW_COMPLETION_MESSAGE_STOP,
    NGX_MODELGW_COMPLETION_ERROR,
    NGX_MODELGW_COMPLETION_UNKNOWN
} ngx_modelgw_completion_event_e;


/* longer ids are replaced; bytes */
#define NGX_MODELGW_COMPLETION_ID  256


/*
 * The kind of an event, by its type, or by the value of its "event:" line if it
 * has no type.  An error is also known by that or by a member "error".
 */
ngx_modelgw_completion_event_e ngx_modelgw_completion_event(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *event, ngx_str_t *name);

/* The kind of a content block. */
ngx_modelgw_completion_kind_e ngx_modelgw_completion_kind(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *block);

/*
 * Gets the index of the content block that an event is about: 1, or 0 if there
 * is none.
 */
ngx_uint_t ngx_modelgw_completion_index(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *event, ngx_uint_t *index);

/*
 * Gets the text between the quotes of a member: 1, or 0 and an empty text if
 * the member is absent or not a string.
 */
ngx_uint_t ngx_modelgw_completion_string(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *obj, const char *name, ngx_str_t *inside);

/*
 * Gets the id of a message, as the inside of a JSON string, in buf, which has
 * NGX_MODELGW_COMPLETION_ID bytes.
 */
void ngx_modelgw_completion_id(ngx_modelgw_completion_t *c,
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *message, u_char *buf,
    ngx_str_t *id);

/*
 * Gets the bytes of the input of a tool_use block: 1, or 0 and an empty text if
 * it is absent or empty; the client gets "{}" then.
 */
ngx_uint_t ngx_modelgw_completion_input(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *block, ngx_str_t *input);

/* The meaning of a stop reason, which may be NULL or unknown; never NULL. */
ngx_modelgw_completion_stop_t *ngx_modelgw_completion_stop(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node);

/* The finish reason of an answer with ntools tool calls. */
ngx_str_t *ngx_modelgw_completion_finish(ngx_modelgw_completion_stop_t *stop,
    ngx_uint_t ntools);

/* Gets the text of "refusal", as the inside of a JSON string. */
void ngx_modelgw_completion_refusal(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *details, ngx_str_t *text);

/*
 * Writes the members of an entry of "thinking_blocks", without braces.  For a
 * redacted block text is its data; a signature with data NULL is left out.
 */
void ngx_modelgw_completion_thinking(ngx_modelgw_out_t *out,
    ngx_modelgw_completion_kind_e kind, ngx_str_t *text, ngx_str_t *signature);

/* Writes the usage as chat counts it: the prompt includes cached tokens. */
void ngx_modelgw_completion_usage(ngx_modelgw_out_t *out,
    ngx_modelgw_usage_t *usage);


#endif /* _NGX_MODELGW_COMPLETION_PRIVATE_H_INCLUDED_ */
