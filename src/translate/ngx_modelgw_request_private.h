
/*
 * What the files of the request codecs share.
 *
 *     request.c         the fields of the top level, the output
 *     request_params.c  thinking, effort, limits of tokens, sampling
 *     request_tools.c   tools and the choice among them
 *     request_turns.c   messages as turns
 *     request_calls.c   tool calls in messages, their ids and results
 *     request_part.c    parts of content, and the blocks that they become
 *     request_source.c  sources of images and documents
 *
 * Those of chat on messages; responses.c and its files use most of it.
 *
 * First everything is read, decided and refused, then everything is written:
 * nothing is written of a request that is refused.
 */


#ifndef _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request.h"
#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_scan.h"


#define ngx_modelgw_request_member(rq, obj, name)                             \
    ngx_modelgw_tape_member((rq)->tape, obj, name)

/* whether a string is that of a row of a table, a literal */

#define ngx_modelgw_request_named(rq, node, name)                             \
    ngx_modelgw_tape_equal((rq)->tape, node, (char *) (name)->data,           \
                           (name)->len)

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
 *     SEALED       thinking, blocks as the upstream made them, with commas
 *     TOOL_USE     the input, see source; name is the tool's; id
 *     TOOL_RESULT  text, unless content has blocks; id
 *
 * For a chat upstream the value of IMAGE is the URL, and name the detail; that
 * of DOCUMENT is the data URI.
 */

enum {
    NGX_MODELGW_BLOCK_TEXT = 0,
    NGX_MODELGW_BLOCK_IMAGE,
    NGX_MODELGW_BLOCK_DOCUMENT,
    NGX_MODELGW_BLOCK_THINKING,
    NGX_MODELGW_BLOCK_REDACTED,
    NGX_MODELGW_BLOCK_SEALED,
    NGX_MODELGW_BLOCK_TOOL_USE,
    NGX_MODELGW_BLOCK_TOOL_RESULT
};


/* where the value of an image or a document comes from */

enum {
    NGX_MODELGW_SOURCE_URL = 0,
    NGX_MODELGW_SOURCE_BASE64,
    NGX_MODELGW_SOURCE_PLAIN             /* the value is to be escaped */
};


/* what the value of a tool_use is */

enum {
    NGX_MODELGW_CALL_OBJECT = 0,         /* a JSON object */
    NGX_MODELGW_CALL_STRING,             /* the same, inside of a JSON string */
    NGX_MODELGW_CALL_INPUT               /* its only member, "input": inside of
                                            a JSON string */
};


typedef struct {
    unsigned              kind:4;
    unsigned              source:2;      /* of an image, a document, a call */
    unsigned              is_error:1;    /* of a tool_result */
    unsigned              breakpoint:1;  /* of the prompt cache */

    ngx_str_t             value;
    ngx_str_t             name;
    ngx_str_t             id;            /* sanitised */
    ngx_str_t            *media;         /* type of a base64 source */
    ngx_array_t          *content;       /* blocks of a tool_result */
    ngx_modelgw_node_t   *cache_control;
} ngx_modelgw_request_block_t;


/* whose turn it is, or where the blocks of a message go */

enum {
    NGX_MODELGW_TURN_SYSTEM = 0,
    NGX_MODELGW_TURN_USER,
    NGX_MODELGW_TURN_ASSISTANT
};


typedef struct {
    ngx_uint_t            role;
    ngx_array_t           blocks;
    ngx_array_t          *results;       /* blocks, of an assistant's calls: to
                                            follow it; NULL: none */
} ngx_modelgw_request_turn_t;


typedef struct {
    ngx_array_t           system;        /* of blocks */
    ngx_array_t           turns;         /* of ngx_modelgw_request_turn_t */

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

    /* names: of the list of messages, of the content, ".image_url.url" */

    const char                   *list;
    const char                   *content;
    const char                   *member;

    ngx_uint_t                    chat;    /* the upstream's protocol is chat */
    ngx_uint_t                    breakpoints;  /* parts may have them */

    /* the last message but for instructions; blank: a user's, empty */

    ngx_uint_t                    last;
    ngx_uint_t                    blank;

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

    /* of responses */

    ngx_modelgw_node_t   *instructions;
    ngx_modelgw_node_t   *text;
    ngx_modelgw_node_t   *reasoning;
    ngx_modelgw_node_t   *include;
    ngx_modelgw_node_t   *max_output_tokens;
    ngx_modelgw_node_t   *store;
    ngx_modelgw_node_t   *truncation;
    ngx_modelgw_node_t   *prompt_cache_key;
} ngx_modelgw_request_fields_t;


/*
 * Members of a tool, or of "function" of a tool of chat, in the order in which
 * clients write them
 */

enum {
    NGX_MODELGW_TOOL_TYPE = 0,
    NGX_MODELGW_TOOL_NAME,
    NGX_MODELGW_TOOL_DESCRIPTION,
    NGX_MODELGW_TOOL_PARAMETERS,
    NGX_MODELGW_TOOL_STRICT,
    NGX_MODELGW_TOOL_FORMAT,             /* of responses */
    NGX_MODELGW_TOOL_TOOLS,
    NGX_MODELGW_TOOL_EXECUTION,

