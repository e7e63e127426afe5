
/*
 * What the files of the request codec share: request.c takes the steps and
 * writes it all, fields.c reads the top level, tools.c, choice.c, thinking.c,
 * reasoning.c and sampling.c know their fields, turns.c and what is below it
 * know the messages.  First everything is read, decided and refused, then
 * everything is written: no byte is written of a request that is refused.
 */


#ifndef _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request.h"
#include "ngx_modelgw_scan.h"


#define ngx_modelgw_request_member(rq, obj, name)                             \
    ngx_modelgw_tape_member((rq)->tape, obj, name)

/* an optional member that is null is not given */

#define ngx_modelgw_request_absent(node)                                      \
    ((node) == NULL || (node)->type == NGX_MODELGW_TAPE_NULL)

#define ngx_modelgw_request_string(node)                                      \
    ((node) != NULL && (node)->type == NGX_MODELGW_TAPE_STRING)


/*
 * A block of a turn or of "system", as it will be written.  What value and
 * name are depends on its kind (text: as the inside of a JSON string, written
 * as it is):
 *
 *     TEXT         text
 *     IMAGE        text, see source
 *     DOCUMENT     the same; name is its title, if it has one
 *     THINKING     text; name is the signature
 *     REDACTED     text
 *     TOOL_USE     the input, a JSON object; name is the tool's; id
 *     TOOL_RESULT  text, unless content has blocks; id
 */

enum {
    NGX_MODELGW_BLOCK_TEXT = 0,
    NGX_MODELGW_BLOCK_IMAGE,
    NGX_MODELGW_BLOCK_DOCUMENT,
    NGX_MODELGW_BLOCK_THINKING,
    NGX_MODELGW_BLOCK_REDACTED,
    NGX_MODELGW_BLOCK_TOOL_USE,
    NGX_MODELGW_BLOCK_TOOL_RESULT
};


/* of an image or a document: where value came from */

enum {
    NGX_MODELGW_SOURCE_URL = 0,
    NGX_MODELGW_SOURCE_BASE64,
    NGX_MODELGW_SOURCE_PLAIN             /* value is to be escaped */
};


typedef struct {
    unsigned              kind:4;
    unsigned              source:2;
    unsigned              is_error:1;    /* of a tool_result */

    ngx_str_t             value;
    ngx_str_t             name;
    ngx_str_t             id;            /* sanitised */
    ngx_str_t            *media;         /* type, with SOURCE_BASE64 */
    ngx_array_t          *content;       /* of blocks; of a tool_result */
    ngx_modelgw_node_t   *cache_control;
} ngx_modelgw_request_block_t;


typedef struct {
    ngx_uint_t            role;          /* see request_turns.c */
    ngx_array_t           blocks;
} ngx_modelgw_request_turn_t;


/*
 * The messages as they will be written; see request_turns.c.
 */
typedef struct {
    ngx_array_t           system;        /* of blocks */
    ngx_array_t           turns;

    /* a turn that the answer goes on from, the last one if it is the
       assistant's or one of the last tool loop, does not begin with a signed
       thinking block: thinking with a budget is impossible */
    unsigned              unsigned_turn:1;
} ngx_modelgw_request_turns_t;


/*
 * Where the reader of the messages is.
 */
typedef struct {
    ngx_modelgw_request_t        *rq;
    ngx_modelgw_request_turns_t  *turns;

    ngx_modelgw_node_t           *message;
    ngx_uint_t                    index;   /* of the message */
    ngx_uint_t                    part;    /* index of the part of content */

    /* the last message that is no instruction, and whether it is a user's
       that has nothing to say */
    ngx_uint_t                    last;
    ngx_uint_t                    blank;

    /* calls without a result, by id, and the message that made them */
    ngx_rbtree_t                  open;
    ngx_rbtree_node_t             sentinel;
    ngx_uint_t                    caller;

    /* for arguments of calls; made for the first of them */
    ngx_modelgw_scan_t           *scan;
    ngx_modelgw_scan_conf_t       scan_conf;
} ngx_modelgw_request_walk_t;


/* Refusals: set code and message; NGX_DECLINED, or NGX_ERROR: no memory. */

ngx_int_t ngx_modelgw_request_invalid(ngx_modelgw_request_t *rq,
    const char *fmt, ...);
ngx_int_t ngx_modelgw_request_unsupported(ngx_modelgw_request_t *rq,
    const char *fmt, ...);


/*
 * Reads "messages" (and only that) into turns, which is all zero before.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR
 */
