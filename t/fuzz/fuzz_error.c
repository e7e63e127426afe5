
/*
 * libFuzzer: an upstream's error of any kind.  The first byte of the input is
 * the status and the protocol, the rest the body.  Whatever the input, the
 * resulting error is one of ours, its text is within bounds and without the
 * credential, and each form is JSON that reads back as the same.
 */


#include "unit.h"

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_usage.h"
#include "ngx_modelgw_document.h"
#include "ngx_modelgw_out.h"


#define SECRET  "topsecret-credential"


typedef struct {
    ngx_str_t    code;
    ngx_str_t    message;
    ngx_str_t    inner_code;
    ngx_str_t    inner_message;
} values_t;


static ngx_modelgw_document_slot_t  slots[] = {
    { ngx_string("code"), offsetof(values_t, code) },
    { ngx_string("message"), offsetof(values_t, message) },
    { ngx_string("error.code"), offsetof(values_t, inner_code) },
    { ngx_string("error.message"), offsetof(values_t, inner_message) },
    { ngx_null_string, 0 }
};


static ngx_modelgw_error_mask_t  mask = {
    ngx_string("vendor-large-1"),
    ngx_string("eu/large"),
    ngx_string("api.upstream.net"),
    ngx_string(SECRET)
};


static void
check(int ok)
{
    if (!ok) {
        abort();
    }
}


static int
equal(ngx_str_t *a, ngx_str_t *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}


/* whether the texts are the same JSON string */

static int
equal_strings(ngx_pool_t *pool, ngx_str_t *a, ngx_str_t *b)
{
    ngx_str_t                json[2];
    ngx_modelgw_out_t        out;
    ngx_modelgw_out_piece_t  piece;

    ngx_modelgw_out_piece(&out, &piece, pool, 64);
    ngx_modelgw_out_string(&out, a);
    check(ngx_modelgw_out_piece_done(&out, &json[0]) == NGX_OK);

    ngx_modelgw_out_piece(&out, &piece, pool, 64);
    ngx_modelgw_out_string(&out, b);
    check(ngx_modelgw_out_piece_done(&out, &json[1]) == NGX_OK);

    return equal(&json[0], &json[1]);
}


/* the JSON of a form, without the lines around it */

static void
check_form(ngx_pool_t *pool, ngx_modelgw_error_t *e, ngx_uint_t form)
{
    u_char     *p;
    values_t    v;
    ngx_str_t   out, *inner;

    check(ngx_modelgw_error_render(pool, e, form, &out) == NGX_OK);

    if (form == NGX_MODELGW_ERROR_CHAT || form == NGX_MODELGW_ERROR_MESSAGES) {
        check(out.len > 2 && memcmp(out.data + out.len - 2, "\n\n", 2) == 0);
        out.len -= 2;

        p = memchr(out.data, '{', out.len);
        check(p != NULL);

        out.len -= p - out.data;
        out.data = p;
    }

    check(memchr(out.data, '\n', out.len) == NULL);
    check(memchr(out.data, '\r', out.len) == NULL);

    ngx_memzero(&v, sizeof(values_t));
    check(ngx_modelgw_document_read(pool, &out, slots, &v) == NGX_OK);

    if (form != NGX_MODELGW_ERROR_MESSAGES) {
        check(equal(&v.code, &e->code));
    }

    inner = (form == NGX_MODELGW_ERROR_FLAT) ? &v.message : &v.inner_message;

    /* invalid UTF-8 was replaced in the text read back */

    check(equal_strings(pool, inner, &e->message));
}


static void
check_error(ngx_pool_t *pool, ngx_modelgw_error_t *e)
{
    size_t      i;
    ngx_uint_t  form;

    check(e->status >= 400 && e->status <= 599);
    check(e->code.len != 0 && e->type.len != 0 && e->type.len <= 64);
    check(e->message.len <= NGX_MODELGW_ERROR_MAX_MESSAGE);

    for (i = 0; i + sizeof(SECRET) - 1 <= e->message.len; i++) {
        check(memcmp(e->message.data + i, SECRET, sizeof(SECRET) - 1) != 0);
    }

    for (form = 0; form < 4; form++) {
        check_form(pool, e, form);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
    ngx_str_t             body;
    ngx_pool_t           *pool;
    ngx_modelgw_error_t   e;

    static ngx_uint_t  statuses[] = { 400, 200, 413, 401, 429, 500, 529, 302 };

    if (len < 1 || len > NGX_MODELGW_ERROR_MAX_BODY) {
        return 0;
    }

    pool = unit_pool_create();

    body.len = len - 1;
    body.data = unit_dup(p + 1, len - 1);

    memset(&e, 0xa5, sizeof(e));

    check(ngx_modelgw_error_upstream(pool, statuses[p[0] & 7], &body,
                                     (p[0] & 8) ? NGX_MODELGW_CHAT
                                                : NGX_MODELGW_MESSAGES,
                                     (p[0] & 16) != 0, &mask, &e)
          == NGX_OK);

    unit_free(body.data);

    check_error(pool, &e);

    ngx_destroy_pool(pool);

    return 0;
}
