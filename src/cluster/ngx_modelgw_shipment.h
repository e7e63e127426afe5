
/*
 * Settled calls on their way to the database of a cluster, one after another by
 * their positions, as columns of "calls" there: a call is encoded once, where
 * it is read or written.
 */


#ifndef _NGX_MODELGW_SHIPMENT_H_INCLUDED_
#define _NGX_MODELGW_SHIPMENT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_pq.h"


/* columns: numbers, then texts; those that others read */

#define NGX_MODELGW_SHIPMENT_NUMBERS  14
#define NGX_MODELGW_SHIPMENT_TEXTS    6
#define NGX_MODELGW_SHIPMENT_COLUMNS  (NGX_MODELGW_SHIPMENT_NUMBERS           \
                                       + NGX_MODELGW_SHIPMENT_TEXTS)

#define NGX_MODELGW_SHIPMENT_ID       0
#define NGX_MODELGW_SHIPMENT_PRICE    1
#define NGX_MODELGW_SHIPMENT_ACCOUNT  NGX_MODELGW_SHIPMENT_NUMBERS


/* zeroed at first */

typedef struct {
    ngx_uint_t                n;         /* calls */
    uint64_t                  first;     /* position of the first one */
    int64_t                   id;        /* of the last one */
    uint32_t                  once;      /* bits of columns whose values are all
                                            equal: they have one */
    int64_t                   numbers[NGX_MODELGW_SHIPMENT_NUMBERS];
    ngx_str_t                 texts[NGX_MODELGW_SHIPMENT_TEXTS];
                                         /* of these, what they have */
    ngx_modelgw_pq_array_t    columns[NGX_MODELGW_SHIPMENT_COLUMNS];
} ngx_modelgw_shipment_t;


/* Makes it empty; _free() frees its memory, too. */
void ngx_modelgw_shipment_clear(ngx_modelgw_shipment_t *s);
void ngx_modelgw_shipment_free(ngx_modelgw_shipment_t *s);

/*
 * Adds n calls, one at least, that follow one another.
 *     NGX_OK
 *     NGX_DECLINED  they do not follow those that it has, nothing is added
 *     NGX_ERROR     no memory: it is empty
 */
ngx_int_t ngx_modelgw_shipment_add(ngx_modelgw_shipment_t *s,
    ngx_modelgw_journal_call_t *calls, ngx_uint_t n);


#endif /* _NGX_MODELGW_SHIPMENT_H_INCLUDED_ */
