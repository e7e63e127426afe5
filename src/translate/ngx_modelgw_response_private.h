
/*
 * The writer of responses, which the readers of both protocols share; see
 * response_write.c for items and events, response_block.c for blocks.
 *
 * A reader reports what the upstream sends as blocks: a text, thinking, a tool
 * call.  It may report several at a time; the writer makes items of them, one
 * after the other.  Whole answers are reported the same way, with no events
 * written: so both have the same output.
 */


#ifndef _NGX_MODELGW_RESPONSE_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_RESPONSE_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_response.h"
#include "ngx_modelgw_scan.h"


/* bytes of the upstream's id that the ids of items begin with, at most */
#define NGX_MODELGW_RESPONSE_BASE    64

#define NGX_MODELGW_RESPONSE_ID      (sizeof("msg__") + NGX_INT64_LEN         \
                                      + NGX_MODELGW_RESPONSE_BASE)

/* bytes of an event of a delta without its text, at most */
#define NGX_MODELGW_RESPONSE_DELTA   (256 + NGX_MODELGW_RESPONSE_ID           \
                                      + NGX_INT64_LEN)


/* kinds of blocks */

typedef enum {
    NGX_MODELGW_RESPONSE_NONE = 0,
    NGX_MODELGW_RESPONSE_TEXT,
    NGX_MODELGW_RESPONSE_REFUSAL,
    NGX_MODELGW_RESPONSE_THINKING,
    NGX_MODELGW_RESPONSE_REDACTED,
    NGX_MODELGW_RESPONSE_TOOL
} ngx_modelgw_response_kind_e;


/* bytes that are kept, in one piece; start NULL: none yet */

typedef struct {
    ngx_modelgw_out_t               out;
    ngx_modelgw_out_piece_t         piece;
} ngx_modelgw_response_bytes_t;


/*
 * A block.  One block is written at a time, the others are kept until it has
 * stopped.
 */
typedef struct {
    ngx_queue_t                     queue;
    ngx_modelgw_response_kind_e     kind;
    ngx_str_t                       id;        /* of a tool call */
    ngx_str_t                       name;
    ngx_modelgw_response_bytes_t    text;      /* not written yet, or to be
                                                  sealed */
    ngx_modelgw_response_bytes_t    signature;
    unsigned                        stopped:1;
} ngx_modelgw_response_block_t;


/* how an answer ends */

typedef struct {
    ngx_str_t                       reason;    /* of "incomplete_details"; len
                                                  0: it is complete */
    ngx_str_t                       refusal;   /* inside of a JSON string; len
                                                  0: none */
    unsigned                        cut:1;     /* the last tool call is to be
                                                  left out if it is open */
} ngx_modelgw_response_end_t;


/* the events and the texts of a type of items, or of parts: response_item.c */

typedef struct ngx_modelgw_response_item_s  ngx_modelgw_response_item_t;
typedef struct ngx_modelgw_response_part_s  ngx_modelgw_response_part_t;


