
/*
 * Lists of headers, as nginx keeps them for requests and responses.
 */


#ifndef _NGX_HTTP_MODELGW_HEADERS_H_INCLUDED_
#define _NGX_HTTP_MODELGW_HEADERS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* bytes of a header's name in the configuration, and as it is logged */

#define NGX_HTTP_MODELGW_HEADER_LEN  64


typedef struct {
    ngx_list_part_t      *part;
    ngx_uint_t            i;
} ngx_http_modelgw_headers_t;


/* one name of a list, in lower case */

typedef struct ngx_http_modelgw_name_s  ngx_http_modelgw_name_t;

struct ngx_http_modelgw_name_s {
    ngx_str_t                 name;
    ngx_uint_t                prefix;    /* 1: all names that begin with it */
    ngx_http_modelgw_name_t  *next;      /* in the same slot */
};


/* a list, by the low 5 bits of the first letter, prefixes last */

typedef struct {
    ngx_http_modelgw_name_t  *first[32];
} ngx_http_modelgw_names_t;


/* Before the first ngx_http_modelgw_headers_next(). */

static ngx_inline void
ngx_http_modelgw_headers_init(ngx_http_modelgw_headers_t *hs, ngx_list_t *list)
{
    hs->part = &list->part;
    hs->i = 0;
}


/* The next header of the list, whatever its hash; NULL: no more. */

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


/* Whether a text is the one in lower case, which is as long, in any case. */
ngx_uint_t ngx_http_modelgw_headers_equal(u_char *text, u_char *lowcase,
    size_t len);


/* The same for a name or a value that may have another length. */

static ngx_inline ngx_uint_t
ngx_http_modelgw_headers_text_is(ngx_str_t *text, u_char *lowcase, size_t len)
{
    return text->len == len
           && ngx_http_modelgw_headers_equal(text->data, lowcase, len);
}


/* The same for a literal. */
#define ngx_http_modelgw_headers_is(text, lowcase)                            \
    ngx_http_modelgw_headers_text_is(text, (u_char *) lowcase,                \
                                     sizeof("" lowcase) - 1)

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

/* Makes names of a list, which ends with an empty one and stays where it is. */
void ngx_http_modelgw_headers_index(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *list);

/*
 * Adds a name, which stays where it is.
 *     NGX_OK
 *     NGX_DECLINED  it is there already
 */
ngx_int_t ngx_http_modelgw_headers_insert(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *name);

/*
 * The entry that is _same() as the name, else a prefix that the name begins
 * with, else NULL.
 */
ngx_http_modelgw_name_t *ngx_http_modelgw_headers_listed(
    ngx_http_modelgw_names_t *names, ngx_str_t *name);

/* Whether some header has both a name of a and one of b. */
ngx_uint_t ngx_http_modelgw_headers_overlap(ngx_http_modelgw_name_t *a,
    ngx_http_modelgw_name_t *b);

/* Whether the request asks for a WebSocket. */
ngx_uint_t ngx_http_modelgw_headers_websocket(ngx_http_request_t *r);

/* Whether the value has the secret in it; an empty secret is in none. */
ngx_uint_t ngx_http_modelgw_headers_holds(ngx_str_t *value,
    ngx_str_t *secret);


#endif /* _NGX_HTTP_MODELGW_HEADERS_H_INCLUDED_ */