    NGX_MODELGW_TOOL_MEMBERS
};


/* one tool as it will be written; nodes are NULL if absent */

typedef struct {
    ngx_str_t             name;
    ngx_modelgw_node_t   *description;
    ngx_modelgw_node_t   *parameters;
    ngx_modelgw_node_t   *cache_control;
    ngx_modelgw_node_t   *definition;    /* of the grammar of a custom tool */
    unsigned              regex:1;       /* syntax of the grammar, else lark */
    unsigned              custom:1;      /* takes a text */
    unsigned              strict:1;
    unsigned              typed:1;       /* parameters have a "type" */
    unsigned              left_out:1;    /* by allowed_tools */
    unsigned              breakpoint:1;  /* of the prompt cache */
} ngx_modelgw_request_tool_t;


enum {
    NGX_MODELGW_REQUEST_CHOICE_DEFAULT = 0,
    NGX_MODELGW_REQUEST_CHOICE_AUTO,
    NGX_MODELGW_REQUEST_CHOICE_NONE,
    NGX_MODELGW_REQUEST_CHOICE_ANY,
    NGX_MODELGW_REQUEST_CHOICE_TOOL
};


typedef struct {
    ngx_array_t           list;          /* of ngx_modelgw_request_tool_t */
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
    ngx_str_t                     display;    /* JSON; len 0: none */
    ngx_str_t                    *effort;     /* to be sent, or NULL */
} ngx_modelgw_request_reasoning_t;


typedef struct ngx_modelgw_request_form_s  ngx_modelgw_request_form_t;

/* all that is decided about a request before it is written */

