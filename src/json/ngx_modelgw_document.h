
/*
 * Reading small JSON documents that are in memory as a whole (yajl behind one
 * wall), and writing JSON strings.
 */


#ifndef _NGX_MODELGW_DOCUMENT_H_INCLUDED_
#define _NGX_MODELGW_DOCUMENT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MODELGW_JSON_MAX_DOC    (1024 * 1024)
#define NGX_MODELGW_JSON_MAX_DEPTH  64


/*
 * One value to read: the path is made of member names from the root object
 * joined by '.'; dst + offset is an ngx_str_t.  Strings are unescaped, numbers,
 * true and false are given as written; null and containers are as good as
 * absent.
 */
typedef struct {
    ngx_str_t             path;
    size_t                offset;
} ngx_modelgw_json_slot_t;


/*
 * Reads doc into the slots (a table that ends with ngx_null_string); values
 * that are absent leave their ngx_str_t as it was, of values that occur twice
 * the last counts.  Text is copied into the pool; it may hold NUL bytes and,
 * from a lone surrogate, bytes that are not UTF-8.
 *     NGX_OK        doc is one JSON object
 *     NGX_DECLINED  it is not, or not wholly, or is longer or deeper than the
 *                   limits above; some slots may be set all the same
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_json_read(ngx_pool_t *pool, ngx_str_t *doc,
    ngx_modelgw_json_slot_t *slots, void *dst);

/*
 * A JSON string with quotes: its length, and itself written to p (returns the
 * end).  Bytes that are not UTF-8 become U+FFFD; control bytes are escaped.
 */
size_t ngx_modelgw_json_str_len(ngx_str_t *s);
u_char *ngx_modelgw_json_str(u_char *p, ngx_str_t *s);

/*
 * The length of the UTF-8 character at p, whose first byte is 0x80 or above; 0
 * if it is none, or does not end before last.
 */
size_t ngx_modelgw_json_utf8(u_char *p, u_char *last);


#endif /* _NGX_MODELGW_DOCUMENT_H_INCLUDED_ */
