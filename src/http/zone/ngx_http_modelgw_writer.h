
/*
 * What the files of the zone share: loading the store, the thread that writes
 * it, and the user as which both work.
 */


#ifndef _NGX_HTTP_MODELGW_WRITER_H_INCLUDED_
#define _NGX_HTTP_MODELGW_WRITER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_fresh.h"
#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_zone.h"

#include <pthread.h>


typedef struct ngx_http_modelgw_user_s  ngx_http_modelgw_user_t;


#define NGX_HTTP_MODELGW_WRITER_CHECK  500      /* ms between checks of its
                                                   files and their disk */



/* keys with a budget of which it is not known what is spent */

typedef struct {
    uint32_t                  *slots;    /* their records in the ledger; NULL:
                                            no memory, calls are refused */
    ngx_uint_t                 n;
    ngx_uint_t                 max;
} ngx_http_modelgw_pending_t;


#define NGX_HTTP_MODELGW_CANNOT                                               \
    "the ledger cannot be written, calls are refused until it can: "


/* zone.c */

/* The id of the first call; last is the highest id in the store. */
uint64_t ngx_http_modelgw_zone_first_id(uint64_t last);


/* zone_keys.c: the zone of keys that operators make */

/* At the end of the http block: adds the zone.  NGX_OK, NGX_ERROR (logged). */
ngx_int_t ngx_http_modelgw_zone_keys_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/* Whether a reload keeps the zone as it is: NGX_OK, NGX_ERROR (logged). */
ngx_int_t ngx_http_modelgw_zone_keys_same(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log);

/*
 * When nginx starts: fills the table, if there is one, from the store, and
 * warns of keys that would need one.
 *     NGX_OK
 *     NGX_ERROR  no room, error is set; or of the store, whose error is set
 */
ngx_int_t ngx_http_modelgw_zone_keys_load(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_store_t *store, ngx_modelgw_store_error_t *error,
    ngx_log_t *log);

/*
 * Fills the table from the store.
 *     NGX_OK, NGX_ERROR (no room, or of the store, whose error is set then)
 */
ngx_int_t ngx_http_modelgw_zone_keys_fill(ngx_modelgw_managed_t *m,
    ngx_modelgw_store_t *store);

/*
 * When a configuration takes effect: names the limits of the keys, and warns of
 * those that the configuration has, too.  Those of which it is to be read what
 * they have spent are added to pending.  _use() does so for one key.
 *     NGX_OK        (_use()) the key is used
 *     NGX_DECLINED  the configuration has its id or its digest; log NULL: it
 *                   does not say so, for a thread
 */
void ngx_http_modelgw_zone_keys_in_force(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_pending_t *pending, ngx_log_t *log);
ngx_int_t ngx_http_modelgw_zone_keys_use(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_managed_key_t *key, ngx_http_modelgw_pending_t *pending,
    ngx_log_t *log);


/* zone_store.c: loads the store into shared memory when nginx starts */

/*
 * Locks the ledger for this nginx, creates it in the memory, of size bytes,
 * and loads it from the store.  Under "nginx -t" it touches no file.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_zone_load(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log, u_char *memory, size_t size);

/*
 * Duplicates the descriptors of the ledger's lock and file for a new cycle:
 * each cycle has its own, which are closed with its pool.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_zone_relock(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_main_conf_t *old);


/* prices.c */

/*
 * Copies the prices of the configuration, which count from now on; the last one
 * has the id 0.  The caller frees the copy by ngx_free().  NULL: no memory.
 */
ngx_modelgw_store_price_t *ngx_http_modelgw_prices_copy(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_log_t *log);

/*
 * Stores a copy, in a batch of its own.  Prices that have changed are logged,
 * unless log is NULL, as it must be in a thread.
 *     NGX_OK, NGX_ERROR (of the store)
 */
ngx_int_t ngx_http_modelgw_prices_store(ngx_modelgw_store_price_t *prices,
    ngx_modelgw_store_t *store, ngx_modelgw_ledger_t *ledger,
    ngx_log_t *log);

/* Logs which prices a new configuration has changed. */
void ngx_http_modelgw_prices_changed(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_main_conf_t *old, ngx_log_t *log);


/* budget.c: what keys have spent */

/*
 * Gives a key, by its record, the window of its budget, and adds it to pending
 * if it is to be read what was spent in it.
 */
void ngx_http_modelgw_budget_window(ngx_modelgw_ledger_t *ledger, uint32_t slot,
    ngx_uint_t window, ngx_http_modelgw_pending_t *pending);

/*
 * Finds what these keys have spent.  _in_force(), when the configuration takes
 * effect, logs failures.  _find() is for a thread that has the rights of the
 * workers' user:
 *     NGX_OK
 *     NGX_ERROR  error is set, the budgets are still pending
 */
void ngx_http_modelgw_budget_in_force(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_pending_t *pending, ngx_log_t *log);
ngx_int_t ngx_http_modelgw_budget_find(ngx_modelgw_ledger_t *ledger, char *path,
    ngx_modelgw_store_file_t *file, ngx_http_modelgw_pending_t *pending,
    ngx_modelgw_store_error_t *error);


