
/*
 * A robust mutex with a redo record.
 *
 *     gather    words and values are recorded, nothing is changed
 *     commit    the count is stored: from here on the changes are made
 *     apply     each value is stored in its word
 *     clear     the count is 0 again
 *
 * A process killed before the commit has changed nothing: what it gathered is
 * dropped.  The changes of a process killed after it are finished by the next
 * owner of the mutex, before that one reads anything.  Meanwhile the words have
 * not changed, as all of them are protected by the mutex.  If that owner is
 * killed as well, the next one finishes them.
 *
 * The order of these stores is all that this relies on.  A process is killed
 * between two instructions: those before are complete, those after have not
 * begun.  So it is the compiler that must keep the order, by release stores and
 * fences; for other processors the handover of the mutex keeps it.
 *
 * Rejected: undo records (the same effort, and the order of gathering and
 * changing would matter for each word), a lock-free ledger (it would have to
 * change up to ten words at once).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_redo.h"


static void ngx_modelgw_redo_apply(ngx_modelgw_redo_t *redo);
static void ngx_modelgw_redo_broken(void);


ngx_int_t
ngx_modelgw_redo_mutex_init(pthread_mutex_t *mutex)
{
    int                  rc;
    pthread_mutexattr_t  attr;

    if (pthread_mutexattr_init(&attr) != 0) {
        return NGX_ERROR;
    }

    rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);

    if (rc == 0) {
        rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    }

    if (rc == 0) {
        rc = pthread_mutex_init(mutex, &attr);
    }

    (void) pthread_mutexattr_destroy(&attr);

    return (rc == 0) ? NGX_OK : NGX_ERROR;
}


void
ngx_modelgw_redo_mutex_lock(pthread_mutex_t *mutex)
{
    int  rc;

    rc = pthread_mutex_lock(mutex);

    if (rc == EOWNERDEAD) {
        rc = pthread_mutex_consistent(mutex);
    }

    if (rc != 0) {
        ngx_modelgw_redo_broken();
    }
}


ngx_int_t
ngx_modelgw_redo_mutex_trylock(pthread_mutex_t *mutex)
{
    int  rc;

    rc = pthread_mutex_trylock(mutex);

    if (rc == EBUSY) {
        return NGX_BUSY;
    }

    if (rc == EOWNERDEAD) {
        rc = pthread_mutex_consistent(mutex);
    }

    if (rc != 0) {
        ngx_modelgw_redo_broken();
    }

    return NGX_OK;
}


void
ngx_modelgw_redo_mutex_unlock(pthread_mutex_t *mutex)
{
    if (pthread_mutex_unlock(mutex) != 0) {
        ngx_modelgw_redo_broken();
    }
}


ngx_int_t
ngx_modelgw_redo_init(ngx_modelgw_redo_t *redo)
{
    return ngx_modelgw_redo_mutex_init(&redo->mutex);
}


void
ngx_modelgw_redo_lock(ngx_modelgw_redo_t *redo)
{
    int  rc;

    rc = pthread_mutex_lock(&redo->mutex);

    if (rc == EOWNERDEAD) {

        /*
         * Marked consistent only after that: if we are killed here, the next
         * owner starts again.
         */

        ngx_modelgw_redo_apply(redo);

        rc = pthread_mutex_consistent(&redo->mutex);
    }

    if (rc != 0) {
        ngx_modelgw_redo_broken();
    }

    /* the dead owner may have been gathering */

    redo->n = 0;
}


void
ngx_modelgw_redo_unlock(ngx_modelgw_redo_t *redo)
{
    ngx_modelgw_redo_mutex_unlock(&redo->mutex);
}


void
ngx_modelgw_redo_commit(ngx_modelgw_redo_t *redo)
{
    __atomic_store_n(&redo->committed, redo->n, __ATOMIC_RELEASE);

    /* release orders what is before it, but not what is after it */

    __atomic_signal_fence(__ATOMIC_SEQ_CST);

    ngx_modelgw_redo_apply(redo);

    redo->n = 0;
}


/*
 * Release stores: a process that reads a new word without the mutex (the writer
 * reads the ends of its rings) also sees all that was written before it.
 */

static void
ngx_modelgw_redo_apply(ngx_modelgw_redo_t *redo)
{
    uint64_t                  i, n;
    ngx_modelgw_redo_word_t  *w;

    n = redo->committed;

    for (i = 0; i < n; i++) {
        w = &redo->words[i];
        __atomic_store_n(w->word, w->value, __ATOMIC_RELEASE);
    }

    __atomic_store_n(&redo->committed, 0, __ATOMIC_RELEASE);

    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}


/*
 * ENOTRECOVERABLE is returned only if a mutex of a dead owner was unlocked
 * without being made consistent, which does not happen here; other errors mean
 * that the mutex is damaged.  Without it no money can be moved, and there is no
 * way to report that in the ledger, so the process is aborted.
 */

static void
ngx_modelgw_redo_broken(void)
{
    ngx_abort();
}
