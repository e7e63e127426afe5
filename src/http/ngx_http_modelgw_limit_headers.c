
/*
 * What an answer tells of the limits of its key.
 *
 * The names and forms are those that each API has; the official SDKs themselves
 * go by Retry-After alone.  Six headers go with each answer, so their values
 * have their room beside what they are made of, and are written without
 * ngx_sprintf(), from the end.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_headers.h"


#define NGX_HTTP_MODELGW_LIMIT_DAY  86400    /* seconds */


/* how one API names and writes them; left: milliseconds */

typedef struct {
    const char                   *limit;
    const char                   *remaining;
    const char                   *reset;
    u_char                     *(*time)(u_char *last, uint64_t left);
} ngx_http_modelgw_limit_header_t;


static void ngx_http_modelgw_limit_look(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_limit_header(ngx_http_request_t *r,
    ngx_http_modelgw_limit_header_t *h, ngx_http_modelgw_limit_told_t *told);
static ngx_int_t ngx_http_modelgw_limit_add(ngx_http_request_t *r,
    const char *name, u_char *value, u_char *last);
static u_char *ngx_http_modelgw_limit_digits(u_char *last, uint32_t n);
static u_char *ngx_http_modelgw_limit_duration(u_char *last, uint64_t left);
static u_char *ngx_http_modelgw_limit_date(u_char *last, uint64_t left);


static ngx_http_modelgw_limit_header_t  ngx_http_modelgw_limit_chat[] = {

    { "x-ratelimit-limit-requests",
      "x-ratelimit-remaining-requests",
      "x-ratelimit-reset-requests",
      ngx_http_modelgw_limit_duration },

    { "x-ratelimit-limit-tokens",
      "x-ratelimit-remaining-tokens",
      "x-ratelimit-reset-tokens",
      ngx_http_modelgw_limit_duration }
};


static ngx_http_modelgw_limit_header_t  ngx_http_modelgw_limit_messages[] = {

    { "anthropic-ratelimit-requests-limit",
      "anthropic-ratelimit-requests-remaining",
      "anthropic-ratelimit-requests-reset",
      ngx_http_modelgw_limit_date },

    { "anthropic-ratelimit-tokens-limit",
      "anthropic-ratelimit-tokens-remaining",
      "anthropic-ratelimit-tokens-reset",
      ngx_http_modelgw_limit_date }
};


ngx_int_t
ngx_http_modelgw_limit_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_limit_header_t  *h;

    if (ctx->limits == NULL) {
        return NGX_OK;
    }

    if (ctx->limits->tokens.limit && !ctx->limits->taken) {
        ngx_http_modelgw_limit_look(r, ctx);
    }

    h = (ctx->endpoint->protocol == NGX_MODELGW_CHAT)
        ? ngx_http_modelgw_limit_chat : ngx_http_modelgw_limit_messages;

    if (ngx_http_modelgw_limit_header(r, &h[0], &ctx->limits->requests)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_limit_header(r, &h[1], &ctx->limits->tokens);
}


/* Tokens of a call that was refused before it took any. */

static void
ngx_http_modelgw_limit_look(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_ledger_key_t       *key;
    ngx_http_modelgw_main_conf_t   *mmcf;
    ngx_http_modelgw_limit_told_t  *told;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    key = ngx_modelgw_ledger_key_at(mmcf->ledger, ctx->key->slot);

    told = &ctx->limits->tokens;
    told->time = ngx_current_msec;

    ngx_modelgw_ledger_lock(mmcf->ledger);

    ngx_modelgw_limit_state(&key->tpm, told->limit, told->time, &told->state);

    ngx_modelgw_ledger_unlock(mmcf->ledger);
}


static ngx_int_t
ngx_http_modelgw_limit_header(ngx_http_request_t *r,
    ngx_http_modelgw_limit_header_t *h, ngx_http_modelgw_limit_told_t *told)
{
    u_char    *limit, *remaining, *reset;
    uint32_t   rest;
    uint64_t   left, passed;

    if (told->limit == 0) {
        return NGX_OK;
    }

    /* the call may have run for longer than that: all is free by then */

    passed = ngx_current_msec - told->time;

    if (told->state.reset > passed) {
        left = told->state.reset - passed;
        rest = told->state.remaining;

    } else {
        left = 0;
        rest = told->limit;
    }

    limit = told->limit_text + sizeof(told->limit_text);
    remaining = told->remaining_text + sizeof(told->remaining_text);
    reset = told->reset_text + sizeof(told->reset_text);

    if (ngx_http_modelgw_limit_add(r, h->limit,
                   ngx_http_modelgw_limit_digits(limit, told->limit), limit)
        != NGX_OK
        || ngx_http_modelgw_limit_add(r, h->remaining,
                   ngx_http_modelgw_limit_digits(remaining, rest), remaining)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_limit_add(r, h->reset, h->time(reset, left),
                                      reset);
}


static ngx_int_t
ngx_http_modelgw_limit_add(ngx_http_request_t *r, const char *name,
    u_char *value, u_char *last)
{
    ngx_str_t  text;

    text.data = value;
    text.len = last - value;

    return ngx_http_modelgw_headers_add(r, name, &text);
}


/*
 * Ends at last; returns where it begins, as the next two do.  Two digits at a
 * time: a limit of tokens has many.
 */

static u_char *
ngx_http_modelgw_limit_digits(u_char *last, uint32_t n)
{
    static u_char  pairs[] = "00010203040506070809"
                             "10111213141516171819"
                             "20212223242526272829"
                             "30313233343536373839"
                             "40414243444546474849"
                             "50515253545556575859"
                             "60616263646566676869"
                             "70717273747576777879"
                             "80818283848586878889"
                             "90919293949596979899";

    while (n >= 100) {
        last -= 2;
        ngx_memcpy(last, &pairs[n % 100 * 2], 2);
        n /= 100;
    }

    if (n < 10) {
        *--last = (u_char) ('0' + n);
        return last;
    }

    last -= 2;
    ngx_memcpy(last, &pairs[n * 2], 2);

    return last;
}


/*
 * "20ms", "12s", "1m30s": no fraction of a second, which some who read this do
 * not know.
 */

static u_char *
ngx_http_modelgw_limit_duration(u_char *last, uint64_t left)
{
    uint32_t  seconds;

    *--last = 's';

    if (left > 0 && left < 1000) {
        *--last = 'm';
        return ngx_http_modelgw_limit_digits(last, left);
    }

    seconds = (left + 999) / 1000;

    last = ngx_http_modelgw_limit_digits(last, seconds % 60);

    if (seconds >= 60) {
        *--last = 'm';
        last = ngx_http_modelgw_limit_digits(last, seconds / 60);
    }

    return last;
}


/* RFC 3339, UTC; the day is the same for many */

static u_char *
ngx_http_modelgw_limit_date(u_char *last, uint64_t left)
{
    u_char         *p;
    time_t          t;
    ngx_tm_t        tm;
    ngx_uint_t      i, n[3];
    ngx_time_t     *tp;

    static time_t   day = -1;
    static u_char   text[] = "1970-01-01T00:00:00Z";

    tp = ngx_timeofday();
    t = tp->sec + (tp->msec + left + 999) / 1000;

    if (t / NGX_HTTP_MODELGW_LIMIT_DAY != day) {
        day = t / NGX_HTTP_MODELGW_LIMIT_DAY;

        ngx_gmtime(t, &tm);
        (void) ngx_sprintf(text, "%4d-%02d-%02d", tm.ngx_tm_year,
                           tm.ngx_tm_mon, tm.ngx_tm_mday);
    }

    last -= sizeof(text) - 1;
    ngx_memcpy(last, text, sizeof(text) - 1);

    n[0] = t % NGX_HTTP_MODELGW_LIMIT_DAY / 3600;
    n[1] = t % 3600 / 60;
    n[2] = t % 60;

    p = last + sizeof("1970-01-01T") - 1;

    for (i = 0; i < 3; i++) {
        p[0] = (u_char) ('0' + n[i] / 10);
        p[1] = (u_char) ('0' + n[i] % 10);
        p += sizeof("00:") - 1;
    }

    return last;
}
