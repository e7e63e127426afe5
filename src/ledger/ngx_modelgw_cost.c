
/*
 * Prices, what tokens cost, and what a call is charged.
 *
 * An operator writes euro per million tokens, as the vendors' price lists do;
 * inside, a price is an integer of pico-euro per token.  The two differ by
 * exactly 10^6: a number of up to 6 decimals is an integer with its point
 * moved, and nothing is ever rounded.  Money is nano-euro.
 *
 * The products of all classes are summed exactly, in 128 bits, and the sum is
 * rounded up once: rounding each class would charge up to five nano-euro for
 * nothing, and rounding down would give calls of cheap models away.
 *
 * What was seen of an answer may come from a worker that was killed while
 * writing it down: each count is clamped to its range here, and no two are
 * assumed to be consistent.
 *
 * Rejected: floating point and strtod(): 0.1 has no exact double, and the
 * result would depend on the locale.  A sign, an exponent, ".5" and "5." in a
 * price or an amount: one that looks odd is more likely a slip than intended.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_cost.h"


/* digits on either side of the point: euro per million tokens, and euro */

#define NGX_MODELGW_PRICE_DIGITS  6
#define NGX_MODELGW_COST_DIGITS   9

#define NGX_MODELGW_COST_COUNT    999999999LL   /* tokens of a class, at most */
#define NGX_MODELGW_COST_EURO     1000000000LL  /* nano-euro per euro */
#define NGX_MODELGW_COST_AMOUNT   999999999LL   /* euro, at most */
#define NGX_MODELGW_COST_BYTES    3             /* bytes of text per token */


typedef unsigned __int128  ngx_modelgw_pico_t;


static int64_t ngx_modelgw_cost_ceil(ngx_modelgw_pico_t pico);
static uint64_t ngx_modelgw_cost_dearest(ngx_modelgw_price_t *price,
    ngx_uint_t long_cache);
static ngx_modelgw_outcome_e ngx_modelgw_charge_outcome(
    ngx_modelgw_seen_t *seen);
static void ngx_modelgw_charge_input(ngx_modelgw_seen_t *seen, int64_t estimate,
    ngx_modelgw_tokens_t *tokens);
static int64_t ngx_modelgw_charge_output(ngx_modelgw_seen_t *seen);
static ngx_uint_t ngx_modelgw_charge_final(ngx_modelgw_seen_t *seen);
static int64_t ngx_modelgw_charge_count(int64_t n);
static ngx_int_t ngx_modelgw_decimal(ngx_str_t *text, ngx_uint_t max,
    uint64_t *n);
static u_char *ngx_modelgw_digits(u_char *p, u_char *last, ngx_uint_t max,
    uint64_t *n);


int64_t
ngx_modelgw_cost(ngx_modelgw_price_t *price, ngx_modelgw_tokens_t *tokens)
{
    ngx_modelgw_pico_t  pico;

    pico = (ngx_modelgw_pico_t) tokens->input * price->input
           + (ngx_modelgw_pico_t) tokens->cache_read * price->cache_read
           + (ngx_modelgw_pico_t) tokens->cache_write * price->cache_write
           + (ngx_modelgw_pico_t) tokens->cache_write_1h
             * price->cache_write_1h
           + (ngx_modelgw_pico_t) tokens->output * price->output;

    return ngx_modelgw_cost_ceil(pico);
}


int64_t
ngx_modelgw_cost_bound(ngx_modelgw_price_t *price, int64_t input,
    int64_t output, ngx_uint_t long_cache)
{
    ngx_modelgw_pico_t  pico;

    pico = (ngx_modelgw_pico_t) input
           * ngx_modelgw_cost_dearest(price, long_cache)
           + (ngx_modelgw_pico_t) output * price->output;

    return ngx_modelgw_cost_ceil(pico);
}


int64_t
ngx_modelgw_cost_fits(ngx_modelgw_price_t *price, int64_t input,
    ngx_uint_t long_cache, int64_t available)
{
    ngx_modelgw_pico_t  spent, all, n;

    if (available < 0) {
        return 0;
    }

    spent = (ngx_modelgw_pico_t) input
            * ngx_modelgw_cost_dearest(price, long_cache);
    all = (ngx_modelgw_pico_t) available * 1000;

    if (spent > all) {
        return 0;
    }

    if (price->output == 0) {
        return NGX_MODELGW_COST_COUNT;
    }

    n = (all - spent) / price->output;

    return (n < NGX_MODELGW_COST_COUNT) ? (int64_t) n : NGX_MODELGW_COST_COUNT;
}


/*
 * The bound of an absurd number of tokens is limited to INT64_MAX.  Costs of
 * real calls usually fit into 64 bits, whose division is a multiplication.
 */

