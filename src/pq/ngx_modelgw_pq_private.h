
/*
 * What the files of this room share: the table of libpq's functions, a
 * connection, and how it is waited for.
 */


#ifndef _NGX_MODELGW_PQ_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_PQ_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <libpq-fe.h>

#include "ngx_modelgw_pq.h"


#define NGX_MODELGW_PQ_STATEMENTS  128   /* prepared in a connection */


/* with the types that libpq-fe.h gives them */

#define NGX_MODELGW_PQ_FUNCTIONS(f)                                           \
    f(PQclear)                                                                \
    f(PQcmdTuples)                                                            \
    f(PQconnectPoll)                                                          \
    f(PQconnectStartParams)                                                   \
    f(PQconninfoFree)                                                         \
    f(PQconninfoParse)                                                        \
    f(PQconsumeInput)                                                         \
    f(PQenterPipelineMode)                                                    \
    f(PQerrorMessage)                                                         \
    f(PQexitPipelineMode)                                                     \
    f(PQfinish)                                                               \
    f(PQflush)                                                                \
    f(PQfreemem)                                                              \
    f(PQftype)                                                                \
    f(PQgetResult)                                                            \
    f(PQgetisnull)                                                            \
    f(PQgetlength)                                                            \
    f(PQgetvalue)                                                             \
    f(PQinitOpenSSL)                                                          \
    f(PQisBusy)                                                               \
    f(PQlibVersion)                                                           \
    f(PQntuples)                                                              \
    f(PQpipelineStatus)                                                       \
    f(PQpipelineSync)                                                         \
    f(PQresultErrorField)                                                     \
    f(PQresultErrorMessage)                                                   \
    f(PQresultStatus)                                                         \
    f(PQsendPrepare)                                                          \
    f(PQsendQuery)                                                            \
    f(PQsendQueryParams)                                                      \
    f(PQsendQueryPrepared)                                                    \
    f(PQsetNoticeReceiver)                                                    \
    f(PQsetnonblocking)                                                       \
    f(PQsocket)                                                               \
    f(PQstatus)

#define ngx_modelgw_pq_member(name)  __typeof__(name)  *name;


typedef struct {
    NGX_MODELGW_PQ_FUNCTIONS(ngx_modelgw_pq_member)
} ngx_modelgw_pq_library_t;

#define libpq  ngx_modelgw_pq_library

extern ngx_modelgw_pq_library_t   ngx_modelgw_pq_library;


typedef enum {
    NGX_MODELGW_PQ_UNKNOWN = 0,
    NGX_MODELGW_PQ_SENT,                 /* in the run that is being queued */
    NGX_MODELGW_PQ_READY
} ngx_modelgw_pq_state_e;

typedef struct {
    const char                *sql;
    ngx_modelgw_pq_state_e     state;
} ngx_modelgw_pq_statement_t;


/* what a run waits for, in order */
typedef struct {
    ngx_modelgw_pq_statement_t  *statement;
    ngx_uint_t                   prepare; /* 1: it is prepared before */
} ngx_modelgw_pq_queued_t;


struct ngx_modelgw_pq_s {
    PGconn                      *conn;
    volatile ngx_atomic_t       *stop;
    ngx_uint_t                   dead;
    ngx_uint_t                   nqueued;
    ngx_modelgw_pq_queued_t      queued[NGX_MODELGW_PQ_QUEUE];
    ngx_uint_t                   nstatements;
    ngx_modelgw_pq_statement_t   statements[NGX_MODELGW_PQ_STATEMENTS];
};


/*
 * Waits for the end of what was sent outside of a pipeline; deadline: as of
 * _now().  result: the first one; NULL: it is not wanted.
 *     NGX_OK
 *     NGX_ERROR  error is set, *result is NULL
 */
ngx_int_t ngx_modelgw_pq_finish(ngx_modelgw_pq_t *pq, uint64_t deadline,
    ngx_modelgw_pq_result_t **result, ngx_modelgw_pq_error_t *error);

/*
 * poll() of the connection, until the deadline or its stop.
 *     NGX_OK     *revents is set
 *     NGX_ERROR  error is set, the connection can no longer be used
 */
ngx_int_t ngx_modelgw_pq_wait(ngx_modelgw_pq_t *pq, short events,
    uint64_t deadline, short *revents, ngx_modelgw_pq_error_t *error);

/* Gives the connection up, with libpq's error: NGX_ERROR. */
ngx_int_t ngx_modelgw_pq_lost(ngx_modelgw_pq_t *pq,
    ngx_modelgw_pq_error_t *error);

/* milliseconds, of a clock that does not jump */
uint64_t ngx_modelgw_pq_now(void);

/* An error of the connection, in one line whatever the text has. */
void ngx_modelgw_pq_set_error(ngx_modelgw_pq_error_t *error, const char *fmt,
    ...);

/* Writes the last len bytes of a number in network order, returns the end. */
u_char *ngx_modelgw_pq_put(u_char *p, uint64_t n, size_t len);


#endif /* _NGX_MODELGW_PQ_PRIVATE_H_INCLUDED_ */
