
/*
 * Token usage of all protocols, in one form.
 */


#ifndef _NGX_MODELGW_USAGE_H_INCLUDED_
#define _NGX_MODELGW_USAGE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan.h"


/* protocols; bits, since an upstream may have several */

#define NGX_MODELGW_CHAT        0x01
#define NGX_MODELGW_MESSAGES    0x02
#define NGX_MODELGW_RESPONSES   0x04
#define NGX_MODELGW_EMBEDDINGS  0x08

#define NGX_MODELGW_PROTOCOLS   4


/* in tokens; -1: not reported */

typedef struct {
    int64_t               input;         /* without cache reads and writes */
    int64_t               cache_read;
    int64_t               cache_write;   /* of all lifetimes */
    int64_t               cache_write_5m;  /* cache_write - cache_write_1h */
    int64_t               cache_write_1h;
    int64_t               output;        /* reasoning included */
    int64_t               reasoning;

    int64_t               prompt;        /* input with cache reads and writes,
                                            if reported in this way */

    ngx_uint_t            odd;           /* a bit for each of the above, by its
                                            index, that is not a count in the
                                            last report; if any is set, the
                                            usage is incomplete */

    unsigned              input_has_cache:1;  /* input_tokens of this messages
                                                 upstream include cached input,
                                                 as in chat */
    unsigned              events:1;      /* documents are the events of a
                                            stream; matters for responses, the
                                            caller sets it */
    unsigned              rest:1;        /* cache_write_5m was not reported, but
                                            derived from the other two */
    unsigned              final:1;       /* output was reported at the end of
                                            the call, not at its beginning */
} ngx_modelgw_usage_t;


/* kinds of a JSON answer or of an event's data */

#define NGX_MODELGW_DOC_OTHER  0         /* content, or unknown */
#define NGX_MODELGW_DOC_STOP   1         /* messages: "message_stop"; responses:
                                            completed, or incomplete */
#define NGX_MODELGW_DOC_ERROR  2         /* an error instead of content */
#define NGX_MODELGW_DOC_USAGE  3         /* chat: the chunk with usage only
                                            ("choices" is []) */

/* events of responses */

#define NGX_MODELGW_DOC_FAILED 4         /* the last one, "response.failed" */
#define NGX_MODELGW_DOC_BEGIN  5         /* an item of the output begins */
#define NGX_MODELGW_DOC_ITEM   6         /* an item of the output is done */
#define NGX_MODELGW_DOC_DELTA  7         /* a piece of an item */
#define NGX_MODELGW_DOC_DONE   8         /* a part of an item is done */


/* values of an event of responses, or of an answer */

#define NGX_MODELGW_PART_ITEM      0     /* "item" of DOC_ITEM: an object */
#define NGX_MODELGW_PART_ERROR     1     /* of the response: an object */
#define NGX_MODELGW_PART_OUTPUT    2     /* of the response: an array */
#define NGX_MODELGW_PART_ID        3     /* of the response: a string */
#define NGX_MODELGW_PART_SEQUENCE  4     /* the number of the event: a count */


/*
 * Sets *conf for a scanner of JSON answers and of events' data of the protocol.
 */
void ngx_modelgw_usage_conf(ngx_modelgw_scan_conf_t *conf,
    ngx_uint_t protocol, ngx_modelgw_skip_pt skip);

/* Sets all tokens to -1, and clears the rest. */
void ngx_modelgw_usage_init(ngx_modelgw_usage_t *usage);

/*
 * Merges the usage that a scanner of ngx_modelgw_usage_conf() has found in a
 * document, or in the part of one that it was fed.
 *
 * A field that is present replaces the previous value, one that is absent or
 * null does not.  Neither does one that is not an integer from 0 to
 * 999,999,999; its bit in usage->odd is set until it is reported correctly.
 * In messages, a 0 does not replace input, and replaces the cache fields only
 * if the same report has input.
 *
 * In responses, only the last event of a stream has usage, in "response"; any
 * other is not believed.
 *
 * usage->final is set if the output is reported at the top of a messages
 * document, in a chat document without choices, or in responses; it is cleared
 * if the bit of the output in usage->odd is set.
 *
 * An embeddings document has input only: the larger one of prompt_tokens and
 * total_tokens; output is 0 and final then.
 *
 * Returns one of NGX_MODELGW_DOC_*.
 */
ngx_uint_t ngx_modelgw_usage_merge(ngx_modelgw_usage_t *usage,
    ngx_uint_t protocol, ngx_modelgw_scan_t *s);

/*
 * Must be called when no more reports can follow: usage that a chat answer has
 * reported together with choices is final then.
 */
void ngx_modelgw_usage_end(ngx_modelgw_usage_t *usage, ngx_uint_t protocol);

/*
 * Sets *from and *to to the offsets of the model id, with its quotes, in the
 * document that was scanned.
 *     NGX_OK
 *     NGX_DECLINED  there is no model id
 */
ngx_int_t ngx_modelgw_usage_model(ngx_modelgw_usage_t *usage,
    ngx_uint_t protocol, ngx_modelgw_scan_t *s, off_t *from, off_t *to);

/*
 * Returns the value NGX_MODELGW_PART_* of the event of responses, or of the
 * answer, that was scanned; it has the type of the table above, or is
 * NGX_MODELGW_SCAN_ABSENT.  Never NULL.
 */
ngx_modelgw_scan_value_t *ngx_modelgw_usage_part(ngx_modelgw_usage_t *usage,
    ngx_modelgw_scan_t *s, ngx_uint_t part);


#endif /* _NGX_MODELGW_USAGE_H_INCLUDED_ */
