
/*
 * A mutex that survives its owner, and a record of the changes that the owner
 * is about to make: shared memory that is consistent whenever a process is
 * killed.
 *
 *     ngx_modelgw_redo_lock(redo);
 *     ngx_modelgw_redo_add(redo, word, value);
 *     ...
 *     ngx_modelgw_redo_commit(redo);
 *     ngx_modelgw_redo_unlock(redo);
 *
 * The changes are made in _commit(), all of them or none.
 */


#ifndef _NGX_MODELGW_REDO_H_INCLUDED_
#define _NGX_MODELGW_REDO_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <pthread.h>


#define NGX_MODELGW_REDO_WORDS  16


typedef struct {
    uint64_t                  *word;
    uint64_t                   value;    /* the new one */
} ngx_modelgw_redo_word_t;


typedef struct {
    pthread_mutex_t            mutex;
    uint64_t                   n;        /* changes gathered so far */
    uint64_t                   committed; /* changes to be applied; 0: none */
    ngx_modelgw_redo_word_t    words[NGX_MODELGW_REDO_WORDS];
} ngx_modelgw_redo_t;


/*
 * Mutexes in shared memory, owned by threads.  One whose owner has died is
 * locked like any other.  If a mutex is damaged, the process is aborted.
 *     init     NGX_OK, NGX_ERROR (not supported)
 *     trylock  NGX_OK, NGX_BUSY (another thread has it)
 */
ngx_int_t ngx_modelgw_redo_mutex_init(pthread_mutex_t *mutex);
void ngx_modelgw_redo_mutex_lock(pthread_mutex_t *mutex);
ngx_int_t ngx_modelgw_redo_mutex_trylock(pthread_mutex_t *mutex);
void ngx_modelgw_redo_mutex_unlock(pthread_mutex_t *mutex);

/* redo must be zeroed: NGX_OK, NGX_ERROR (not supported). */
ngx_int_t ngx_modelgw_redo_init(ngx_modelgw_redo_t *redo);

/* Locks; the changes that a dead owner had committed are finished first. */
void ngx_modelgw_redo_lock(ngx_modelgw_redo_t *redo);
void ngx_modelgw_redo_unlock(ngx_modelgw_redo_t *redo);

/* Makes the changes that were added, in that order. */
void ngx_modelgw_redo_commit(ngx_modelgw_redo_t *redo);


/*
 * Adds a change, at most NGX_MODELGW_REDO_WORDS of them, each of another word.
 * Values are absolute, so they may be stored any number of times.
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
