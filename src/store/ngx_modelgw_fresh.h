
/*
 * Calls that have become durable, from the thread that writes the journal to
 * the one that ships them.  src/store/ngx_modelgw_fresh.c
 */


#ifndef _NGX_MODELGW_FRESH_H_INCLUDED_
#define _NGX_MODELGW_FRESH_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_ledger.h"


#define NGX_MODELGW_FRESH  4096          /* calls, a power of two */


typedef struct {
    ngx_modelgw_journal_call_t  *calls;  /* a ring */
    u_char                      *texts;  /* of them */
    uint64_t                     sent;   /* by the reader */
    uint64_t                     ready;
    uint64_t                     next;
    uint64_t                     pos;    /* of the last one, with or without
                                            room for it */
    uint64_t                     end;    /* the same, of durable ones */
} ngx_modelgw_fresh_t;


/*
 * For the writer: _init() returns NGX_OK, NGX_ERROR (no memory); _begin()
 * forgets all, while nothing reads; _add() is the handler of
 * ngx_modelgw_journal_written(), and _durable() tells whether the batch of what
 * was added was committed.
 */
ngx_int_t ngx_modelgw_fresh_init(ngx_modelgw_fresh_t *f);
void ngx_modelgw_fresh_free(ngx_modelgw_fresh_t *f);
void ngx_modelgw_fresh_begin(ngx_modelgw_fresh_t *f);
void ngx_modelgw_fresh_add(void *data, uint64_t pos, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account);
void ngx_modelgw_fresh_durable(ngx_modelgw_fresh_t *f, ngx_uint_t durable);

/*
 * For the reader: the calls that follow the position without a gap, *n of them,
 * at most max, in one piece; they stay until it is called with the position of
 * the last of them.  *n 0: the journal has them, or there are none; else *end
 * is set to the position of the last one that is durable.
 */
ngx_modelgw_journal_call_t *ngx_modelgw_fresh_take(ngx_modelgw_fresh_t *f,
    uint64_t pos, ngx_uint_t max, ngx_uint_t *n, uint64_t *end);


#endif /* _NGX_MODELGW_FRESH_H_INCLUDED_ */
