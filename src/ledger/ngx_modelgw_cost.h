
/*
 * What tokens cost, and what a call is charged: integers only.
 */


#ifndef _NGX_MODELGW_COST_H_INCLUDED_
#define _NGX_MODELGW_COST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_price.h"
#include "ngx_modelgw_usage.h"


/* tokens by the classes that have a price; none is negative */

typedef struct {
    int64_t               input;         /* without what is below */
    int64_t               cache_read;
    int64_t               cache_write;   /* without those for an hour */
    int64_t               cache_write_1h;
    int64_t               output;        /* reasoning included */
    int64_t               reasoning;     /* told, not priced */
} ngx_modelgw_tokens_t;


/*
 * What is known of an answer.  It lies in shared memory while the call runs, so
 * that another process can settle the call of a worker that was killed.
 */

#define NGX_MODELGW_SEEN_FINAL   0x01    /* the output is the last word */
#define NGX_MODELGW_SEEN_UNREAD  0x02    /* a connection that was kept open was
                                            closed before any byte came back:
                                            the request was not read */
#define NGX_MODELGW_SEEN_UNSENT  0x04    /* no upstream was reached */
#define NGX_MODELGW_SEEN_ODD     0x08    /* of the usage some is no count */

typedef struct {
    int64_t               input;         /* as in ngx_modelgw_usage_t: */
    int64_t               cache_read;    /* -1: not reported */
    int64_t               cache_write;
    int64_t               cache_write_1h;
    int64_t               output;
    int64_t               reasoning;
    int64_t               text;          /* bytes of text that came */
    uint32_t              status;        /* the upstream's; 0: none came */
    uint32_t              flags;
} ngx_modelgw_seen_t;


/* how the tokens of a call are known */

typedef enum {
    NGX_MODELGW_REPORTED = 0,            /* by the upstream's usage */
    NGX_MODELGW_ESTIMATED,               /* by what was seen of a 2xx, some of
                                            which may be reported */
    NGX_MODELGW_UNANSWERED,              /* the input's estimate */
    NGX_MODELGW_REFUSED,                 /* the upstream answered an error, or
                                            did not read the request: nothing */
    NGX_MODELGW_UNSENT                   /* no upstream was reached: nothing */
} ngx_modelgw_outcome_e;


typedef struct {
    ngx_modelgw_tokens_t   tokens;
    int64_t                cost;         /* nano-euro */
    ngx_modelgw_outcome_e  outcome;
} ngx_modelgw_charge_t;


/*
 * The cost in nano-euro: the exact sum, rounded up once.  Counts are at most
 * 999,999,999 (what usage.c takes), prices what price.c takes: it cannot
 * overflow.
 */
int64_t ngx_modelgw_cost(ngx_modelgw_price_t *price,
    ngx_modelgw_tokens_t *tokens);

/*
 * The upper bound in nano-euro of a call with at most so many tokens: input at
 * the dearest of input, cache_read and cache_write (and cache_write_1h, if
 * long_cache is set), output at its price.
 */
int64_t ngx_modelgw_cost_bound(ngx_modelgw_price_t *price, int64_t input,
    int64_t output, ngx_uint_t long_cache);

/*
 * The most output tokens that "available" nano-euro pay for beside the bound of
 * the input; 0 if not even one.  Output that costs nothing: 999,999,999.
 */
int64_t ngx_modelgw_cost_fits(ngx_modelgw_price_t *price, int64_t input,
    ngx_uint_t long_cache, int64_t available);

/*
 * What a call that was sent is charged (design.md, 6), in this order:
 *
 *     UNSENT, UNREAD: nothing
 *     usage with input and FINAL output, not ODD: by it, whatever it is, above
 *         the hold too
 *     a status of 300 and above: nothing
 *     a 2xx: reported input, else the estimate; FINAL output, else the larger
 *         of what was reported so far and a third of the text, rounded up;
 *         never above the hold
 *     no answer: the estimate of the input, never above the hold
 *
 * hold: nano-euro; estimate: tokens of input, at least 1.
 */
void ngx_modelgw_charge(ngx_modelgw_price_t *price, int64_t hold,
    int64_t estimate, ngx_modelgw_seen_t *seen, ngx_modelgw_charge_t *charge);

/* Nothing seen. */
void ngx_modelgw_seen_init(ngx_modelgw_seen_t *seen);

/* Puts in what is reported so far. */
void ngx_modelgw_seen_usage(ngx_modelgw_seen_t *seen,
    ngx_modelgw_usage_t *usage);

/*
 * "reported", "estimated", "unanswered", "refused", "unsent": how the store
 * names it.
 */
const char *ngx_modelgw_outcome_name(ngx_modelgw_outcome_e outcome);


#define NGX_MODELGW_AMOUNT_LEN  24       /* of a formatted amount, at most */

/*
 * Reads euro as decimal text, "10", "0.000000001", as nano-euro: 1 to 9 digits,
 * and after a point 1 to 9 more; no sign, no exponent; at most 999,999,999.
 *     NGX_OK        *nano is set
 *     NGX_DECLINED  text is no such number
 */
ngx_int_t ngx_modelgw_amount_parse(ngx_str_t *text, int64_t *nano);

/*
 * Writes nano-euro as euro with 2 to 9 digits behind the point ("-0.50",
 * "1.000000001"); returns the end.  p has room for NGX_MODELGW_AMOUNT_LEN.
 */
u_char *ngx_modelgw_amount(u_char *p, int64_t nano);


#endif /* _NGX_MODELGW_COST_H_INCLUDED_ */