/*
 * journal.c: what the exchanger of a cluster has the writer write.
 *
 * The exchanger is a thread of the writer's process.  It reads the journal by a
 * connection of its own, and writes by a job, of which there is one at a time.
 * If it does not wait any longer, the job may be made nevertheless.
 */

typedef struct {
    ngx_modelgw_journal_t     *journal;  /* the row of the node */
    ngx_modelgw_ask_t         *asks;     /* of leases: their totals */
    ngx_uint_t                 nasks;
    ngx_modelgw_feed_t        *feed;     /* keys and accounts */
    ngx_uint_t                 nfeed;
    ngx_modelgw_change_t      *topup;    /* that the database has; NULL: none */
} ngx_http_modelgw_journal_job_t;

typedef enum {
    NGX_HTTP_MODELGW_JOB_NONE = 0,
    NGX_HTTP_MODELGW_JOB_ASKED,
    NGX_HTTP_MODELGW_JOB_TAKEN,          /* the writer is at it */
    NGX_HTTP_MODELGW_JOB_MADE,
    NGX_HTTP_MODELGW_JOB_FAILED
} ngx_http_modelgw_job_e;

/* under the mutex; what is TAKEN is the writer's */

typedef struct {
    pthread_mutex_t            mutex;
    pthread_cond_t             cond;
    ngx_http_modelgw_job_e     state;
    ngx_uint_t                 waits;    /* 1: the exchanger waits for it */
    ngx_uint_t                 closed;   /* 1: no more jobs */
    ngx_uint_t                 fed;      /* rows of the feed that are written
                                            and published */
    ngx_uint_t                 n;        /* rows, in this batch */
    ngx_modelgw_journal_t      journal;  /* copies */
    ngx_modelgw_change_t       topup;
    ngx_http_modelgw_journal_job_t  job;
    u_char                    *memory;   /* of the copies */
} ngx_http_modelgw_job_t;


typedef struct {
    ngx_modelgw_ledger_t       *ledger;
    ngx_http_modelgw_shared_t  *shared;
    ngx_modelgw_store_price_t  *prices;      /* NULL: stored */
    ngx_atomic_uint_t           configuration; /* whose prices these are */
    ngx_modelgw_metrics_t      *metrics;     /* NULL: none */
    ngx_http_modelgw_main_conf_t  *mmcf;     /* of that configuration */
    ngx_modelgw_cluster_conf_t *cluster;     /* NULL: one machine */
    ngx_http_modelgw_job_t      job;         /* of the exchanger */
    char                       *path;        /* of the store */
    ngx_http_modelgw_user_t    *user;        /* NULL: that of the process */
    uint64_t                    done;        /* calls, in total, that must be
                                                durable before STOP ends it */
    ngx_atomic_t                stop;        /* set by the worker; 0: go on */
    ngx_atomic_t                state;       /* set by the thread */
    ngx_err_t                   err;         /* the user's identity could not
                                                be taken, if ENDED; 0: it was */
    pthread_t                   thread;

    /* used by the thread only */

    ngx_modelgw_store_t        *store;       /* NULL: not open */
    ngx_uint_t                  lost;        /* 1: its files were moved or
                                                removed; it stays open */
    uint64_t                    next_check;  /* ms, of its files */
    uint64_t                    next_space;  /* ms, of its file system */
    ngx_modelgw_store_error_t   error;       /* of the failed batch */
    ngx_uint_t                  due;         /* holds at the previous flush */
    ngx_msec_t                  retry;       /* retry delay, ms; 0 if the store
                                                is healthy */
    time_t                      hours;       /* times of the next ones */
    time_t                      roll_up;
    time_t                      trim;

    /* of a cluster */

    ngx_uint_t                  windows;     /* 1: keys have those of their
                                                budgets */
    uint64_t                    exchange;    /* ms, when the exchanger is to be
                                                started again, as it was not; 0:
                                                it was */
    uint64_t                    leave;       /* ms, when it lets a worker of a
                                                newer configuration write; 0:
                                                not known yet */
    ngx_atomic_uint_t           left;        /* the configuration for which it
                                                has done so */
    ngx_modelgw_fresh_t         fresh;    /* for the exchanger */
} ngx_http_modelgw_writer_t;


/*
 * For the exchanger: has the writer write this, in its next batches, and waits
 * until it is durable, and what the feed has is published in shared memory: the
 * keys, whether accounts are closed, and, last, the version of the keys, in the
 * ledger's node.  The leases, the top-up and the row of the node are written
 * with the last part of the feed.
 *     NGX_OK
 *     NGX_AGAIN     not within some seconds; no memory
 *     NGX_DECLINED  the writer stops, another one follows
 */
ngx_int_t ngx_http_modelgw_writer_job(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_journal_job_t *job);

