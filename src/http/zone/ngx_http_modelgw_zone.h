
/*
 * The zone: shared memory of limits and credit, the writer of the store, and
 * the processes that use them.
 */


#ifndef _NGX_HTTP_MODELGW_ZONE_H_INCLUDED_
#define _NGX_HTTP_MODELGW_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_session.h"
#include "ngx_modelgw_store.h"

#include "ngx_http_modelgw_conf.h"

#include <pthread.h>


#define NGX_HTTP_MODELGW_LINES  8    /* log lines kept at a time */


/* the events that a writer or an exchanger reports, with a text */

typedef enum {
    NGX_HTTP_MODELGW_LINE_FAILED = 0,
    NGX_HTTP_MODELGW_LINE_RESTORED,      /* without a text */
    NGX_HTTP_MODELGW_LINE_SAVED,

    /* of a cluster */

    NGX_HTTP_MODELGW_LINE_AWAY,          /* the database is not reached */
    NGX_HTTP_MODELGW_LINE_ALONE,         /* nor was it ever */
    NGX_HTTP_MODELGW_LINE_AGAIN,         /* without a text */
    NGX_HTTP_MODELGW_LINE_REFUSED,
    NGX_HTTP_MODELGW_LINE_LEFT,          /* without a text */
    NGX_HTTP_MODELGW_LINE_JOINED,        /* without a text */
    NGX_HTTP_MODELGW_LINE_FENCED,        /* without a text */
    NGX_HTTP_MODELGW_LINE_CLUSTER        /* another sentence */
} ngx_http_modelgw_line_e;


/*
 * How the upstream of a group answers.  A word of "minutes" has the minute (24
 * bits), calls and errors in it (20 bits each), so that it changes at once.
 */

#define NGX_HTTP_MODELGW_HEALTH_MINUTES  5

struct ngx_http_modelgw_health_s {
    ngx_atomic_t               name;         /* its hash; 0: no group */
    ngx_atomic_t               last_ok;      /* seconds since the Epoch; 0:
                                                never */
    ngx_atomic_t               last_error;
    ngx_atomic_t               minutes[NGX_HTTP_MODELGW_HEALTH_MINUTES];
};


typedef struct {
    ngx_http_modelgw_line_e    what;
    size_t                     len;
    u_char                     text[NGX_MODELGW_STORE_ERROR];
} ngx_http_modelgw_line_t;


/*
 * The first page of the zone: settings of the current configuration, for a
 * writer that may have started with an older one, and what must survive a
 * writer.
 */

struct ngx_http_modelgw_shared_s {
    ngx_atomic_t               flush;        /* ms */
    ngx_atomic_t               keep;         /* seconds */
    ngx_atomic_t               configuration; /* its number */

    /* of modelgw_cluster, ms; 0: off, or there is none */

    ngx_atomic_t               exchange;
    ngx_atomic_t               offline;
    ngx_atomic_t               lost;

    /* of the writer */

    ngx_atomic_t               unsynced;     /* 1: the WAL may be in memory
                                                only */
    ngx_atomic_t               grace_until;  /* ms; until then a locked file
                                                does not stop calls; 0: it
                                                does */

    ngx_atomic_t               stalled;      /* 1: a worker has logged it */

    /* a ring of lines, reported under the ledger's lock, logged by any
       worker */

    ngx_atomic_t               reported;     /* lines reported so far */
    ngx_atomic_t               logged;       /* lines logged so far */
    ngx_http_modelgw_line_t    lines[NGX_HTTP_MODELGW_LINES];

    ngx_http_modelgw_line_t    reason;       /* why the node is not a member of
                                                its cluster; by the ledger's
                                                lock */

    ngx_modelgw_store_file_t   file;         /* the memory is loaded from it */

    ngx_modelgw_managed_t     *managed;      /* NULL: there are none */

    pthread_mutex_t            budgets;      /* from when keys get budgets until
                                                what they have spent is known:
                                                by a configuration, or a
                                                writer */

    /* for operators */

    ngx_atomic_t               flushed;      /* ms that the last flush took */
    ngx_atomic_t               size;         /* bytes of the file */
};


/*
 * zone.c: the shared memory, with the keys and accounts of the configuration.
 *
 * mmcf->ledger is set when the zone is created; it is NULL only if there are
 * no keys.  key->slot and key->account_index are set when the configuration
 * takes effect.
 */

