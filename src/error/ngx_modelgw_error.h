
/*
 * Errors: the codes, the forms that clients get, and the mapping of errors of
 * upstreams.
 */


#ifndef _NGX_MODELGW_ERROR_H_INCLUDED_
#define _NGX_MODELGW_ERROR_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#define NGX_MODELGW_ERROR_MAX_BODY     65536    /* bytes */
#define NGX_MODELGW_ERROR_MAX_MESSAGE  512      /* bytes */


typedef struct {
    ngx_uint_t            status;        /* HTTP status for the client */
    ngx_str_t             code;          /* "INVALID_API_KEY" */
    ngx_str_t             message;
    ngx_str_t             type;          /* in the messages API's error object:
                                            "authentication_error"; not part of
                                            the flat form */
    unsigned              log_error:1;   /* caused by us or our credential: to
                                            be logged at level error */
} ngx_modelgw_error_t;


/* strings that must not show in a message, and the model id to show instead */

typedef struct {
    ngx_str_t             upstream_model;
    ngx_str_t             service_model;
    ngx_str_t             upstream_host;   /* name of the upstream block */
    ngx_str_t             credential;
} ngx_modelgw_error_mask_t;


typedef enum {
    NGX_MODELGW_ERROR_FLAT = 0,          /* {"code":…,"message":…} */
    NGX_MODELGW_ERROR_COMPAT,            /* flat + "type":"error","error":
                                            {"type","code","message"} */
    NGX_MODELGW_ERROR_CHAT,              /* event of a chat stream: flat +
                                            "error":{"code","message"} */
    NGX_MODELGW_ERROR_MESSAGES           /* event "error" of a messages
                                            stream */
} ngx_modelgw_error_form_e;


/*
 * Sets e for a status that nginx itself has generated (400, 403, 404, 413, 414,
 * 494, 500, 502, 504, …); the strings are static.  connected: a connection to
 * the upstream was established; without one, 502 becomes 503
 * UPSTREAM_UNAVAILABLE.
 */
void ngx_modelgw_error_nginx(ngx_uint_t status, ngx_uint_t connected,
    ngx_modelgw_error_t *e);

/* Sets e for a stream that ended before its last event; static strings. */
void ngx_modelgw_error_truncated(ngx_modelgw_error_t *e);

/*
 * Sets e for an error of an upstream.
 *
 * status is that of its response (anything but a usable 2xx), or 200 for an
 * error object in a 200 or in a stream; body is what was read of the response,
 * at most NGX_MODELGW_ERROR_MAX_BODY bytes, and may be empty, HTML or binary;
 * protocol is the endpoint's, NGX_MODELGW_CHAT or NGX_MODELGW_MESSAGES.  The
 * upstream's text, where it is used, is scrubbed with the mask, cut to
 * NGX_MODELGW_ERROR_MAX_MESSAGE bytes at a character, and allocated from pool.
 *
 * event: the error is sent as an event of a stream that is passed on.  Then the
 * text of more errors is used, and on messages e->type is the upstream's own if
 * it consists of [a-z_] and the error is not caused by us.
 *
 *     NGX_OK     e is set
 *     NGX_ERROR  no memory
 */
ngx_int_t ngx_modelgw_error_upstream(ngx_pool_t *pool, ngx_uint_t status,
    ngx_str_t *body, ngx_uint_t protocol, ngx_uint_t event,
    ngx_modelgw_error_mask_t *mask, ngx_modelgw_error_t *e);

/* Sets *type to the messages API's error type for a status; static. */
void ngx_modelgw_error_type(ngx_uint_t status, ngx_str_t *type);

/*
 * Renders the error in one of the forms, allocated from pool; events end with
 * their blank line.
 *     NGX_OK     *out is set
 *     NGX_ERROR  no memory
 */
ngx_int_t ngx_modelgw_error_render(ngx_pool_t *pool, ngx_modelgw_error_t *e,
    ngx_modelgw_error_form_e form, ngx_str_t *out);

/*
 * Copies text to pool without anything that the mask or its shape marks as
 * secret (see ngx_modelgw_scrub.c), cut to max bytes at a character.
 *     NGX_OK     *out is set
 *     NGX_ERROR  no memory
 */
ngx_int_t ngx_modelgw_scrub(ngx_pool_t *pool, ngx_modelgw_error_mask_t *mask,
    ngx_str_t *text, size_t max, ngx_str_t *out);


#endif /* _NGX_MODELGW_ERROR_H_INCLUDED_ */
