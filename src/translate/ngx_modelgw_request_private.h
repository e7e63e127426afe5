
/*
 * What the files of the request codec share.
 *
 *     request.c         the fields of the top level, the output
 *     request_params.c  thinking, effort, limits of tokens, sampling
 *     request_tools.c   tools and the choice among them
 *     request_turns.c   messages as turns
 *     request_calls.c   tool calls in messages, their ids and results
 *     request_part.c    parts of content, and the blocks that they become
 *
 * First everything is read, decided and refused, then everything is written:
 * nothing is written of a request that is refused.
 */


#ifndef _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request.h"
#include "ngx_modelgw_scan.h"


#define ngx_modelgw_request_member(rq, obj, name)                             \
    ngx_modelgw_tape_member((rq)->tape, obj, name)

/* an optional member that is null counts as absent */

#define ngx_modelgw_request_absent(node)                                      \
    ((node) == NULL || (node)->type == NGX_MODELGW_TAPE_NULL)

#define ngx_modelgw_request_string(node)                                      \
    ((node) != NULL && (node)->type == NGX_MODELGW_TAPE_STRING)


/*
 * A block of a turn or of "system", as it will be written.  The meaning of
 * value and name depends on its kind; texts are insides of JSON strings and
 * written as they are:
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


typedef struct {
    unsigned              kind:4;
    unsigned              source:2;      /* of an image or a document */
    unsigned              is_error:1;    /* of a tool_result */

    ngx_str_t             value;
    ngx_str_t             name;
    ngx_str_t             id;            /* sanitised */
    ngx_str_t            *media;         /* type of a base64 source */
    ngx_array_t          *content;       /* blocks of a tool_result */
    ngx_modelgw_node_t   *cache_control;
} ngx_modelgw_request_block_t;


typedef struct {
    ngx_array_t           system;        /* of blocks */
    ngx_array_t           turns;

    /*
     * The last turn, if it is the assistant's, or one of the last tool loop
     * does not begin with signed thinking, so that the upstream would refuse
     * thinking with a budget.
     */

    unsigned              unsigned_turn:1;
} ngx_modelgw_request_turns_t;


/* the state of reading the messages */

typedef struct {
    ngx_modelgw_request_t        *rq;
    ngx_modelgw_request_turns_t  *turns;

    ngx_modelgw_node_t           *message;
    ngx_uint_t                    index;   /* of the message */
    ngx_uint_t                    part;    /* index of the part of content */

    /* the last message but for instructions; blank: a user's, empty */

    ngx_uint_t                    last;
    ngx_uint_t                    blank;

    /* the rest is used by request_calls.c only */

    /* calls without a result, by id, and the message that made them */

    ngx_rbtree_t                  open;
    ngx_rbtree_node_t             sentinel;
    ngx_uint_t                    caller;

    /* checks arguments of calls; created for the first of them */

    ngx_modelgw_scan_t           *scan;
    ngx_modelgw_scan_conf_t       scan_conf;
} ngx_modelgw_request_walk_t;


/*
 * The translated fields that are given; NULL: absent or null.
 */
typedef struct {
    ngx_modelgw_node_t   *stream;
    ngx_modelgw_node_t   *stream_options;
    ngx_modelgw_node_t   *modalities;
    ngx_modelgw_node_t   *response_format;
    ngx_modelgw_node_t   *metadata;
    ngx_modelgw_node_t   *safety_identifier;
    ngx_modelgw_node_t   *user;
    ngx_modelgw_node_t   *tools;
    ngx_modelgw_node_t   *tool_choice;
    ngx_modelgw_node_t   *parallel_tool_calls;
    ngx_modelgw_node_t   *thinking;
    ngx_modelgw_node_t   *max_tokens;
    ngx_modelgw_node_t   *max_completion_tokens;
    ngx_modelgw_node_t   *reasoning_effort;
    ngx_modelgw_node_t   *temperature;
    ngx_modelgw_node_t   *top_p;
    ngx_modelgw_node_t   *top_k;
    ngx_modelgw_node_t   *stop;
} ngx_modelgw_request_fields_t;