static int64_t
ngx_modelgw_cost_ceil(ngx_modelgw_pico_t pico)
{
    pico += 999;

    if (pico <= UINT64_MAX) {
        return (uint64_t) pico / 1000;
    }

    pico /= 1000;

    return (pico < INT64_MAX) ? (int64_t) pico : INT64_MAX;
}


static uint64_t
ngx_modelgw_cost_dearest(ngx_modelgw_price_t *price, ngx_uint_t long_cache)
{
    uint64_t  dearest;

    dearest = ngx_max(price->input, price->cache_read);
    dearest = ngx_max(dearest, price->cache_write);

    return long_cache ? ngx_max(dearest, price->cache_write_1h) : dearest;
}


void
ngx_modelgw_charge(ngx_modelgw_price_t *price, int64_t hold, int64_t estimate,
    ngx_modelgw_seen_t *seen, ngx_modelgw_charge_t *charge)
{
    ngx_modelgw_tokens_t  *tokens;

    ngx_memzero(charge, sizeof(ngx_modelgw_charge_t));

    tokens = &charge->tokens;
    charge->outcome = ngx_modelgw_charge_outcome(seen);

    switch (charge->outcome) {

    case NGX_MODELGW_REPORTED:
    case NGX_MODELGW_ESTIMATED:
        ngx_modelgw_charge_input(seen, estimate, tokens);
        tokens->output = ngx_modelgw_charge_output(seen);
        tokens->reasoning = ngx_modelgw_charge_count(seen->reasoning);
        break;

    case NGX_MODELGW_UNANSWERED:
        tokens->input = ngx_modelgw_charge_count(estimate);
        break;

    default:
        return;
    }

    charge->cost = ngx_modelgw_cost(price, tokens);

    if (charge->outcome != NGX_MODELGW_REPORTED) {
        charge->cost = ngx_min(charge->cost, hold);
    }
}


static ngx_modelgw_outcome_e
ngx_modelgw_charge_outcome(ngx_modelgw_seen_t *seen)
{
    if (seen->flags & NGX_MODELGW_SEEN_UNSENT) {
        return NGX_MODELGW_UNSENT;
    }

    if (seen->flags & NGX_MODELGW_SEEN_UNREAD) {
        return NGX_MODELGW_REFUSED;
    }

    if (ngx_modelgw_charge_final(seen)
        && seen->input >= 0
        && !(seen->flags & NGX_MODELGW_SEEN_ODD))
    {
        return NGX_MODELGW_REPORTED;
    }

    if (seen->status >= 300) {
        return NGX_MODELGW_REFUSED;
    }

    return (seen->status >= 200) ? NGX_MODELGW_ESTIMATED
                                 : NGX_MODELGW_UNANSWERED;
}


/*
 * The estimate is that of the whole input: if only its cached part is reported,
 * the estimate is used for the rest.
 */

static void
ngx_modelgw_charge_input(ngx_modelgw_seen_t *seen, int64_t estimate,
    ngx_modelgw_tokens_t *tokens)
{
    int64_t  cached;

    tokens->cache_read = ngx_modelgw_charge_count(seen->cache_read);
    tokens->cache_write_1h = ngx_modelgw_charge_count(seen->cache_write_1h);
    tokens->cache_write = ngx_modelgw_charge_count(
                                                ngx_max(seen->cache_write, 0)
                                                - tokens->cache_write_1h);

    if (seen->input >= 0) {
        tokens->input = ngx_modelgw_charge_count(seen->input);
        return;
    }

    cached = tokens->cache_read + tokens->cache_write + tokens->cache_write_1h;
    tokens->input = ngx_modelgw_charge_count(estimate - cached);
}


static int64_t
ngx_modelgw_charge_output(ngx_modelgw_seen_t *seen)
{
    int64_t  text;

    if (ngx_modelgw_charge_final(seen)) {
        return ngx_modelgw_charge_count(seen->output);
    }

    text = seen->text / NGX_MODELGW_COST_BYTES
           + (seen->text % NGX_MODELGW_COST_BYTES != 0);

    return ngx_modelgw_charge_count(ngx_max(seen->output, text));
}


static ngx_uint_t
ngx_modelgw_charge_final(ngx_modelgw_seen_t *seen)
{
    return (seen->flags & NGX_MODELGW_SEEN_FINAL) && seen->output >= 0;
}


static int64_t
ngx_modelgw_charge_count(int64_t n)
{
    return ngx_min(ngx_max(n, 0), NGX_MODELGW_COST_COUNT);
}


void
ngx_modelgw_seen_init(ngx_modelgw_seen_t *seen)
{
    seen->input = -1;
    seen->cache_read = -1;
    seen->cache_write = -1;
    seen->cache_write_1h = -1;
    seen->output = -1;
    seen->reasoning = -1;
    seen->text = 0;
    seen->status = 0;
    seen->flags = 0;
}


