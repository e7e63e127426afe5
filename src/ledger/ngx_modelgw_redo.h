
/*
 * A mutex that survives its owner, and the record of what the owner was about
 * to change: shared memory that is consistent whenever a process is killed.
 *
 *     ngx_modelgw_redo_lock(redo);
 *     ngx_modelgw_redo_add(redo, word, value);
 *     ...
 *     ngx_modelgw_redo_commit(redo);
 *     ngx_modelgw_redo_unlock(redo);
 *
 * What was added happens in _commit(), all of it or nothing.
 */


#ifndef _NGX_MODELGW_REDO_H_INCLUDED_
#define _NGX_MODELGW_REDO_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <pthread.h>


#define NGX_MODELGW_REDO_WORDS  16


typedef struct {
    uint64_t                  *word;
    uint64_t                   value;    /* that it gets */
} ngx_modelgw_redo_word_t;


typedef struct {
    pthread_mutex_t            mutex;
    uint64_t                   n;        /* gathered so far */
    uint64_t                   committed; /* how many are to be applied; 0:
                                            nothing is under way */
    ngx_modelgw_redo_word_t    words[NGX_MODELGW_REDO_WORDS];
} ngx_modelgw_redo_t;


/*
 * Mutexes of processes that share memory; the owner is a thread.  One whose
 * owner has died is locked like any other.
 *     init     NGX_OK, NGX_ERROR (there are none here)
 *     trylock  NGX_OK, NGX_BUSY
 */
ngx_int_t ngx_modelgw_redo_mutex_init(pthread_mutex_t *mutex);
void ngx_modelgw_redo_mutex_lock(pthread_mutex_t *mutex);
ngx_int_t ngx_modelgw_redo_mutex_trylock(pthread_mutex_t *mutex);
void ngx_modelgw_redo_mutex_unlock(pthread_mutex_t *mutex);

/* The memory is all zero: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_redo_init(ngx_modelgw_redo_t *redo);

/* Finishes first what a dead owner had committed. */
void ngx_modelgw_redo_lock(ngx_modelgw_redo_t *redo);
void ngx_modelgw_redo_unlock(ngx_modelgw_redo_t *redo);

/* Makes the changes that were added; they are seen in the order of adding. */
void ngx_modelgw_redo_commit(ngx_modelgw_redo_t *redo);


/*
 * Adds a change; at most NGX_MODELGW_REDO_WORDS of them, each of another word.
 * Values are absolute, so that it does not matter how often they are stored.
 */

static ngx_inline void
ngx_modelgw_redo_add(ngx_modelgw_redo_t *redo, uint64_t *word, uint64_t value)
{
    ngx_modelgw_redo_word_t  *w;

    w = &redo->words[redo->n++];
    w->word = word;
    w->value = value;
}


#endif /* _NGX_MODELGW_REDO_H_INCLUDED_ */
