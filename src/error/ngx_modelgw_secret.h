
/*
 * What looks like a credential in a text.
 */


#ifndef _NGX_MODELGW_SECRET_H_INCLUDED_
#define _NGX_MODELGW_SECRET_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * How many bytes at p, in the text [start, last) and at the beginning of a
 * word, look like a credential; 0: none begins there.
 */
size_t ngx_modelgw_secret_find(u_char *start, u_char *p, u_char *last);


#endif /* _NGX_MODELGW_SECRET_H_INCLUDED_ */
