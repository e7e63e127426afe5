
/*
 * Lists of headers, as nginx keeps them for requests and responses.
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


/* Before the first ngx_http_modelgw_headers_next(). */
void ngx_http_modelgw_headers_init(ngx_http_modelgw_headers_t *hs,
    ngx_list_t *list);

/* The next header of the list, whatever its hash; NULL: no more. */
ngx_table_elt_t *ngx_http_modelgw_headers_next(ngx_http_modelgw_headers_t *hs);

/* Whether the header has the name, which is in lower case. */
ngx_uint_t ngx_http_modelgw_headers_is(ngx_table_elt_t *h, const char *name);

/*
 * Adds a header to the response; the name is static.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_headers_add(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/*
 * Takes all headers of the name (in lower case) out of the response; *value is
 * the last one's, of length 0 if there was none.
 */
void ngx_http_modelgw_headers_take(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/*
 * Whether the name is the one in lower case, with "_" as "-": to CGI and its
 * kin these are the same.
 */
ngx_uint_t ngx_http_modelgw_headers_same(ngx_str_t *lowcase, ngx_str_t *name);

/*
 * The same for a list of names, which ends with an empty one; a name in it that
 * ends with "-" is a prefix.
 */
ngx_uint_t ngx_http_modelgw_headers_listed(ngx_str_t *list, ngx_str_t *name);

/* Whether the value has the secret in it; an empty secret is in none. */
ngx_uint_t ngx_http_modelgw_headers_holds(ngx_str_t *value,
    ngx_str_t *secret);


#endif /* _NGX_HTTP_MODELGW_HEADERS_H_INCLUDED_ */
