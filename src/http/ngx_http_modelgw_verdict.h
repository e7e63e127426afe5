
/*
 * The values of a body that verdict.c watches, by their places in its tables;
 * hold.c reads them, too.
 */


#ifndef _NGX_HTTP_MODELGW_VERDICT_H_INCLUDED_
#define _NGX_HTTP_MODELGW_VERDICT_H_INCLUDED_


/* of both endpoints */

#define NGX_HTTP_MODELGW_MODEL             0
#define NGX_HTTP_MODELGW_MESSAGES          1
#define NGX_HTTP_MODELGW_STREAMING         2
#define NGX_HTTP_MODELGW_LIMIT             3
#define NGX_HTTP_MODELGW_EXTRAS            4   /* to _EXTRAS_LAST: what may
                                                  change the price */
#define NGX_HTTP_MODELGW_EXTRAS_LAST       9

/* of chat */

#define NGX_HTTP_MODELGW_STREAM_OPTIONS    10
#define NGX_HTTP_MODELGW_INCLUDE_USAGE     11
#define NGX_HTTP_MODELGW_COMPLETION_LIMIT  12
#define NGX_HTTP_MODELGW_CHOICES           13


#endif /* _NGX_HTTP_MODELGW_VERDICT_H_INCLUDED_ */
