
/*
 * Which choices of a chat stream have ended: for a call of several, whose
 * usage is due when the last one has.
 */


#ifndef _NGX_MODELGW_CHOICES_H_INCLUDED_
#define _NGX_MODELGW_CHOICES_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_tape.h"


#define NGX_MODELGW_CHOICES_MAX  128     /* what vendors allow */


/* all zero: none has ended */

typedef struct {
    ngx_uint_t            n;             /* how many have */
    uint64_t              ended[NGX_MODELGW_CHOICES_MAX / 64]; /* a bit each,
                                                             by their index */
} ngx_modelgw_choices_t;


/*
 * Adds the choices that end in an event, whose data is on the tape: those with
 * a "finish_reason" that is a string, and not empty.  Each counts once, however
 * often it ends; one without an index is the first one; one with an index of
 * NGX_MODELGW_CHOICES_MAX or more does not count.
 */
void ngx_modelgw_choices_end(ngx_modelgw_choices_t *choices,
    ngx_modelgw_tape_t *tape);


#endif /* _NGX_MODELGW_CHOICES_H_INCLUDED_ */
