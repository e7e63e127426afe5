
/*
 * Limits per minute: how much of one is used, and when there is room again.
 *
 * A sliding window: what was taken in the current minute, and of the minute
 * before the part that is less than 60 seconds old, as if it had been taken
 * evenly.  A minute begins with the first request after a pause.  A burst of
 * the whole limit passes at once; the minute that begins with its first call
 * takes no more than the limit, and neither does any other minute of a client
 * that uses all it gets.  (A token bucket with the same burst admits twice the
 * limit in its first minute.)  A client that waits until the end of a minute
 * gets at most twice the limit in 60 seconds, once; to be exact would take a
 * list of all calls.
 */


#ifndef _NGX_MODELGW_LIMIT_H_INCLUDED_
#define _NGX_MODELGW_LIMIT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * In shared memory, zero at first; the caller holds a lock.
 *
 * _take() changes the words one by one, in any order, and not by a redo record:
 * if a process is killed in the middle of it when a minute ends, what was taken
 * in that minute may be counted twice, or not at all.  So a key gets too little
 * or too much for two minutes at most; these are only limits, never money.
 */

typedef struct {
    uint64_t              minute;        /* ms, when the current one began */
    uint64_t              now;           /* taken in it */
    uint64_t              before;        /* taken in the one before it */
} ngx_modelgw_limit_t;


typedef struct {
    uint64_t              remaining;     /* of the limit */
    uint64_t              wait;          /* ms until n fits; 0: it did */
    uint64_t              reset;         /* ms until the whole limit is free */
} ngx_modelgw_limit_state_t;


/*
 * Takes n of a limit per minute; n above the limit is taken as the limit.  time
 * is milliseconds of a monotonic clock that all workers share.  *state is set
 * in both cases.
 *     NGX_OK        taken
 *     NGX_DECLINED  there is no room, nothing was taken
 */
ngx_int_t ngx_modelgw_limit_take(ngx_modelgw_limit_t *l, uint64_t limit,
    uint64_t n, uint64_t time, ngx_modelgw_limit_state_t *state);

/*
 * Corrects what a call has taken to what it has used, higher or lower, whenever
 * it was taken.
 */
void ngx_modelgw_limit_correct(ngx_modelgw_limit_t *l, uint64_t taken,
    uint64_t used, uint64_t time);

/* Sets *state, whose "wait" is that for one; nothing is taken. */
void ngx_modelgw_limit_state(ngx_modelgw_limit_t *l, uint64_t limit,
    uint64_t time, ngx_modelgw_limit_state_t *state);


#endif /* _NGX_MODELGW_LIMIT_H_INCLUDED_ */