typedef struct {
    ngx_modelgw_response_t         *rs;
    ngx_pool_t                     *pool;
    ngx_modelgw_out_t              *out;
    size_t                          max;       /* bytes kept */

    unsigned                        events:1;  /* a stream */
    unsigned                        borrowed:1;  /* texts of blocks may be
                                                    written as such; set by the
                                                    reader */
    unsigned                        started:1;
    unsigned                        part_open:1;

    uint64_t                        seq;       /* of the next event */
    ngx_uint_t                      nitems;
    size_t                          kept;      /* bytes in blocks and seal */

    ngx_str_t                       base;      /* of ids */
    u_char                          base_buf[NGX_MODELGW_RESPONSE_BASE];

    /* the items, JSON with commas between them; the last one may be open */

    ngx_modelgw_response_bytes_t    output;

    /* the open item */

    ngx_modelgw_response_kind_e     kind;      /* NONE: no item is open */
    ngx_modelgw_response_item_t    *item;
    ngx_modelgw_response_part_t    *part;
    ngx_modelgw_responses_tool_t   *tool;      /* of a call */
    ngx_modelgw_responses_tool_t    unknown;   /* one that was not declared */
    ngx_str_t                       call_id;
    ngx_uint_t                      index;     /* "output_index" */
    ngx_uint_t                      nparts;
    size_t                          from;      /* offsets in output: of the
                                                  item, with its comma, */
    size_t                          part_from; /* of the open part, */
    size_t                          text_from; /* of its text, or of the
                                                  arguments */
    size_t                          broken;    /* end of arguments that were
                                                  not JSON; 0: not known */
    ngx_str_t                       id;        /* "msg_..." */
    ngx_str_t                       delta;     /* the event of a delta, up to
                                                  the sequence number */
    u_char                          id_buf[NGX_MODELGW_RESPONSE_ID];
    u_char                          delta_buf[NGX_MODELGW_RESPONSE_DELTA];

    ngx_modelgw_response_bytes_t    seal;      /* JSON of the blocks for
                                                  "encrypted_content" */

    ngx_queue_t                     blocks;    /* the first one is written, the
                                                  others wait */
    ngx_uint_t                      nblocks;
    ngx_modelgw_scan_t             *scan;      /* of arguments */
    ngx_modelgw_scan_conf_t         scan_conf;
} ngx_modelgw_response_write_t;


/* NGX_OK, NGX_ERROR (no memory) */
ngx_int_t ngx_modelgw_response_write_init(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_t *rs, ngx_pool_t *pool, ngx_modelgw_skip_pt skip,
    size_t max, ngx_uint_t events, ngx_modelgw_out_t *out);

/*
 * Begins the response: "response.created" and "response.in_progress".  id is
 * the upstream's, the inside of a JSON string; len 0: none.  Must be called
 * before any of the functions below, and does nothing the second time.
 */
void ngx_modelgw_response_write_start(ngx_modelgw_response_write_t *w,
    ngx_str_t *id);

/*
 * To be called before an event with len bytes is reported.
 *     NGX_OK
 *     NGX_DECLINED  more would be kept than allowed, or too many blocks wait
 */
ngx_int_t ngx_modelgw_response_write_room(ngx_modelgw_response_write_t *w,
    size_t len);

/*
 * Ends the response: blocks that have not stopped stop, or are left out if they
 * are cut calls, then "response.completed" or "response.incomplete" is written;
 * a whole response is written by this function only.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_response_write_end(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_end_t *end);

/* A keep-alive event; the end of a stream that has failed: see response.h. */
void ngx_modelgw_response_write_ping(ngx_modelgw_response_write_t *w);
void ngx_modelgw_response_write_error(ngx_modelgw_response_write_t *w,
    ngx_str_t *code, ngx_str_t *message);


/*
 * Blocks.  All but the first return NGX_OK or NGX_ERROR: no memory.  Texts are
 * insides of JSON strings, in any pieces; text of a tool call is its arguments,
 * text of a redacted block its data.
 */

/*
 * Begins a block; NULL: no memory.  id and name are of a tool call, the insides
 * of JSON strings, and copied; NULL in others.
 */
ngx_modelgw_response_block_t *ngx_modelgw_response_block_start(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_kind_e kind,
    ngx_str_t *id, ngx_str_t *name);

ngx_int_t ngx_modelgw_response_block_text(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_str_t *text);

/* arguments of a tool call, as JSON instead of as the inside of a string */
ngx_int_t ngx_modelgw_response_block_json(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_str_t *json);

ngx_int_t ngx_modelgw_response_block_signature(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_str_t *text);

/* nothing may be reported of the block after this, and it must not be used */
ngx_int_t ngx_modelgw_response_block_stop(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block);

/*
 * Like _block_stop() for a text, and for a call whose arguments are one JSON
 * object so far; sets *stopped then, else clears it.
 */
ngx_int_t ngx_modelgw_response_block_try_stop(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_uint_t *stopped);


/*
 * Stops all blocks, but leaves out calls that have not stopped if they are cut.
 */
ngx_int_t ngx_modelgw_response_block_end(ngx_modelgw_response_write_t *w,
    ngx_uint_t cut);


/*
 * Bytes that are kept.  _bytes() adds some; NGX_OK or NGX_ERROR: no memory.
 */

