
/*
 * Limits a minute: how much of one is used, and when there is room again.
 *
 * A sliding window: what was taken in this minute, and the part of the minute
 * before that is still less than 60 seconds old, as if that had come evenly.  A
 * minute begins with the first that is taken after a pause.  A burst of the
 * whole limit passes at once; over the minute from the first call on it is the
 * limit, and so it is over any minute for who asks for all that he gets.  (A
 * token bucket of the same burst admits twice the limit in its first minute.)
 * Who holds back until the end of a minute gets at most twice the limit in 60
 * seconds, once; exact would be a list of all calls.
 */


#ifndef _NGX_MODELGW_LIMIT_H_INCLUDED_
#define _NGX_MODELGW_LIMIT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * In shared memory, all zero to begin with; the caller has a lock.
 *
 * _take() changes the words one by one, in no order, and not by a redo record:
 * who is killed in the middle of it as a minute ends may leave what that minute
 * took counted twice, or not at all.  So a key gets too little or too much for
 * two minutes at most; these are limits only, never money.
 */

typedef struct {
    uint64_t              minute;        /* when the one began that "now"
                                            counts, in milliseconds */
    uint64_t              now;           /* taken in it */
    uint64_t              before;        /* taken in the one before */
} ngx_modelgw_limit_t;


typedef struct {
    uint64_t              remaining;     /* after this */
    uint64_t              wait;          /* milliseconds until n fits; 0: it
                                            did */
    uint64_t              reset;         /* milliseconds until all is free */
} ngx_modelgw_limit_state_t;


/*
 * Takes n of a limit a minute; n above the limit is taken as the limit.  time
 * is milliseconds of a monotonic clock that all workers share.  state is set in
 * both cases.
 *     NGX_OK        taken
 *     NGX_DECLINED  there is no room, nothing was taken
 */
ngx_int_t ngx_modelgw_limit_take(ngx_modelgw_limit_t *l, uint64_t limit,
    uint64_t n, uint64_t time, ngx_modelgw_limit_state_t *state);

/*
 * Corrects what a call took (taken) to what it really was (used), higher or
 * lower, whenever it was taken.
 */
void ngx_modelgw_limit_correct(ngx_modelgw_limit_t *l, uint64_t taken,
    uint64_t used, uint64_t time);

/* How it stands; nothing is taken.  wait is for one. */
void ngx_modelgw_limit_state(ngx_modelgw_limit_t *l, uint64_t limit,
    uint64_t time, ngx_modelgw_limit_state_t *state);


#endif /* _NGX_MODELGW_LIMIT_H_INCLUDED_ */