void
ngx_modelgw_seen_usage(ngx_modelgw_seen_t *seen, ngx_modelgw_usage_t *usage)
{
    uint32_t  flags;

    seen->input = usage->input;
    seen->cache_read = usage->cache_read;
    seen->cache_write = usage->cache_write;
    seen->cache_write_1h = usage->cache_write_1h;
    seen->output = usage->output;
    seen->reasoning = usage->reasoning;

    flags = seen->flags & ~(NGX_MODELGW_SEEN_FINAL|NGX_MODELGW_SEEN_ODD);

    if (usage->final) {
        flags |= NGX_MODELGW_SEEN_FINAL;
    }

    if (usage->odd) {
        flags |= NGX_MODELGW_SEEN_ODD;
    }

    seen->flags = flags;
}


const char *
ngx_modelgw_outcome_name(ngx_modelgw_outcome_e outcome)
{
    switch (outcome) {

    case NGX_MODELGW_REPORTED:
        return "reported";

    case NGX_MODELGW_ESTIMATED:
        return "estimated";

    case NGX_MODELGW_UNANSWERED:
        return "unanswered";

    case NGX_MODELGW_REFUSED:
        return "refused";

    default: /* NGX_MODELGW_UNSENT */
        return "unsent";
    }
}


ngx_int_t
ngx_modelgw_price_parse(ngx_str_t *text, uint64_t *price)
{
    return ngx_modelgw_decimal(text, NGX_MODELGW_PRICE_DIGITS, price);
}


ngx_int_t
ngx_modelgw_amount_parse(ngx_str_t *text, int64_t *nano)
{
    uint64_t  n;

    if (ngx_modelgw_decimal(text, NGX_MODELGW_COST_DIGITS, &n) != NGX_OK
        || n > NGX_MODELGW_COST_AMOUNT * NGX_MODELGW_COST_EURO)
    {
        return NGX_DECLINED;
    }

    *nano = n;

    return NGX_OK;
}


/*
 * Reads a number with 1 to max digits on either side of the point as an integer
 * of units of 10^-max; max is at most 9, so that it fits.
 *     NGX_OK        *n is set
 *     NGX_DECLINED  text is no such number
 */

static ngx_int_t
ngx_modelgw_decimal(ngx_str_t *text, ngx_uint_t max, uint64_t *n)
{
    u_char      *p, *last, *start;
    uint64_t     value;
    ngx_uint_t   decimals;

    value = 0;
    decimals = 0;
    last = text->data + text->len;

    p = ngx_modelgw_digits(text->data, last, max, &value);

    if (p == text->data) {
        return NGX_DECLINED;
    }

    if (p < last && *p == '.') {
        start = ++p;
        p = ngx_modelgw_digits(p, last, max, &value);
        decimals = p - start;

        if (decimals == 0) {
            return NGX_DECLINED;
        }
    }

    if (p < last) {
        return NGX_DECLINED;
    }

    for ( /* void */ ; decimals < max; decimals++) {
        value *= 10;
    }

    *n = value;

    return NGX_OK;
}


/* Appends up to max digits to *n; returns where it stopped. */

static u_char *
ngx_modelgw_digits(u_char *p, u_char *last, ngx_uint_t max, uint64_t *n)
{
    if ((size_t) (last - p) > max) {
        last = p + max;
    }

    for ( /* void */ ; p < last && *p >= '0' && *p <= '9'; p++) {
        *n = *n * 10 + (*p - '0');
    }

    return p;
}


u_char *
ngx_modelgw_amount(u_char *p, int64_t nano)
{
    uint64_t    n, rest, unit;
    ngx_uint_t  digits;

    n = nano;

    if (nano < 0) {
        *p++ = '-';
        n = 0 - n;
    }

    p = ngx_sprintf(p, "%uL.", n / NGX_MODELGW_COST_EURO);

    rest = n % NGX_MODELGW_COST_EURO;
    unit = NGX_MODELGW_COST_EURO / 10;

    for (digits = 0; digits < 2 || rest; digits++) {
        *p++ = (u_char) ('0' + rest / unit);
        rest %= unit;
        unit /= 10;
    }

    return p;
}


void
ngx_modelgw_amount_out(ngx_modelgw_out_t *out, int64_t nano)
{
    u_char  *last, buf[NGX_MODELGW_AMOUNT_LEN];

    last = ngx_modelgw_amount(buf, nano);

    ngx_modelgw_out_text(out, "\"");
    ngx_modelgw_out(out, buf, last - buf);
    ngx_modelgw_out_text(out, "\"");
}
