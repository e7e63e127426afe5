
/*
 * Shapes in a text: what looks like a URL, a host or a credential.
 */


#ifndef _NGX_MODELGW_SHAPE_H_INCLUDED_
#define _NGX_MODELGW_SHAPE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * How many bytes at p, in the text [start, last), are a URL, a host or a
 * credential; 0: none begins there.
 */
size_t ngx_modelgw_shape_find(u_char *start, u_char *p, u_char *last);

/* Skips the port and the path that may follow a host name. */
u_char *ngx_modelgw_shape_tail(u_char *p, u_char *last);

/* Returns the first byte that is no letter, no digit and not in extra. */
u_char *ngx_modelgw_shape_run(u_char *p, u_char *last, const char *extra);

/* Kinds of characters: one of a string; ASCII letters and digits; digits. */
ngx_uint_t ngx_modelgw_shape_one_of(u_char ch, const char *set);
ngx_uint_t ngx_modelgw_shape_alnum(u_char ch);
ngx_uint_t ngx_modelgw_shape_digit(u_char ch);


#endif /* _NGX_MODELGW_SHAPE_H_INCLUDED_ */