#define ngx_modelgw_response_bytes_len(b)                                     \
    ((size_t) ((b)->piece.last - (b)->piece.start))

ngx_int_t ngx_modelgw_response_bytes(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_bytes_t *bytes, ngx_str_t *text);
void ngx_modelgw_response_bytes_free(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_bytes_t *bytes);


/*
 * The start of an event, up to and with its sequence number: members with a
 * comma before them, and "}" and an empty line must follow.
 */
void ngx_modelgw_response_event(ngx_modelgw_response_write_t *w,
    ngx_str_t *type);


/*
 * Items, for response_block.c and response_write.c: at most one is open, and a
 * text, thinking or a call closes the open one if it is of another kind.  The
 * functions return NGX_OK or NGX_ERROR: no memory.
 */

/* text of a kind, TEXT or REFUSAL */
ngx_int_t ngx_modelgw_response_item_text(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_kind_e kind, ngx_str_t *text);

/* thinking, of which text, if not empty, is to be shown; the end of a block */
ngx_int_t ngx_modelgw_response_item_thinking(ngx_modelgw_response_write_t *w,
    ngx_str_t *text);
ngx_int_t ngx_modelgw_response_item_thinking_stop(
    ngx_modelgw_response_write_t *w);

/*
 * The start of a call, its arguments, its end: if these are not JSON, the item
 * stays open until it is closed or dropped.
 */
ngx_int_t ngx_modelgw_response_item_tool(ngx_modelgw_response_write_t *w,
    ngx_str_t *id, ngx_str_t *name);
ngx_int_t ngx_modelgw_response_item_args(ngx_modelgw_response_write_t *w,
    ngx_str_t *text);
ngx_int_t ngx_modelgw_response_item_tool_stop(ngx_modelgw_response_write_t *w);

/* Sets *whole to whether the arguments so far are one JSON object. */
ngx_int_t ngx_modelgw_response_item_whole(ngx_modelgw_response_write_t *w,
    ngx_uint_t *whole);

/* Closes the open item, if any; incomplete is its status, if it is a text. */
ngx_int_t ngx_modelgw_response_item_close(ngx_modelgw_response_write_t *w,
    ngx_uint_t incomplete);

/* Forgets the open item. */
void ngx_modelgw_response_item_drop(ngx_modelgw_response_write_t *w);


/*
 * A reader of answers of a protocol.  Functions return as those of response.h;
 * the tape has the answer or the event.
 */
typedef struct {
    ngx_int_t                     (*init)(ngx_modelgw_response_stream_t *st);
    ngx_int_t                     (*whole)(ngx_modelgw_response_stream_t *st,
                                           ngx_modelgw_node_t *root);
    ngx_int_t                     (*event)(ngx_modelgw_response_stream_t *st,
                                           ngx_modelgw_node_t *event,
                                           ngx_str_t *name);
    ngx_int_t                     (*end)(ngx_modelgw_response_stream_t *st);
} ngx_modelgw_response_reader_t;


/* takes the text of a delta */

typedef ngx_int_t (*ngx_modelgw_response_text_pt)(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_block_t *block,
    ngx_str_t *text);


struct ngx_modelgw_response_stream_s {
    ngx_modelgw_response_write_t    write;
    ngx_modelgw_tape_t             *tape;
    ngx_modelgw_response_reader_t  *reader;
    void                           *state;     /* of the reader */

    /* the current delta; set by the reader if the event has nothing else */

    u_char                         *text;      /* NULL: it has */
    ngx_modelgw_response_text_pt    handler;
    ngx_modelgw_response_block_t   *block;
};


/*
 * Reports a delta that may be all an event has, for _stream_repeat(); the text
 * may be empty.  NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_response_delta(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_response_text_pt handler, ngx_modelgw_response_block_t *block,
    ngx_str_t *text);


extern ngx_modelgw_response_reader_t  ngx_modelgw_response_messages;
extern ngx_modelgw_response_reader_t  ngx_modelgw_response_chat;


#endif /* _NGX_MODELGW_RESPONSE_PRIVATE_H_INCLUDED_ */