typedef struct {
    ngx_array_t           list;          /* see request_tools.c */
    ngx_uint_t            choice;
    ngx_str_t             name;          /* of the tool that must be called */
    unsigned              forced:1;      /* a tool call */
    unsigned              serial:1;      /* one tool call at a time */
} ngx_modelgw_request_tools_t;


typedef struct ngx_modelgw_request_level_s  ngx_modelgw_request_level_t;

typedef struct {
    ngx_modelgw_request_level_t  *level;      /* reasoning_effort, or NULL */
    ngx_uint_t                    thinking;   /* see request_params.c */
    ngx_uint_t                    budget;     /* tokens */
    ngx_modelgw_node_t           *display;    /* the client's, or NULL */
    ngx_str_t                    *effort;     /* to be sent, or NULL */
} ngx_modelgw_request_reasoning_t;


/* all that is decided about a request before it is written */

typedef struct {
    ngx_modelgw_request_fields_t     fields;
    ngx_modelgw_request_turns_t      turns;
    ngx_uint_t                       stream;
    ngx_uint_t                       json_object;
    ngx_modelgw_node_t              *schema;       /* of the answer, or NULL */
    ngx_modelgw_node_t              *user_id;      /* or NULL */
    ngx_modelgw_request_tools_t      tools;
    ngx_uint_t                       limit;        /* of tokens, as the client
                                                      sets it; 0: none */
    ngx_modelgw_request_reasoning_t  reasoning;
} ngx_modelgw_request_plan_t;


/*
 * A field of the top level.  It is read if it is given; one without a function
 * is read elsewhere.  A row without a name is a step, which is always called:
 * it decides what the fields before it mean together.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */

typedef struct ngx_modelgw_request_field_s  ngx_modelgw_request_field_t;

struct ngx_modelgw_request_field_s {
    ngx_str_t             name;
    ngx_uint_t            kind;          /* of the value */
    size_t                offset;        /* in ngx_modelgw_request_fields_t */

    ngx_int_t           (*read)(ngx_modelgw_request_t *rq,
                                ngx_modelgw_request_plan_t *plan,
                                ngx_modelgw_request_field_t *field,
                                ngx_modelgw_node_t *value);
};

enum {
    NGX_MODELGW_REQUEST_ANY = 0,
    NGX_MODELGW_REQUEST_NUMBER,
    NGX_MODELGW_REQUEST_STRING,
    NGX_MODELGW_REQUEST_BOOLEAN,
    NGX_MODELGW_REQUEST_ARRAY,
    NGX_MODELGW_REQUEST_OBJECT,
    NGX_MODELGW_REQUEST_STRINGS,         /* a string or an array */
    NGX_MODELGW_REQUEST_CHOICE           /* a string or an object */
};

#define ngx_modelgw_request_field(name, kind, read)                           \
    { ngx_string(#name), NGX_MODELGW_REQUEST_ ## kind,                        \
      offsetof(ngx_modelgw_request_fields_t, name), read }

/* a step: its name is "", with data, which only the end of a table has not */

#define ngx_modelgw_request_step(read)                                        \
    { ngx_string(""), NGX_MODELGW_REQUEST_ANY, 0, read }

/* the end of a table: the name has no data */

#define ngx_modelgw_request_fields_end  { ngx_null_string, 0, 0, NULL }

extern ngx_modelgw_request_field_t  ngx_modelgw_request_tools_fields[];
extern ngx_modelgw_request_field_t  ngx_modelgw_request_params_fields[];


/* ngx_modelgw_request.c */

/* Refusals: set code and message; NGX_DECLINED, or NGX_ERROR (no memory). */

ngx_int_t ngx_modelgw_request_invalid(ngx_modelgw_request_t *rq,
    const char *fmt, ...);
ngx_int_t ngx_modelgw_request_unsupported(ngx_modelgw_request_t *rq,
    const char *fmt, ...);

/*
 * Adds a field of the top level to the ignored ones; refused if rq->strict.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_ignore(ngx_modelgw_request_t *rq,
    const char *name);

/*
 * The text of a string for a message: unescaped, cut at a character to 64 bytes
 * or a little less.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_quote(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_str_t *text);

/* Writes the bytes of a value of the document. */
void ngx_modelgw_request_raw(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_modelgw_out_t *out);


/* ngx_modelgw_request_params.c */

/* Write the members of sampling, and "thinking", with a comma before each. */

void ngx_modelgw_request_sampling_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
void ngx_modelgw_request_thinking_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);


