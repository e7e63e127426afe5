
/*
 * Token usage as the two protocols report it, in one form.
 */


#ifndef _NGX_MODELGW_USAGE_H_INCLUDED_
#define _NGX_MODELGW_USAGE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan.h"


/* protocols: bits, since a group's upstream may speak both */

#define NGX_MODELGW_CHAT       0x01
#define NGX_MODELGW_MESSAGES   0x02


/* tokens; -1: not reported */

typedef struct {
    int64_t               input;         /* without cache reads and writes */
    int64_t               cache_read;
    int64_t               cache_write;   /* all lifetimes together */
    int64_t               cache_write_5m;  /* all of it but the next */
    int64_t               cache_write_1h;
    int64_t               output;        /* reasoning included */
    int64_t               reasoning;

    int64_t               prompt;        /* input with cache reads and writes,
                                            where it is reported so */

    ngx_uint_t            odd;           /* a bit for each of the above that the
                                            last report had in a form that is no
                                            count: not 0, no report is whole */

    unsigned              input_has_cache:1;  /* a messages upstream counts
                                                 cached input in input_tokens,
                                                 as chat does */
    unsigned              rest:1;        /* the lifetime of five minutes is what
                                            the hour leaves of the total */
    unsigned              final:1;       /* output is what the call's end, and
                                            not its beginning, reported */
} ngx_modelgw_usage_t;


/* what one JSON answer, or one event of a stream, is */

#define NGX_MODELGW_DOC_OTHER  0         /* content, or nothing we know */
#define NGX_MODELGW_DOC_STOP   1         /* messages: "message_stop" */
#define NGX_MODELGW_DOC_ERROR  2         /* an error instead of content */
#define NGX_MODELGW_DOC_USAGE  3         /* chat: the chunk that brings only the
                                            usage ("choices" is []) */


/*
 * The table of watches, and the scanner's configuration, to read a JSON answer
 * or one event's data of the protocol; skip is put into it.
 */
void ngx_modelgw_usage_conf(ngx_modelgw_scan_conf_t *conf,
    ngx_uint_t protocol, ngx_modelgw_skip_pt skip);

/* All tokens -1, nothing set. */
void ngx_modelgw_usage_init(ngx_modelgw_usage_t *usage);

/*
 * Merges the usage that a scanner of ngx_modelgw_usage_conf() found in a
 * document, or in the part of one that it was fed: a field that is present
 * replaces, one that is absent or null keeps what was known.  So does one that
 * is not a plain integer up to 999,999,999; it is noted in usage->odd, until
 * its class is reported again.  So does a 0 of input in messages; one of its
 * cache fields counts, if there is input beside it.
 * Sets final if the output was reported at the top of a messages document, or
 * in a chat document without choices; clears it if the output is odd.
 * Returns one of NGX_MODELGW_DOC_*.
 */
ngx_uint_t ngx_modelgw_usage_merge(ngx_modelgw_usage_t *usage,
    ngx_uint_t protocol, ngx_modelgw_scan_t *s);

/*
 * Says that nothing more is reported: what a chat answer reported beside its
 * choices is final.
 */
void ngx_modelgw_usage_end(ngx_modelgw_usage_t *usage, ngx_uint_t protocol);

/*
 * The span of the model id in the document just scanned (quotes included).
 *     NGX_OK        from and to are set
 *     NGX_DECLINED  it has none
 */
ngx_int_t ngx_modelgw_usage_model(ngx_modelgw_scan_t *s, ngx_uint_t protocol,
    off_t *from, off_t *to);


#endif /* _NGX_MODELGW_USAGE_H_INCLUDED_ */