ngx_int_t ngx_modelgw_request_turns_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_turns_t *turns);

/*
 * Writes the members "system" (if there is any; json_object adds the fixed last
 * block) and "messages", with a comma before each.
 */
void ngx_modelgw_request_turns_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_turns_t *turns, ngx_uint_t json_object,
    ngx_modelgw_out_t *out);

/*
 * The "cache_control" of a message, part, tool or tool call; NULL if it has
 * none, or one that is not ephemeral.
 */
ngx_modelgw_node_t *ngx_modelgw_request_cache_control(
    ngx_modelgw_request_t *rq, ngx_modelgw_node_t *obj);

/* Writes ,"cache_control":{"type":"ephemeral"...}; nothing for NULL. */
void ngx_modelgw_request_cache_control_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *cache_control, ngx_modelgw_out_t *out);

/*
 * A byte of what ids and names of tools are made of upstream: [A-Za-z0-9_-];
 * and whether the text has no others.
 */
#define ngx_modelgw_request_plain(ch)                                         \
    (ngx_modelgw_request_plain_bytes[(ch) >> 5] & (1U << ((ch) & 0x1f)))

extern const uint32_t  ngx_modelgw_request_plain_bytes[];

ngx_uint_t ngx_modelgw_request_plain_text(ngx_str_t *text);

/* Whether the text is a name that a messages upstream takes for a tool. */
ngx_uint_t ngx_modelgw_request_tool_name(ngx_str_t *name);


/*
 * The fields of the top level that mean something here; NULL: absent or null.
 * They have the types that the table in request_fields.c asks for.
 */
typedef struct {
    ngx_modelgw_node_t   *max_tokens;
    ngx_modelgw_node_t   *max_completion_tokens;
    ngx_modelgw_node_t   *stream;
    ngx_modelgw_node_t   *stream_options;
    ngx_modelgw_node_t   *temperature;
    ngx_modelgw_node_t   *top_p;
    ngx_modelgw_node_t   *top_k;
    ngx_modelgw_node_t   *stop;
    ngx_modelgw_node_t   *modalities;
    ngx_modelgw_node_t   *response_format;
    ngx_modelgw_node_t   *user;
    ngx_modelgw_node_t   *safety_identifier;
    ngx_modelgw_node_t   *metadata;
    ngx_modelgw_node_t   *tools;
    ngx_modelgw_node_t   *tool_choice;
    ngx_modelgw_node_t   *parallel_tool_calls;
    ngx_modelgw_node_t   *reasoning_effort;
    ngx_modelgw_node_t   *thinking;
} ngx_modelgw_request_fields_t;


/* one tool as it will be written; nodes are NULL if absent */

typedef struct {
    ngx_str_t             name;
    ngx_modelgw_node_t   *description;
    ngx_modelgw_node_t   *parameters;
    ngx_modelgw_node_t   *cache_control;
    unsigned              strict:1;
    unsigned              typed:1;       /* parameters have a "type" */
    unsigned              left_out:1;    /* by allowed_tools */
} ngx_modelgw_request_tool_t;


/* tool_choice; from ANY on a call of a tool is forced */

#define NGX_MODELGW_REQUEST_CHOICE_DEFAULT  0
#define NGX_MODELGW_REQUEST_CHOICE_AUTO     1
#define NGX_MODELGW_REQUEST_CHOICE_NONE     2
#define NGX_MODELGW_REQUEST_CHOICE_ANY      3
#define NGX_MODELGW_REQUEST_CHOICE_TOOL     4

typedef struct {
    ngx_array_t           list;          /* of tools */
    ngx_uint_t            choice;
    ngx_str_t             name;          /* of the tool of CHOICE_TOOL */
    ngx_uint_t            serial;        /* one call of a tool at a time */
} ngx_modelgw_request_tools_t;


#define NGX_MODELGW_REQUEST_THINKING_DEFAULT   0    /* nothing is sent */
#define NGX_MODELGW_REQUEST_THINKING_DISABLED  1
#define NGX_MODELGW_REQUEST_THINKING_ADAPTIVE  2
#define NGX_MODELGW_REQUEST_THINKING_ENABLED   3    /* with a budget */

/* the smallest budget that an upstream takes */
#define NGX_MODELGW_REQUEST_BUDGET  1024

typedef struct {
    ngx_uint_t            thinking;
    ngx_uint_t            budget;
    ngx_modelgw_node_t   *display;       /* of the client's, or NULL */
    ngx_str_t            *effort;        /* or NULL */
} ngx_modelgw_request_reasoning_t;


