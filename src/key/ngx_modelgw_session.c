
/*
 * Sessions of the console.  The bytes of a cookie, before base64url:
 *
 *     32  digest of the token
 *      8  expires, most significant byte first
 *     32  HMAC-SHA256 of the 40 bytes before
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_session.h"


#define NGX_MODELGW_SESSION_EXPIRES  NGX_MODELGW_KEY_DIGEST
#define NGX_MODELGW_SESSION_CODE     (NGX_MODELGW_SESSION_EXPIRES + 8)
#define NGX_MODELGW_SESSION_BYTES                                             \
    (NGX_MODELGW_SESSION_CODE + NGX_MODELGW_KEY_DIGEST)


ngx_int_t
ngx_modelgw_session_write(u_char *secret, ngx_modelgw_session_t *session,
    u_char *text)
{
    u_char      bytes[NGX_MODELGW_SESSION_BYTES];
    ngx_str_t   src, dst;
    ngx_uint_t  i;

    ngx_memcpy(bytes, session->digest, NGX_MODELGW_KEY_DIGEST);

    for (i = 0; i < 8; i++) {
        bytes[NGX_MODELGW_SESSION_EXPIRES + i]
                                  = (u_char) (session->expires >> (56 - 8 * i));
    }

    if (ngx_modelgw_key_code(secret, NGX_MODELGW_SESSION_SECRET, bytes,
                             NGX_MODELGW_SESSION_CODE,
                             bytes + NGX_MODELGW_SESSION_CODE)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    src.data = bytes;
    src.len = NGX_MODELGW_SESSION_BYTES;
    dst.data = text;

    ngx_encode_base64url(&dst, &src);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_session_read(u_char *secret, ngx_str_t *text, uint64_t now,
    ngx_modelgw_session_t *session)
{
    u_char      bytes[NGX_MODELGW_SESSION_BYTES + 3];
    u_char      code[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t   dst;
    ngx_uint_t  i;

    dst.data = bytes;

    if (text->len != NGX_MODELGW_SESSION_TEXT
        || ngx_decode_base64url(&dst, text) != NGX_OK
        || dst.len != NGX_MODELGW_SESSION_BYTES)
    {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_key_code(secret, NGX_MODELGW_SESSION_SECRET, bytes,
                             NGX_MODELGW_SESSION_CODE, code)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ngx_modelgw_key_equal(code, bytes + NGX_MODELGW_SESSION_CODE)) {
        return NGX_DECLINED;
    }

    ngx_memcpy(session->digest, bytes, NGX_MODELGW_KEY_DIGEST);

    session->expires = 0;

    for (i = 0; i < 8; i++) {
        session->expires = session->expires << 8
                           | bytes[NGX_MODELGW_SESSION_EXPIRES + i];
    }

    return (now < session->expires) ? NGX_OK : NGX_DECLINED;
}
