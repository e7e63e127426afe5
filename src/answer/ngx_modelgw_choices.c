
/*
 * Which choices of a chat stream have ended.
 *
 * Some vendors say so more than once, as with the usage behind the last one: to
 * count the reasons would take one choice that ends twice for two.  An event
 * with a reason comes about once a choice, so that the tape, which is built for
 * it, costs a stream nothing.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_choices.h"


static ngx_uint_t ngx_modelgw_choices_ends(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *choice);


void
ngx_modelgw_choices_end(ngx_modelgw_choices_t *choices,
    ngx_modelgw_tape_t *tape)
{
    uint64_t             *word, bit;
    ngx_uint_t            i;
    ngx_modelgw_node_t   *list, *choice, *index;

    list = ngx_modelgw_tape_member(tape, ngx_modelgw_tape_root(tape),
                                   "choices");

    for (choice = ngx_modelgw_tape_first(tape, list);
         choice;
         choice = ngx_modelgw_tape_next(tape, list, choice))
    {
        if (!ngx_modelgw_choices_ends(tape, choice)) {
            continue;
        }

        index = ngx_modelgw_tape_member(tape, choice, "index");

        if (index == NULL) {
            i = 0;

        } else if (!ngx_modelgw_tape_count(tape, index, &i)
                   || i >= NGX_MODELGW_CHOICES_MAX)
        {
            continue;
        }

        word = &choices->ended[i / 64];
        bit = (uint64_t) 1 << (i % 64);

        choices->n += ((*word & bit) == 0);
        *word |= bit;
    }
}


static ngx_uint_t
ngx_modelgw_choices_ends(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *choice)
{
    ngx_modelgw_node_t  *reason;

    reason = ngx_modelgw_tape_member(tape, choice, "finish_reason");

    return reason
           && reason->type == NGX_MODELGW_TAPE_STRING
           && reason->to - reason->from > 2;
}