/*
 * The functions for directives return NGX_CONF_OK, NGX_CONF_ERROR (logged) or a
 * text that nginx logs.
 */

/* modelgw_zone SIZE, modelgw_metrics_zone SIZE */
char *ngx_http_modelgw_set_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* modelgw_ledger PATH [flush=TIME] [keep=TIME] */
char *ngx_http_modelgw_set_ledger(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* modelgw_founding_credit AMOUNT */
char *ngx_http_modelgw_set_founding(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* modelgw_managed_keys NUMBER */
char *ngx_http_modelgw_set_managed(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * At the end of the http block: checks the prices of all models and the size
 * of the zone, and adds the zone to the cycle.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_zone_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * All memory of a new zone in one block, zeroed, of *size bytes; for what has a
 * layout of its own.  NULL: no memory.
 */
u_char *ngx_http_modelgw_zone_memory(ngx_shm_zone_t *zone, size_t *size);

/*
 * The module's init_module, when the configuration takes effect: keys and
 * accounts get their places, new accounts their founding credit.  Always
 * NGX_OK: if there is no place for some keys, this is logged, and their calls
 * are refused (503).
 */
ngx_int_t ngx_http_modelgw_zone_in_force(ngx_cycle_t *cycle);


/*
 * health.c: whether calls are admitted, and how the upstreams answer
 */

/*
 * At the end of the http block: adds the zone of the groups' health, sized by
 * their number, to the cycle.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_health_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * Returns NULL, or the reason why this worker admits no call: a sentence for
 * clients, without a period.
 */
const char *ngx_http_modelgw_health_refuses(ngx_http_modelgw_main_conf_t *mmcf);

/*
 * When the configuration takes effect: notes the time, gives each group its
 * place.
 */
void ngx_http_modelgw_health_in_force(ngx_http_modelgw_main_conf_t *mmcf);

/* When nginx was started, seconds since the Epoch. */
time_t ngx_http_modelgw_health_started(void);

/* The health of a group; NULL: a later configuration does not have it. */
ngx_http_modelgw_health_t *ngx_http_modelgw_health_of(
    ngx_http_modelgw_group_t *group);

/* Counts an answer of the group's upstream, or an error. */
void ngx_http_modelgw_health_count(ngx_http_modelgw_group_t *group,
    ngx_uint_t error);

/* Sets the sums over the last five minutes. */
void ngx_http_modelgw_health_sum(ngx_http_modelgw_health_t *health,
    ngx_uint_t *calls, ngx_uint_t *errors);


/*
 * node.c: the node of a cluster; without modelgw_cluster its functions do
 * nothing, and _refuses() returns NULL
 */

/*
 * When the zone is created, or a reload keeps it: checks that the workers' user
 * can read the file of the password.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_node_start(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log);

/*
 * Returns NULL, or the reason why the node admits no call: a sentence for
 * clients, without a period.
 */
const char *ngx_http_modelgw_node_refuses(ngx_http_modelgw_main_conf_t *mmcf);

/*
 * Sets *reason to why the node is not a member of its cluster, as it is logged:
 * allocated from pool, len 0 if it is one, or that is not known.  Takes the
 * ledger's lock.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_node_reason(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *reason, ngx_pool_t *pool);

/* Stops calls if the last exchange is too long ago, and logs it. */
void ngx_http_modelgw_node_check(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log);

/* What is left of all that accounts were lent here, nano-euro. */
int64_t ngx_http_modelgw_node_lent(ngx_modelgw_ledger_t *ledger);

/* Milliseconds since the last exchange, if node->exchanged is not 0. */
uint64_t ngx_http_modelgw_node_passed(ngx_modelgw_lease_node_t *node);


/*
 * sessions.c: the shared memory of sign-ins to the admin interface, if there is
 * a modelgw_operators; all but the first function need it
 */

#define NGX_HTTP_MODELGW_SESSION_TIME  43200ULL  /* seconds */

/*
 * At the end of the http block: adds the zone to the cycle if it is needed.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_sessions_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * Makes a session of session->digest, whose end is set, and writes the
 * NGX_MODELGW_SESSION_TEXT characters of its cookie.
 *     NGX_OK, NGX_ERROR (OpenSSL failed)
 */
ngx_int_t ngx_http_modelgw_sessions_write(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_session_t *session, u_char *text);

/*
 * Reads a cookie.
 *     NGX_OK        *session is set
 *     NGX_DECLINED  not one of this nginx since its start, expired, or ended
 *     NGX_ERROR     OpenSSL failed
 */
ngx_int_t ngx_http_modelgw_sessions_read(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *text, ngx_modelgw_session_t *session);

/* Ends all sessions of the token of this one, in all workers. */
void ngx_http_modelgw_sessions_end(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_session_t *session);

/*
 * _wait() returns for how many seconds the client's address may not sign in,
 * since too many of its attempts have failed, as _failed() counts them; or 0.
 */
time_t ngx_http_modelgw_sessions_wait(ngx_http_modelgw_main_conf_t *mmcf,
    struct sockaddr *sockaddr);
void ngx_http_modelgw_sessions_failed(ngx_http_modelgw_main_conf_t *mmcf,
    struct sockaddr *sockaddr);


/*
 * zone_metrics.c: the shared memory of metrics; mmcf->metrics is set when the
 * zone is created, and NULL if no location has modelgw_metrics
 */

/*
 * At the end of the http block: adds the zone to the cycle if it is needed.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_zone_metrics_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * When the configuration takes effect, also that of "nginx -t": groups, models
 * and keys get their rows.  What has no room is logged.
 */
void ngx_http_modelgw_zone_metrics_in_force(ngx_cycle_t *cycle);

/*
 * The row of a key that operators have made, which it gets here with its first
 * request; NGX_MODELGW_METRICS_OTHER: no room.
 */
uint32_t ngx_http_modelgw_zone_metrics_key(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *id);

/* Sets *counted to a call that has ended, but for its key, which is none. */
void ngx_http_modelgw_zone_metrics_call(ngx_modelgw_call_t *call,
    ngx_modelgw_metrics_call_t *counted);

/*
 * Counts a call that was ended without its request, for the ledger: data is the
 * main configuration.
 */
void ngx_http_modelgw_zone_metrics_ended(ngx_modelgw_call_t *call, void *data);

/* Count a flush of the writer, and one that failed; m may be NULL. */
void ngx_http_modelgw_zone_metrics_flush(ngx_modelgw_metrics_t *m,
    uint64_t usec);
void ngx_http_modelgw_zone_metrics_failure(ngx_modelgw_metrics_t *m);


/*
 * heap.c: a worker keeps the memory of large bodies, and gives it back when it
 * is not used; nothing with an allocator other than that of glibc 2.33
 */

void ngx_http_modelgw_heap_init(void);


/*
 * process.c: adds a timer of this process for an event that has none, and does
 * not keep a worker from exiting; msec: milliseconds
 */

void ngx_http_modelgw_process_add_timer(ngx_event_t *ev,
    ngx_event_handler_pt handler, ngx_msec_t msec);


/*
 * process.c: a worker joins the ledger, settles calls of workers that died,
 * and leaves; the master is last
 */

/* Always NGX_OK: a worker that cannot join (logged) refuses calls (503). */
ngx_int_t ngx_http_modelgw_process_init(ngx_cycle_t *cycle);

/* Waits for the writer for 5 s at most; 1 s if nginx is stopped fast. */
void ngx_http_modelgw_process_exit(ngx_cycle_t *cycle);

/* The same, 2 s at most. */
void ngx_http_modelgw_process_exit_master(ngx_cycle_t *cycle);

/*
 * Reports a line for the workers to log, from any thread, which does not hold
 * the ledger's lock.  A text that is too long is cut; a line for which there is
 * no place is dropped.
 */
void ngx_http_modelgw_process_report(ngx_modelgw_ledger_t *ledger,
    ngx_http_modelgw_shared_t *shared, ngx_http_modelgw_line_e what,
    u_char *text, size_t len);

/*
 * Starts a thread with all signals blocked, as they are for the event loop's
 * thread.  0 or errno
 */
ngx_err_t ngx_http_modelgw_process_thread(pthread_t *thread,
    void *(*handler)(void *data), void *data);


#endif /* _NGX_HTTP_MODELGW_ZONE_H_INCLUDED_ */