/*
 * All that is decided about a request before the first byte of it is written.
 * Each step below adds its part, and may look at those of the steps before it.
 */
typedef struct {
    ngx_modelgw_request_fields_t     fields;
    ngx_modelgw_request_turns_t      turns;
    ngx_modelgw_node_t              *schema;       /* of the answer, or NULL */
    ngx_uint_t                       json_object;
    ngx_modelgw_node_t              *user_id;      /* or NULL */
    ngx_modelgw_request_tools_t      tools;
    ngx_modelgw_request_reasoning_t  reasoning;
} ngx_modelgw_request_plan_t;


/* Steps, in this order: NGX_OK, NGX_DECLINED (refused), NGX_ERROR. */

ngx_int_t ngx_modelgw_request_fields_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
ngx_int_t ngx_modelgw_request_tools_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
ngx_int_t ngx_modelgw_request_choice_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
ngx_int_t ngx_modelgw_request_thinking_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
ngx_int_t ngx_modelgw_request_reasoning_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
ngx_int_t ngx_modelgw_request_sampling_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);

/* Their members, with a comma before each. */

void ngx_modelgw_request_tools_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
void ngx_modelgw_request_choice_write(ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_out_t *out);
void ngx_modelgw_request_thinking_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
void ngx_modelgw_request_sampling_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);


/*
 * Notes that a field of the top level has no effect: the client is told by a
 * header, or, if rq->strict, refused.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR
 */
ngx_int_t ngx_modelgw_request_fields_ignore(ngx_modelgw_request_t *rq,
    const char *name);

/*
 * The text of a string for a message: unescaped, cut to 64 bytes or a little
 * less, at a character.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_request_quote(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_str_t *text);

/* Writes the bytes of a value of the document. */
void ngx_modelgw_request_raw(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_modelgw_out_t *out);


/*
 * Below request_turns.c.  These return NGX_OK, NGX_DECLINED (refused),
 * NGX_ERROR.
 */

/* request_message.c: one message of a role, as blocks behind those there are */

ngx_int_t ngx_modelgw_request_message_system(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_message_user(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_message_assistant(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_message_tool(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks);

/* request_call.c: tool calls, their ids, and who answers them */

void ngx_modelgw_request_calls_init(ngx_modelgw_request_walk_t *w);
ngx_int_t ngx_modelgw_request_calls(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *calls, ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_calls_answer(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *id, ngx_str_t *sanitised);
ngx_int_t ngx_modelgw_request_calls_answered(ngx_modelgw_request_walk_t *w);

/* request_part.c: parts of content; the bits say which are accepted */

#define NGX_MODELGW_PART_TEXT      0x01
#define NGX_MODELGW_PART_REFUSAL   0x02
#define NGX_MODELGW_PART_THINKING  0x04
#define NGX_MODELGW_PART_MEDIA     0x08

ngx_int_t ngx_modelgw_request_part(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_uint_t accepted, ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_part_thinking(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *text, ngx_modelgw_node_t *signature,
    ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_part_thinking_block(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *block,
    ngx_array_t *blocks);

/* Refuses the part: its path, the text (if any) in quotes, the fault. */
ngx_int_t ngx_modelgw_request_part_invalid(ngx_modelgw_request_walk_t *w,
    const char *member, const char *fault);
ngx_int_t ngx_modelgw_request_part_unsupported(ngx_modelgw_request_walk_t *w,
    const char *member, ngx_str_t *text, const char *fault);

/* request_source.c: where an image or a file comes from, into block */

ngx_int_t ngx_modelgw_request_source(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_uint_t file,
    ngx_modelgw_request_block_t *block);

/* request_block.c */

/* a new block, all zero but its kind; NULL: no memory */
ngx_modelgw_request_block_t *ngx_modelgw_request_block(ngx_array_t *blocks,
    ngx_uint_t kind);

/* a text block, unless the string is blank; NGX_OK, NGX_ERROR */
ngx_int_t ngx_modelgw_request_block_text(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *text, ngx_array_t *blocks);

/* gives the block the "cache_control" of obj, if it may have one */
void ngx_modelgw_request_block_cache(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *obj, ngx_modelgw_request_block_t *block);

/* cuts white space, escaped or not, off the end of the inside of a string */
void ngx_modelgw_request_block_trim(ngx_str_t *text);

void ngx_modelgw_request_blocks_write(ngx_modelgw_request_t *rq,
    ngx_array_t *blocks, ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_ */
