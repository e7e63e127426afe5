
/*
 * Limits a minute.
 *
 * What is used of a limit is what was taken in this minute, and of the minute
 * before that part which is less than 60 seconds old, as if it had come evenly.
 * A minute begins with the first that is taken after a pause, not with the
 * clock's: so 60 seconds from the first call are the limit exactly, whenever
 * that call comes, and a burst at the end of a minute of the clock with another
 * behind it is not let through.
 *
 * All arithmetic rounds what is left of the minute before down: taken one by
 * one, the last of it would else never come in that minute, and a limit of 60
 * would be one of 59.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_limit.h"


#define NGX_MODELGW_LIMIT_MINUTE  60000ULL  /* milliseconds */
#define NGX_MODELGW_LIMIT_MOST    1000000000000ULL  /* times a minute it
                                                       fits into 64 bits */


static uint64_t ngx_modelgw_limit_advance(ngx_modelgw_limit_t *l,
    uint64_t time);
static uint64_t ngx_modelgw_limit_used(ngx_modelgw_limit_t *l, uint64_t time);
static uint64_t ngx_modelgw_limit_wait(ngx_modelgw_limit_t *l, uint64_t limit,
    uint64_t n, uint64_t time);
static uint64_t ngx_modelgw_limit_decay(uint64_t taken, uint64_t room);
static void ngx_modelgw_limit_tell(ngx_modelgw_limit_t *l, uint64_t limit,
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
        ngx_modelgw_limit_tell(l, limit, used, time, state);

        return NGX_DECLINED;
    }

    l->now += n;

    state->wait = 0;
    ngx_modelgw_limit_tell(l, limit, used + n, time, state);

    return NGX_OK;
}


/*
 * When it was taken is not known: most calls end in the minute that they began
 * in, and what is taken off the wrong one of the two is off the sum of both all
 * the same.
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

    ngx_modelgw_limit_tell(&copy, limit, used, time, state);
}


/*
 * From here on the time is in the minute that "now" counts.  Returns how much
 * is used.
 */

static uint64_t
ngx_modelgw_limit_advance(ngx_modelgw_limit_t *l, uint64_t time)
{
    uint64_t  used;

    /* a clock that went back: what was taken stays so, for a minute from here;
       one that waits for the old time would refuse for as long as it takes */

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

    /* with the first millisecond of this minute the first of the last has
       passed */

    left = NGX_MODELGW_LIMIT_MINUTE - 1 - (time - l->minute);

    return l->now + l->before * left / NGX_MODELGW_LIMIT_MINUTE;
}


/* Milliseconds until n fits, which it does not yet. */

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
 * The first millisecond of a minute at which not more than room is left of what
 * was taken in the minute before; that is more than room.
 */

static uint64_t
ngx_modelgw_limit_decay(uint64_t taken, uint64_t room)
{
    return NGX_MODELGW_LIMIT_MINUTE - 1
           - ((room + 1) * NGX_MODELGW_LIMIT_MINUTE - 1) / taken;
}


static void
ngx_modelgw_limit_tell(ngx_modelgw_limit_t *l, uint64_t limit, uint64_t used,
    uint64_t time, ngx_modelgw_limit_state_t *state)
{
    state->remaining = (used < limit) ? limit - used : 0;
    state->reset = used ? ngx_modelgw_limit_wait(l, limit, limit, time) : 0;
}
