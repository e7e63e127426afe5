
/*
 * Prices, what tokens cost, and what a call is charged: integers only.
 */


#ifndef _NGX_MODELGW_COST_H_INCLUDED_
#define _NGX_MODELGW_COST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_usage.h"


/* pico-euro per token */

typedef struct {
    uint64_t              input;
    uint64_t              output;
    uint64_t              cache_read;
    uint64_t              cache_write;
    uint64_t              cache_write_1h;
} ngx_modelgw_price_t;


/* tokens, by classes that have a price; none is negative */

typedef struct {
    int64_t               input;         /* without the cached ones below */
    int64_t               cache_read;
    int64_t               cache_write;   /* without those for an hour */
    int64_t               cache_write_1h;
    int64_t               output;        /* including reasoning */
    int64_t               reasoning;     /* reported, not priced */
} ngx_modelgw_tokens_t;


/*
 * What was seen of an answer.  It is in shared memory while the call runs, so
 * that another process can settle the call of a worker that was killed.
 */

#define NGX_MODELGW_SEEN_FINAL   0x01    /* the output is final */
#define NGX_MODELGW_SEEN_UNREAD  0x02    /* a keepalive connection was closed
                                            before any byte was received: the
                                            request was not read */
#define NGX_MODELGW_SEEN_UNSENT  0x04    /* no upstream was reached */
#define NGX_MODELGW_SEEN_ODD     0x08    /* the usage has values that are not
                                            counts */

typedef struct {
    int64_t               input;         /* as in ngx_modelgw_usage_t: */
    int64_t               cache_read;    /* -1: not reported */
    int64_t               cache_write;
    int64_t               cache_write_1h;
    int64_t               output;
    int64_t               reasoning;
    int64_t               text;          /* bytes of text received */
    uint32_t              status;        /* the upstream's; 0: none received */
    uint32_t              flags;
} ngx_modelgw_seen_t;


/* where the tokens of a call are known from */

typedef enum {
    NGX_MODELGW_REPORTED = 0,            /* the upstream's usage */
    NGX_MODELGW_ESTIMATED,               /* what was seen of a 2xx, which may be
                                            reported in part */
    NGX_MODELGW_UNANSWERED,              /* the estimate of the input */
    NGX_MODELGW_REFUSED,                 /* the upstream returned an error, or
                                            did not read the request: nothing */
    NGX_MODELGW_UNSENT                   /* no upstream was reached: nothing */
} ngx_modelgw_outcome_e;


typedef struct {
    ngx_modelgw_tokens_t   tokens;
    int64_t                cost;         /* nano-euro */
    ngx_modelgw_outcome_e  outcome;
} ngx_modelgw_charge_t;


/*
 * Reads euro per million tokens, "3", "0.0125", as pico-euro per token: 1 to 6
 * digits, optionally a point and 1 to 6 more; no sign, no exponent.
 *     NGX_OK        *price is set
 *     NGX_DECLINED  text is no such number
 */
ngx_int_t ngx_modelgw_price_parse(ngx_str_t *text, uint64_t *price);

/*
 * The cost in nano-euro: the exact sum, rounded up once.  It cannot overflow:
 * counts are at most 999,999,999, prices what ngx_modelgw_price_parse() reads.
 */
int64_t ngx_modelgw_cost(ngx_modelgw_price_t *price,
    ngx_modelgw_tokens_t *tokens);

/*
 * The upper bound in nano-euro of a call with at most input and output tokens:
 * input at the highest price of input, cache_read and cache_write (and
 * cache_write_1h, if long_cache is set), output at its price.
 */
int64_t ngx_modelgw_cost_bound(ngx_modelgw_price_t *price, int64_t input,
    int64_t output, ngx_uint_t long_cache);

/*
 * How many output tokens "available" nano-euro pay for besides the bound of the
 * input; 0: not even one.  At most 999,999,999, also if output is free.
 */
int64_t ngx_modelgw_cost_fits(ngx_modelgw_price_t *price, int64_t input,
    ngx_uint_t long_cache, int64_t available);

/*
 * What a call that was sent is charged; the first of these that applies:
 *
 *     UNSENT, UNREAD: nothing
 *     usage with input and FINAL output, not ODD: as reported, even above the
 *         hold
 *     a status of 300 and above: nothing
 *     a 2xx: the reported input, else its estimate; FINAL output, else the
 *         larger of what was reported so far and a third of the text in bytes,
 *         rounded up; never above the hold
 *     no answer: the estimate of the input, never above the hold
 *
 * hold: nano-euro; estimate: tokens of input, at least 1.
 */
void ngx_modelgw_charge(ngx_modelgw_price_t *price, int64_t hold,
    int64_t estimate, ngx_modelgw_seen_t *seen, ngx_modelgw_charge_t *charge);

/* Sets "nothing seen". */
void ngx_modelgw_seen_init(ngx_modelgw_seen_t *seen);

/* Sets what was reported so far; status and text are kept. */
void ngx_modelgw_seen_usage(ngx_modelgw_seen_t *seen,
    ngx_modelgw_usage_t *usage);

/* The name in the store: "reported", "estimated", "unanswered", ... */
const char *ngx_modelgw_outcome_name(ngx_modelgw_outcome_e outcome);


#define NGX_MODELGW_AMOUNT_LEN  24       /* bytes of a formatted amount */

/*
 * Reads euro as decimal text, "10", "0.000000001", as nano-euro: 1 to 9 digits,
 * optionally a point and 1 to 9 more; no sign, no exponent; at most
 * 999,999,999.
 *     NGX_OK        *nano is set
 *     NGX_DECLINED  text is no such number
 */
ngx_int_t ngx_modelgw_amount_parse(ngx_str_t *text, int64_t *nano);

/*
 * Writes nano-euro as euro with 2 to 9 decimals ("-0.50", "1.000000001") to p,
 * which has room for NGX_MODELGW_AMOUNT_LEN bytes; returns the end.
 */
u_char *ngx_modelgw_amount(u_char *p, int64_t nano);

/* Writes the same as a JSON string. */
void ngx_modelgw_amount_out(ngx_modelgw_out_t *out, int64_t nano);


#endif /* _NGX_MODELGW_COST_H_INCLUDED_ */