typedef struct {
    ngx_modelgw_request_form_t      *form;
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

    /* of responses */

    ngx_uint_t                       protocol;     /* the upstream's */
    ngx_modelgw_responses_call_t    *call;
    ngx_rbtree_t                     names;        /* of tools, upstream */
    ngx_rbtree_node_t                sentinel;
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

/* a field that is refused, unless it has the one value that means nothing */

typedef struct {
    ngx_str_t             name;
    ngx_uint_t            kind;
    const char           *allowed;       /* the value accepted, or NULL */
    const char           *instead;       /* end of the message */
} ngx_modelgw_request_refused_t;


/* what an API's requests are like */

struct ngx_modelgw_request_form_s {
    ngx_modelgw_request_field_t    **tables;       /* in the order of decisions,
                                                      NULL at the end */
    ngx_modelgw_request_refused_t   *refused;
    const char                      *effort;       /* its path */
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

/*
 * Reads a request: decides all of the plan, which must be zeroed but for what
 * the form's fields need.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_decide(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_form_t *form);

/* Writes the messages request. */
void ngx_modelgw_request_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);

/* Read fields, see ngx_modelgw_request_field_t. */

ngx_int_t ngx_modelgw_request_stream(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
ngx_int_t ngx_modelgw_request_user(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *id);

/*
 * Reads the format of the answer, whose path is given.  The schema is in a
 * member of it, ".json_schema", or in itself: "".
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_format(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *format,
    const char *path, const char *inside);

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

/*
 * Read fields, see ngx_modelgw_request_field_t; the last two are steps, which
 * decide thinking and max_tokens, and sampling.
 */

ngx_int_t ngx_modelgw_request_limit(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *limit);
ngx_int_t ngx_modelgw_request_effort(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
ngx_int_t ngx_modelgw_request_temperature(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
ngx_int_t ngx_modelgw_request_top_p(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
ngx_int_t ngx_modelgw_request_reasoning(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
ngx_int_t ngx_modelgw_request_sampling(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);

/* Shows adaptive thinking, if there will be any. */
void ngx_modelgw_request_show(ngx_modelgw_request_plan_t *plan);

/* Write the members of sampling, and "thinking", with a comma before each. */

void ngx_modelgw_request_sampling_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
void ngx_modelgw_request_thinking_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);


/* ngx_modelgw_request_tools.c */

/* Sets the members of a tool, NGX_MODELGW_TOOL_MEMBERS; NULL: absent. */
void ngx_modelgw_request_tool_members(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *obj, ngx_modelgw_node_t **members);

/*
 * Reads what a tool has beside its name.  Returns NULL, or what is wrong:
 * ".strict must be true or false".
 */
const char *ngx_modelgw_request_tool_details(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t **members, ngx_modelgw_request_tool_t *tool);

/* Sets the choice of that name, if there is such a mode: 1, or 0. */
ngx_uint_t ngx_modelgw_request_choice_mode(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *node,
    ngx_uint_t allowed_tools);

/*
 * Reads a choice that is a string; refuses one of a type that is not known.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_choice_word(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice);
ngx_int_t ngx_modelgw_request_choice_other(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *type);

/*
 * Refuses a choice that forces a call, without tools or if the model does not
 * accept it.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_choice_force(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools);

/* Reads the field. */
ngx_int_t ngx_modelgw_request_parallel(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *parallel);

/*
 * Writes ,"description":"..." and the schema of a tool, after before, which
 * ends with a colon.
 */
void ngx_modelgw_request_tool_write_details(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, const char *before,
    ngx_modelgw_out_t *out);

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
 * Makes the walk and the turns ready; both must be zeroed.  n: about how many
 * turns there will be.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_turns_init(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_request_t *rq, ngx_modelgw_request_turns_t *turns,
    ngx_uint_t n);

/* Returns the last turn if it has that role, else a new one; NULL: no memory */
ngx_modelgw_request_turn_t *ngx_modelgw_request_turns_last(
    ngx_modelgw_request_walk_t *w, ngx_uint_t role);
ngx_modelgw_request_turn_t *ngx_modelgw_request_turns_push(
    ngx_modelgw_request_walk_t *w, ngx_uint_t role);

/*
 * Append the blocks of the content of the message: parts of accepted types;
 * _result() to the blocks of a result, w->content.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_message_content(ngx_modelgw_request_walk_t *w,
    ngx_uint_t accepted, ngx_array_t *blocks);
ngx_int_t ngx_modelgw_request_message_result(ngx_modelgw_request_walk_t *w,
    ngx_uint_t accepted, ngx_modelgw_request_block_t *result);

/*
 * Puts a text in front of documents from that block on that have none.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_message_placeholder(ngx_array_t *blocks,
    ngx_uint_t from);

/*
 * Checks that need all messages, but for calls without results.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_turns_end(ngx_modelgw_request_walk_t *w);

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

/*
 * Gets the id of a call, sanitised; for a chat upstream only if it is not
 * printable ASCII, or has quotes or backslashes.
 *     NGX_OK
 *     NGX_DECLINED  not a non-empty string
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_request_call_id(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_str_t *id);

/*
 * Writes the text with '_' for each character that may not occur in ids and
 * names upstream, at most text->len bytes; returns the end.
 */
u_char *ngx_modelgw_request_sanitise(u_char *dst, ngx_str_t *text);

/*
 * Unescapes the arguments of a call; "{}" if they are absent or blank.
 *     NGX_OK
 *     NGX_DECLINED  not one JSON object, see fault; fault->len is 0: not a
 *                   string.  fault->data has room for
 *                   NGX_MODELGW_SCAN_FAULT_LEN bytes.
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_request_call_arguments(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *arguments, ngx_str_t *input, ngx_str_t *fault);

/*
 * Scans the text.
 *     NGX_OK
 *     NGX_DECLINED  not one JSON object, see ngx_modelgw_scan_fault(w->scan)
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_request_call_check(ngx_modelgw_request_walk_t *w,
    ngx_str_t *text);

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

#define NGX_MODELGW_PART_TEXT         0x01
#define NGX_MODELGW_PART_REFUSAL      0x02
#define NGX_MODELGW_PART_THINKING     0x04
#define NGX_MODELGW_PART_MEDIA        0x08
#define NGX_MODELGW_PART_INPUT_TEXT   0x10   /* of responses */
#define NGX_MODELGW_PART_INPUT_MEDIA  0x20

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

/*
 * Refuses a member of the part: ".image_url.url", " is not a string".
 *     NGX_DECLINED, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_part_invalid(ngx_modelgw_request_walk_t *w,
    const char *member, const char *fault);

/* Appends a block, zeroed but for its kind; NULL: no memory. */
ngx_modelgw_request_block_t *ngx_modelgw_request_block(ngx_array_t *blocks,
    ngx_uint_t kind);

/*
 * Appends a text block, unless the string is blank.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_block_text(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *text, ngx_array_t *blocks);

/* Gives the block the breakpoint of the prompt cache of obj, if it may have
   one. */
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

/*
 * Writes ,"cache_control":{"type":"ephemeral"...}; nothing for NULL without
 * breakpoint.
 */
void ngx_modelgw_request_cache_control_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *cache_control, ngx_uint_t breakpoint,
    ngx_modelgw_out_t *out);

/* Writes text, which ends with an opening quote, a string's inside, a quote. */
#define ngx_modelgw_request_block_string(out, before, text)                   \
    ngx_modelgw_out_text(out, before);                                        \
    ngx_modelgw_out_borrowed(out, (text)->data, (text)->len);                 \
    ngx_modelgw_out_text(out, "\"")


/* ngx_modelgw_request_source.c */

/*
 * Read the source of an image or a document, w->member, into the block: a data
 * URI of a type that a file, or an image, may have; an https URL, which a file
 * may not be in the first.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_request_source(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_uint_t file,
    ngx_modelgw_request_block_t *block);
ngx_int_t ngx_modelgw_request_source_url(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *url, ngx_modelgw_request_block_t *block);


#endif /* _NGX_MODELGW_REQUEST_PRIVATE_H_INCLUDED_ */