/*
 * For the writer.  _init(), before its thread starts: NGX_OK, NGX_ERROR.
 * _open() lets the exchanger ask, _close() answers it NGX_DECLINED from now on.
 * _free() frees everything, when both threads have ended.
 */
ngx_int_t ngx_http_modelgw_journal_init(ngx_http_modelgw_job_t *job);
void ngx_http_modelgw_journal_open(ngx_http_modelgw_job_t *job);
void ngx_http_modelgw_journal_close(ngx_http_modelgw_job_t *job);
void ngx_http_modelgw_journal_free(ngx_http_modelgw_job_t *job);

/*
 * For a batch.  _asked() tells whether there is something to write; _write()
 * writes a part of it, in the transaction; _publish(), when that is durable and
 * the mutex of budgets is held, puts it into effect, and answers what is done.
 * _failed() answers what is not.  _windows() is called once by a new writer: it
 * gives keys the windows that they have in this configuration, where one of an
 * older configuration has published them since it was loaded.
 *     NGX_OK
 *     NGX_ERROR  (_write()) of the store, (others) w->error is set; it may be
 *                repeated
 */
ngx_int_t ngx_http_modelgw_journal_windows(ngx_http_modelgw_writer_t *w);
ngx_uint_t ngx_http_modelgw_journal_asked(ngx_http_modelgw_writer_t *w);
ngx_int_t ngx_http_modelgw_journal_write(ngx_http_modelgw_writer_t *w);
ngx_int_t ngx_http_modelgw_journal_publish(ngx_http_modelgw_writer_t *w);
void ngx_http_modelgw_journal_failed(ngx_http_modelgw_writer_t *w);


/*
 * exchanger.c: the threads that work with the database of the cluster.
 * _start() is called by the writer's thread again and again, as it may fail,
 * which is reported once: it does nothing if they run.  _stop(), also by it,
 * before it is the writer no longer: waits for them, for a moment at most;
 * _start() may follow later.
 */
void ngx_http_modelgw_exchanger_start(ngx_http_modelgw_writer_t *w);
void ngx_http_modelgw_exchanger_stop(ngx_http_modelgw_writer_t *w);


/* batch.c: what a thread writes at a time */

/*
 * Writes what there is, at most a batch, and sets what has become durable.
 * now: ms.
 *     NGX_OK
 *     NGX_ERROR  w->error is set; nothing was lost, it may be repeated
 */
ngx_int_t ngx_http_modelgw_batch(ngx_http_modelgw_writer_t *w, uint64_t now);

/* Answers changes that cannot be written, unless they may be durable. */
void ngx_http_modelgw_batch_failed(ngx_http_modelgw_writer_t *w);

/* Whether there is another batch to write at once. */
ngx_uint_t ngx_http_modelgw_batch_more(ngx_http_modelgw_writer_t *w);


/* writer.c: the thread that writes the store */

/*
 * Starts the thread of this process, which becomes the writer when there is no
 * other.  It works as the user, which must be in static memory, unless that is
 * NULL.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_writer_start(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_user_t *user);

/*
 * Waits until all calls that are DONE by now are durable, written by this
 * thread or another, for at most timeout ms, then stops the thread.  If that
 * had no right to work as its user, logs this, and does not wait.
 *     NGX_OK
 *     NGX_DECLINED  some are not durable
 */
ngx_int_t ngx_http_modelgw_writer_stop(ngx_msec_t timeout, ngx_log_t *log);

/* For the thread: a line, with w->error, for the workers to log. */
void ngx_http_modelgw_writer_report(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_line_e what);

/* CLOCK_MONOTONIC: milliseconds, microseconds. */
uint64_t ngx_http_modelgw_writer_clock(void);
uint64_t ngx_http_modelgw_writer_usec(void);


/* user.c: the workers' user */

#define NGX_HTTP_MODELGW_GROUPS  1024

struct ngx_http_modelgw_user_s {
    char                      *name;     /* NULL: no change of identity */
    uid_t                      uid;
    gid_t                      gid;
    int                        n;
    gid_t                      groups[NGX_HTTP_MODELGW_GROUPS];
};

/* Finds the user to work on the ledger as: NGX_OK, NGX_ERROR (logged). */
ngx_int_t ngx_http_modelgw_user_find(ngx_http_modelgw_user_t *user,
    ngx_cycle_t *cycle, ngx_log_t *log);

/* Gives the calling thread the identity of the user for good: 0 or errno. */
ngx_err_t ngx_http_modelgw_user_become(ngx_http_modelgw_user_t *user);

typedef ngx_int_t (*ngx_http_modelgw_user_pt)(void *data);

/*
 * Calls the handler as the user, in a thread if the identity changes, and
 * waits for it.
 *     the handler's return code
 *     NGX_ERROR  the handler was not called (logged)
 */
ngx_int_t ngx_http_modelgw_user_run(ngx_http_modelgw_user_t *user,
    ngx_http_modelgw_user_pt handler, void *data, ngx_log_t *log);


#endif /* _NGX_HTTP_MODELGW_WRITER_H_INCLUDED_ */
