
/*
 * Sessions of the console: what a cookie holds.
 *
 * A cookie has the digest of the token or key that was signed in with and the
 * end of the session, with a code of both under a secret of this nginx
 * (HMAC-SHA256, RFC 2104), in base64url (RFC 4648, 5).  What the token allows
 * is not in it, but looked up by the digest at each request.
 */


#ifndef _NGX_MODELGW_SESSION_H_INCLUDED_
#define _NGX_MODELGW_SESSION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_key.h"


#define NGX_MODELGW_SESSION_SECRET  32       /* bytes */

/* 32 + 8 + 32 bytes need no padding, so there is one text for them */

#define NGX_MODELGW_SESSION_TEXT    96       /* characters */


typedef struct {
    u_char    digest[NGX_MODELGW_KEY_DIGEST];
    uint64_t  expires;                       /* ms since the Epoch; the first
                                                one when it is refused */
} ngx_modelgw_session_t;


/*
 * Writes the NGX_MODELGW_SESSION_TEXT characters of the session; secret has
 * NGX_MODELGW_SESSION_SECRET bytes.
 *     NGX_OK, NGX_ERROR (OpenSSL failed)
 */
ngx_int_t ngx_modelgw_session_write(u_char *secret,
    ngx_modelgw_session_t *session, u_char *text);

/*
 * Reads them again, now in ms since the Epoch.
 *     NGX_OK        *session is set
 *     NGX_DECLINED  it was not written with this secret, or has expired
 *     NGX_ERROR     OpenSSL failed
 */
ngx_int_t ngx_modelgw_session_read(u_char *secret, ngx_str_t *text,
    uint64_t now, ngx_modelgw_session_t *session);


#endif /* _NGX_MODELGW_SESSION_H_INCLUDED_ */
