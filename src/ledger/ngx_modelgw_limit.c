
/*
 * Limits per minute.
 *
 * A minute begins with the first request after a pause, not with a minute of
 * the clock: so the 60 seconds from the first call take exactly the limit,
 * whenever that call is made, and a burst at the end of a minute of the clock
 * cannot be followed by another one.
 *
 * What is left of the previous minute is always rounded down.  Otherwise, taken
 * one by one, the last one would never fit in its minute, and a limit of 60
 * would be one of 59.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_limit.h"


#define NGX_MODELGW_LIMIT_MINUTE  60000ULL  /* milliseconds */
#define NGX_MODELGW_LIMIT_MOST    1000000000000ULL  /* taken at most; times
                                                       a minute it fits into
                                                       64 bits */


static uint64_t ngx_modelgw_limit_advance(ngx_modelgw_limit_t *l,
    uint64_t time);
static uint64_t ngx_modelgw_limit_used(ngx_modelgw_limit_t *l, uint64_t time);
static uint64_t ngx_modelgw_limit_wait(ngx_modelgw_limit_t *l, uint64_t limit,
    uint64_t n, uint64_t time);
static uint64_t ngx_modelgw_limit_decay(uint64_t taken, uint64_t room);
static void ngx_modelgw_limit_report(ngx_modelgw_limit_t *l, uint64_t limit,
    uint64_t used, uint64_t time, ngx_modelgw_limit_state_t *state);


ngx_int_t
ngx_modelgw_limit_take(ngx_modelgw_limit_t *l, uint64_t limit, uint64_t n,
    uint64_t time, ngx_modelgw_limit_state_t *state)
{
    uint64_t  used;

    used = ngx_modelgw_limit_advance(l, time);

    n = ngx_min(n, limit);

    if (used + n > limit) {
        state->wait = ngx_modelgw_limit_wait(l, limit, n, time);
        ngx_modelgw_limit_report(l, limit, used, time, state);

        return NGX_DECLINED;
    }

    l->now += n;

    state->wait = 0;
    ngx_modelgw_limit_report(l, limit, used + n, time, state);

    return NGX_OK;
}


/*
 * When it was taken is not known: most calls end in the minute that they began
 * in, and what is subtracted from the wrong minute of the two is still
 * subtracted from their sum.
 */

void
ngx_modelgw_limit_correct(ngx_modelgw_limit_t *l, uint64_t taken,
    uint64_t used, uint64_t time)
{
    uint64_t  n, now;

    (void) ngx_modelgw_limit_advance(l, time);

    if (used >= taken) {
        n = ngx_min(used - taken, NGX_MODELGW_LIMIT_MOST);
        l->now = ngx_min(l->now + n, NGX_MODELGW_LIMIT_MOST);
        return;
    }

    n = taken - used;
    now = ngx_min(l->now, n);

    l->now -= now;
    l->before -= ngx_min(l->before, n - now);
}


void
ngx_modelgw_limit_state(ngx_modelgw_limit_t *l, uint64_t limit, uint64_t time,
    ngx_modelgw_limit_state_t *state)
{
    uint64_t             used, n;
    ngx_modelgw_limit_t  copy;

    copy = *l;
    n = ngx_min(1, limit);

    used = ngx_modelgw_limit_advance(&copy, time);

    state->wait = (used + n > limit)
                  ? ngx_modelgw_limit_wait(&copy, limit, n, time) : 0;

    ngx_modelgw_limit_report(&copy, limit, used, time, state);
}


/* Makes "now" the minute that the time is in; returns how much is used. */

static uint64_t
ngx_modelgw_limit_advance(ngx_modelgw_limit_t *l, uint64_t time)
{
    uint64_t  used;

    /*
     * The clock went back: what was taken counts for a minute from here; to
     * wait for the old time might refuse requests for much longer.
     */

    if (time < l->minute) {
        l->minute = time;
    }

    if (time - l->minute >= NGX_MODELGW_LIMIT_MINUTE) {
        l->before = l->now;
        l->now = 0;
        l->minute += NGX_MODELGW_LIMIT_MINUTE;

        if (time - l->minute >= NGX_MODELGW_LIMIT_MINUTE) {
            l->before = 0;
            l->minute = time;
        }
    }

    used = ngx_modelgw_limit_used(l, time);

    /* all is free: the next minute begins here */

    if (used == 0) {
        l->before = 0;
        l->minute = time;
    }

    return used;
}


static uint64_t
ngx_modelgw_limit_used(ngx_modelgw_limit_t *l, uint64_t time)
{
    uint64_t  left;

    /* after 1 ms of this minute the first ms of the last one has expired */

    left = NGX_MODELGW_LIMIT_MINUTE - 1 - (time - l->minute);

    return l->now + l->before * left / NGX_MODELGW_LIMIT_MINUTE;
}


/* Milliseconds until n fits, which it does not now. */

static uint64_t
ngx_modelgw_limit_wait(ngx_modelgw_limit_t *l, uint64_t limit, uint64_t n,
    uint64_t time)
{
    uint64_t  passed;

    passed = time - l->minute;

    if (l->now + n <= limit) {
        return ngx_modelgw_limit_decay(l->before, limit - n - l->now) - passed;
    }

    return NGX_MODELGW_LIMIT_MINUTE - passed
           + ngx_modelgw_limit_decay(l->now, limit - n);
}


/*
 * The first millisecond of a minute when at most "room" is left of "taken" in
 * the minute before, which is more than room.
 */

static uint64_t
ngx_modelgw_limit_decay(uint64_t taken, uint64_t room)
{
    return NGX_MODELGW_LIMIT_MINUTE - 1
           - ((room + 1) * NGX_MODELGW_LIMIT_MINUTE - 1) / taken;
}


static void
ngx_modelgw_limit_report(ngx_modelgw_limit_t *l, uint64_t limit, uint64_t used,
    uint64_t time, ngx_modelgw_limit_state_t *state)
{
    state->remaining = (used < limit) ? limit - used : 0;
    state->reset = used ? ngx_modelgw_limit_wait(l, limit, limit, time) : 0;
}