/* ngx_modelgw_request_tools.c */

/* Writes the members "tools" and "tool_choice", with a comma before each. */
void ngx_modelgw_request_tools_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);

/*
 * Whether a byte may occur in ids and names of tools upstream, [A-Za-z0-9_-],
 * and whether all bytes of a text may.
 */
#define ngx_modelgw_request_plain(ch)                                         \
    (ngx_modelgw_request_plain_bytes[(ch) >> 5] & (1U << ((ch) & 0x1f)))

extern const uint32_t  ngx_modelgw_request_plain_bytes[];

ngx_uint_t ngx_modelgw_request_plain_text(ngx_str_t *text);

/* Whether a messages upstream accepts the text as the name of a tool. */
ngx_uint_t ngx_modelgw_request_tool_name(ngx_str_t *name);


/* ngx_modelgw_request_turns.c */

/*
 * Reads "messages" into turns, which must be zeroed.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
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


/* ngx_modelgw_request_calls.c */

/* Initializes the tree of calls; the walk must be zeroed. */
void ngx_modelgw_request_calls_init(ngx_modelgw_request_walk_t *w);

/*
 * Appends a block for each call of "tool_calls", which has no result yet.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_calls(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *calls, ngx_array_t *blocks);

/*
 * Sanitises the "tool_call_id" of a result, and removes the call of that id,
 * which has its result now.
 *     NGX_OK
 *     NGX_DECLINED  refused: no id, or no such call
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_request_calls_answer(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *id, ngx_str_t *sanitised);

/*
 * Refuses the request if a call has no result.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_calls_answered(ngx_modelgw_request_walk_t *w);


/* ngx_modelgw_request_part.c */

/* types of parts that a role may use */

#define NGX_MODELGW_PART_TEXT      0x01
#define NGX_MODELGW_PART_REFUSAL   0x02
#define NGX_MODELGW_PART_THINKING  0x04
#define NGX_MODELGW_PART_MEDIA     0x08

/*
 * Append the block of a part, of thinking with its signature, or of a thinking
 * block as the upstream made it, if there is anything to send.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_part(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_uint_t accepted, ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_part_thinking(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *text, ngx_modelgw_node_t *signature,
    ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_part_thinking_block(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *block,
    ngx_array_t *blocks);

/* Appends a block, zeroed but for its kind; NULL: no memory. */
ngx_modelgw_request_block_t *ngx_modelgw_request_block(ngx_array_t *blocks,
    ngx_uint_t kind);

/*
 * Appends a text block, unless the string is blank.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_block_text(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *text, ngx_array_t *blocks);

/* Gives the block the "cache_control" of obj, if it may have one. */
void ngx_modelgw_request_block_cache(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *obj, ngx_modelgw_request_block_t *block);

/* Cuts white space, escaped or not, off the end of the inside of a string. */
void ngx_modelgw_request_block_trim(ngx_str_t *text);

/* Writes the blocks, with commas between them. */
void ngx_modelgw_request_blocks_write(ngx_modelgw_request_t *rq,
    ngx_array_t *blocks, ngx_modelgw_out_t *out);

/*
 * The "cache_control" of a message, part, tool or tool call; NULL if it has
 * none, or one that is not ephemeral.
 */
ngx_modelgw_node_t *ngx_modelgw_request_cache_control(
    ngx_modelgw_request_t *rq, ngx_modelgw_node_t *obj);

/* Writes ,"cache_control":{"type":"ephemeral"...}; nothing for NULL. */
void ngx_modelgw_request_cache_control_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *cache_control, ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_ */
