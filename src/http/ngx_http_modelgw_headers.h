
/*
 * Lists of request and response headers.
 */


#ifndef _NGX_HTTP_MODELGW_HEADERS_H_INCLUDED_
#define _NGX_HTTP_MODELGW_HEADERS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef struct {
    ngx_list_part_t      *part;
    ngx_uint_t            i;
} ngx_http_modelgw_headers_t;


/* Starts a walk over a list. */

static ngx_inline void
ngx_http_modelgw_headers_init(ngx_http_modelgw_headers_t *hs, ngx_list_t *list)
{
    hs->part = &list->part;
    hs->i = 0;
}


/* Returns the next header, also one with hash 0 (removed); NULL at the end. */

static ngx_inline ngx_table_elt_t *
ngx_http_modelgw_headers_next(ngx_http_modelgw_headers_t *hs)
{
    ngx_table_elt_t  *h;

    while (hs->i >= hs->part->nelts) {

        if (hs->part->next == NULL) {
            return NULL;
        }

        hs->part = hs->part->next;
        hs->i = 0;
    }

    h = hs->part->elts;

    return &h[hs->i++];
}


/* Whether two texts of len bytes are the same in lower case; one is already. */
ngx_uint_t ngx_http_modelgw_headers_equal(u_char *text, u_char *lowcase,
    size_t len);


/* The same for a text of any length. */

static ngx_inline ngx_uint_t
ngx_http_modelgw_headers_text_is(ngx_str_t *text, u_char *lowcase, size_t len)
{
    return text->len == len
           && ngx_http_modelgw_headers_equal(text->data, lowcase, len);
}


/* The same with a literal. */
#define ngx_http_modelgw_headers_is(text, lowcase)                            \
    ngx_http_modelgw_headers_text_is(text, (u_char *) lowcase,                \
                                     sizeof("" lowcase) - 1)

/*
 * Adds a response header; the name must be static, the value is not copied.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_headers_add(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/* Adds "Cache-Control: no-store" (RFC 9111, 5.2.2.5), as above. */
ngx_int_t ngx_http_modelgw_headers_no_store(ngx_http_request_t *r);

/*
 * Removes all response headers of a name, which is in lower case; *value is
 * that of the last one, of length 0 if there was none.
 */
void ngx_http_modelgw_headers_take(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/* Whether the secret occurs in the value; an empty one does not. */
ngx_uint_t ngx_http_modelgw_headers_holds(ngx_str_t *value,
    ngx_str_t *secret);


#endif /* _NGX_HTTP_MODELGW_HEADERS_H_INCLUDED_ */
