
/*
 * Calls that have become durable, from the thread that writes the journal to
 * the one that ships them.  src/cluster/ngx_modelgw_fresh.c
 */


#ifndef _NGX_MODELGW_FRESH_H_INCLUDED_
#define _NGX_MODELGW_FRESH_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <pthread.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_shipment.h"


#define NGX_MODELGW_FRESH        64      /* shipments, of 400 KB at most */
#define NGX_MODELGW_FRESH_CALLS  1000    /* of a batch, at least as many as it
                                            may have */


typedef struct {
    uint64_t                    pos;
    ngx_modelgw_call_t         *call;
    ngx_modelgw_ledger_name_t  *account;
} ngx_modelgw_fresh_call_t;

typedef struct {
    ngx_modelgw_fresh_call_t  calls[NGX_MODELGW_FRESH_CALLS];
    ngx_uint_t                ncalls;    /* of the writer's batch */
    uint64_t                  pos;       /* of the last one, with or without
                                            room for it */
    pthread_mutex_t           mutex;     /* of what follows */
    ngx_modelgw_shipment_t    ready[NGX_MODELGW_FRESH]; /* a ring */
    ngx_uint_t                oldest;
    ngx_uint_t                n;
    uint64_t                  end;       /* of the last call that is durable */
} ngx_modelgw_fresh_t;


/*
 * For the writer: _init() returns NGX_OK, NGX_ERROR; _begin() forgets all;
 * _add() is the handler of ngx_modelgw_journal_written(), and _durable() tells
 * whether the batch of what was added was committed: until then calls and names
 * of accounts must stay as they are.  A zeroed one may be freed.
 */
ngx_int_t ngx_modelgw_fresh_init(ngx_modelgw_fresh_t *f);
void ngx_modelgw_fresh_free(ngx_modelgw_fresh_t *f);
void ngx_modelgw_fresh_begin(ngx_modelgw_fresh_t *f);
void ngx_modelgw_fresh_add(void *data, uint64_t pos, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account);
void ngx_modelgw_fresh_durable(ngx_modelgw_fresh_t *f, ngx_uint_t durable);

/*
 * For the exchanger: *end is set to the position of the last call that is
 * durable, as far as the writer has told since its begin.
 *     NGX_OK        the shipment, which was empty, has what follows pos
 *     NGX_DECLINED  the journal has it, if there is something; *gap: how many
 *                   calls up to those that are here, or a large number
 */
ngx_int_t ngx_modelgw_fresh_take(ngx_modelgw_fresh_t *f, uint64_t pos,
    ngx_modelgw_shipment_t *shipment, uint64_t *end, uint64_t *gap);


#endif /* _NGX_MODELGW_FRESH_H_INCLUDED_ */
