
/*
 * Reading small JSON documents that are in memory as a whole.
 */


#ifndef _NGX_MODELGW_DOCUMENT_H_INCLUDED_
#define _NGX_MODELGW_DOCUMENT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MODELGW_DOCUMENT_MAX_SIZE   (1024 * 1024)  /* bytes */
#define NGX_MODELGW_DOCUMENT_MAX_DEPTH  64


/*
 * One value to read.  The path is the names of members from the root object,
 * joined by '.'; dst + offset is an ngx_str_t.  Strings are unescaped; numbers,
 * true and false are as written; null and containers are taken for absent.
 */
typedef struct {
    ngx_str_t             path;
    size_t                offset;
} ngx_modelgw_document_slot_t;


/*
 * Reads doc into the slots, a table that ends with ngx_null_string.  The string
 * of an absent value is not changed; the last one of equal names counts.  Text
 * is copied to memory of the pool; it may have NUL bytes and, from a lone
 * surrogate, bytes that are not UTF-8.
 *     NGX_OK        doc is one JSON object
 *     NGX_DECLINED  it is not, or exceeds a limit above; some slots may be set
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_document_read(ngx_pool_t *pool, ngx_str_t *doc,
    ngx_modelgw_document_slot_t *slots, void *dst);


#endif /* _NGX_MODELGW_DOCUMENT_H_INCLUDED_ */
