
/*
 * Errors: the codes, the flat form that clients see, and reading what upstreams
 * answer (design.md, section 5).
 */


#ifndef _NGX_MODELGW_ERROR_H_INCLUDED_
#define _NGX_MODELGW_ERROR_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_usage.h"


typedef struct {
    ngx_uint_t            status;        /* HTTP status for the client */
    ngx_str_t             code;          /* "INVALID_API_KEY" */
    ngx_str_t             message;
    ngx_str_t             type;          /* of the messages API's error object:
                                            "authentication_error"; for compat
                                            bodies and stream frames */
    unsigned              loud:1;        /* our fault or our credential's: worth
                                            a line in the error log */
} ngx_modelgw_error_t;


/* what must not show in a message, and what stands in for it */

typedef struct {
    ngx_str_t             upstream_model;
    ngx_str_t             service_model;
    ngx_str_t             upstream_host;   /* name of the upstream block */
    ngx_str_t             credential;
} ngx_modelgw_error_mask_t;


#define NGX_MODELGW_ERROR_MAX_BODY     65536
#define NGX_MODELGW_ERROR_MAX_MESSAGE  512

/* forms of ngx_modelgw_error_render() */

#define NGX_MODELGW_ERROR_FLAT      0    /* {"code":…,"message":…} */
#define NGX_MODELGW_ERROR_COMPAT    1    /* + "type":"error","error":{"type",
                                            "code","message"} */
#define NGX_MODELGW_ERROR_CHAT      2    /* "data: " frame of a chat stream:
                                            flat + "error":{"code","message"} */
#define NGX_MODELGW_ERROR_MESSAGES  3    /* "event: error" frame of a messages
                                            stream */


/*
 * The error that stands for a status which nginx itself made (400, 403, 404,
 * 413, 414, 494, 500, 502, 504, …): e is filled from a table, with texts that
 * are static.  connected says whether an upstream connection had come about:
 * 502 without one is 503 UPSTREAM_UNAVAILABLE.
 */
void ngx_modelgw_error_nginx(ngx_uint_t status, ngx_uint_t connected,
    ngx_modelgw_error_t *e);

/*
 * The error that stands for a stream that ended before its last event.
 */
void ngx_modelgw_error_truncated(ngx_modelgw_error_t *e);

/*
 * The error that stands for an upstream's answer with the status (anything but
 * a usable 2xx; 200 for an error object inside a 200 or a stream) and the body
 * (as far as it was read, at most NGX_MODELGW_ERROR_MAX_BODY bytes; may be
 * empty, HTML, binary).  protocol is NGX_MODELGW_CHAT or NGX_MODELGW_MESSAGES:
 * the endpoint's.  Texts that pass are scrubbed with the mask, cut to
 * NGX_MODELGW_ERROR_MAX_MESSAGE bytes at a character, and live in the pool.
 * frame tells that the error is an event of a stream that is passed on, and
 * goes out as one: then the text of more errors passes, and on messages e->type
 * is the upstream's own if that is a word of [a-z_] and the fault is not ours.
 *     NGX_OK     e is filled
 *     NGX_ERROR  no memory
 */
ngx_int_t ngx_modelgw_error_upstream(ngx_pool_t *pool, ngx_uint_t status,
    ngx_str_t *body, ngx_uint_t protocol, ngx_uint_t frame,
    ngx_modelgw_error_mask_t *mask, ngx_modelgw_error_t *e);

/*
 * The type of the messages API's error object for a status, static.
 */
void ngx_modelgw_error_type(ngx_uint_t status, ngx_str_t *type);

/*
 * Writes the error in one of the forms into the pool; frames end with their
 * blank line.
 *     NGX_OK     *out is set
 *     NGX_ERROR  no memory
 */
ngx_int_t ngx_modelgw_error_render(ngx_pool_t *pool, ngx_modelgw_error_t *e,
    ngx_uint_t form, ngx_str_t *out);


#endif /* _NGX_MODELGW_ERROR_H_INCLUDED_ */
