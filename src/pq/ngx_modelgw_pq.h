
/*
 * PostgreSQL's client library, libpq, loaded when it is needed: an nginx
 * without a cluster does not have it in memory.
 *
 * A connection is used by one thread at a time.  Nothing here blocks longer
 * than its deadline, nor after *stop is set, which is looked at every 10 ms;
 * but the lookup of a host's name, which libpq leaves to the system's resolver.
 */


#ifndef _NGX_MODELGW_PQ_H_INCLUDED_
#define _NGX_MODELGW_PQ_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MODELGW_PQ_ERROR   512       /* bytes of a message */
#define NGX_MODELGW_PQ_PARAMS  32        /* of a statement, at most */
#define NGX_MODELGW_PQ_QUEUE   64        /* statements of a run, at most */

/* types of parameters, as the server names them (pg_type.dat) */
#define NGX_MODELGW_PQ_BOOL         16
#define NGX_MODELGW_PQ_BYTEA        17
#define NGX_MODELGW_PQ_INT8         20
#define NGX_MODELGW_PQ_INT4         23
#define NGX_MODELGW_PQ_TEXT         25
#define NGX_MODELGW_PQ_BOOL_ARRAY   1000
#define NGX_MODELGW_PQ_BYTEA_ARRAY  1001
#define NGX_MODELGW_PQ_INT4_ARRAY   1007
#define NGX_MODELGW_PQ_TEXT_ARRAY   1009
#define NGX_MODELGW_PQ_INT8_ARRAY   1016


typedef struct ngx_modelgw_pq_s         ngx_modelgw_pq_t;
typedef struct ngx_modelgw_pq_result_s  ngx_modelgw_pq_result_t;

typedef struct {
    size_t                len;
    u_char                data[NGX_MODELGW_PQ_ERROR]; /* one line */
    char                  state[6];      /* SQLSTATE; "": of the connection */
} ngx_modelgw_pq_error_t;

typedef struct {
    char                 *conninfo;      /* conninfo or URI, without password */
    char                 *password;      /* the path of a file; NULL: none */
    char                 *application;   /* application_name */
} ngx_modelgw_pq_conf_t;

/* NULL data: SQL NULL.  All are sent in binary. */
typedef struct {
    uint32_t              type;
    size_t                len;
    u_char               *data;
} ngx_modelgw_pq_param_t;


/*
 * Loads libpq.so.5, of version 14 at least, once in a process; those that it
 * forks have it.  To be called before there are threads.
 *     NGX_OK
 *     NGX_ERROR  error is set
 */
ngx_int_t ngx_modelgw_pq_load(ngx_modelgw_pq_error_t *error);

/*
 * Checks without connecting: the syntax of the conninfo, which has to name a
 * host and to have no password and no service, and sslmode=verify-full, unless
 * each host is a socket or loopback; and that only its owner may read the file
 * of the password.  It loads libpq, as a connection does.
 *     NGX_OK
 *     NGX_ERROR  error has a sentence for the author of the configuration
 */
ngx_int_t ngx_modelgw_pq_check(ngx_modelgw_pq_conf_t *conf,
    ngx_modelgw_pq_error_t *error);

/*
 * Connects to the first host that accepts, with the password as the file has it
 * now, and makes the session's settings.  timeout: ms, for all hosts; stop: may
 * be NULL, else it must live as long as the connection.
 *     NULL  error is set
 */
ngx_modelgw_pq_t *ngx_modelgw_pq_connect(ngx_modelgw_pq_conf_t *conf,
    ngx_msec_t timeout, volatile ngx_atomic_t *stop,
    ngx_modelgw_pq_error_t *error);

/* Closes it, in any state, without waiting. */
void ngx_modelgw_pq_close(ngx_modelgw_pq_t *pq);

/*
 * Whether the connection can be used: not after an error of it, nor after a
 * deadline.  It may be in a transaction that has failed.
 */
ngx_uint_t ngx_modelgw_pq_alive(ngx_modelgw_pq_t *pq);

/*
 * Executes one statement, with parameters, and waits for it; timeout: ms.
 *     NGX_OK     *result is set, to be cleared; result NULL: it is not wanted
 *     NGX_ERROR  error is set, *result is NULL
 */
ngx_int_t ngx_modelgw_pq_exec(ngx_modelgw_pq_t *pq, const char *sql,
    ngx_modelgw_pq_param_t *params, ngx_uint_t n, ngx_msec_t timeout,
    ngx_modelgw_pq_result_t **result, ngx_modelgw_pq_error_t *error);

/*
 * Several statements at once: _add() queues one (prepared once in a connection,
 * by its text, which must be static) and copies its parameters; _run() sends
 * them and waits for all.  The first one that fails ends the run, with its
 * error.  results: one for each _add(), in their order, to be cleared; NULL:
 * they are not wanted.  What is queued and is not to be run is closed with the
 * connection.
 *     NGX_OK
 *     NGX_ERROR  error is set, results are NULL; after one of _add() the
 *                connection can no longer be used
 */
ngx_int_t ngx_modelgw_pq_add(ngx_modelgw_pq_t *pq, const char *sql,
    ngx_modelgw_pq_param_t *params, ngx_uint_t n,
    ngx_modelgw_pq_error_t *error);
ngx_int_t ngx_modelgw_pq_run(ngx_modelgw_pq_t *pq, ngx_msec_t timeout,
    ngx_modelgw_pq_result_t **results, ngx_uint_t n,
    ngx_modelgw_pq_error_t *error);


/* results, which are binary; rows and columns are counted from 0 */

ngx_uint_t ngx_modelgw_pq_rows(ngx_modelgw_pq_result_t *result);

/* rows that were inserted, updated or deleted */
ngx_uint_t ngx_modelgw_pq_changed(ngx_modelgw_pq_result_t *result);

ngx_uint_t ngx_modelgw_pq_null(ngx_modelgw_pq_result_t *result, ngx_uint_t row,
    ngx_uint_t column);

/*
 * int2, int4, int8, bool; or numeric, without its fraction, or the limit of
 * int64_t that it exceeds.  NULL and other types: 0.
 */
int64_t ngx_modelgw_pq_int(ngx_modelgw_pq_result_t *result, ngx_uint_t row,
    ngx_uint_t column);

/* text or bytea, until the result is cleared; NULL: len 0 */
void ngx_modelgw_pq_text(ngx_modelgw_pq_result_t *result, ngx_uint_t row,
    ngx_uint_t column, ngx_str_t *text);

/* NULL: nothing */
void ngx_modelgw_pq_clear(ngx_modelgw_pq_result_t *result);


/*
 * Parameters.  _int() writes an int8 to buf, 8 bytes that live until the
 * statement is executed or added; so does the text, which must be UTF-8 without
 * NUL.
 */
void ngx_modelgw_pq_param_int(ngx_modelgw_pq_param_t *param, u_char *buf,
    int64_t n);
void ngx_modelgw_pq_param_text(ngx_modelgw_pq_param_t *param, u_char *data,
    size_t len);

/*
 * Arrays are built in memory that grows and is used again: the first _begin()
 * needs a zeroed struct, the last array a _free().  type: of the elements.
 * Elements of TEXT are copied with "?" for bytes that are not UTF-8, and for
 * NUL, which no server would take; data NULL: the empty text.
 *     _end()  NGX_OK: *param is the array, until it changes;
 *             NGX_ERROR: there was no memory
 */

typedef struct {
    u_char               *start;
    u_char               *pos;
    u_char               *end;
    uint32_t              type;          /* of the elements */
    uint32_t              n;
    ngx_uint_t            failed;        /* no memory */
} ngx_modelgw_pq_array_t;

/*
 * The length in bytes of the character of UTF-8 at p; 0: there is none, or one
 * that a text of the server cannot have: NUL.
 */
size_t ngx_modelgw_pq_utf8(const u_char *p, const u_char *last);

void ngx_modelgw_pq_array_begin(ngx_modelgw_pq_array_t *a, uint32_t type);
void ngx_modelgw_pq_array_int(ngx_modelgw_pq_array_t *a, int64_t n);
void ngx_modelgw_pq_array_text(ngx_modelgw_pq_array_t *a, u_char *data,
    size_t len);

/*
 * A column of rows that are structs of "size" bytes: int64_t, which an array of
 * INT8 takes, or ngx_str_t.
 */

typedef struct {
    uint32_t              type;
    size_t                offset;
} ngx_modelgw_pq_column_t;

#define ngx_modelgw_pq_number(type, name)                                     \
    { NGX_MODELGW_PQ_INT8, offsetof(type, name) }
#define ngx_modelgw_pq_string(type, name)                                     \
    { NGX_MODELGW_PQ_TEXT, offsetof(type, name) }

void ngx_modelgw_pq_array_column(ngx_modelgw_pq_array_t *a,
    const ngx_modelgw_pq_column_t *column, void *rows, size_t size,
    ngx_uint_t n);

/* Appends what the array has now; times: how often. */
void ngx_modelgw_pq_array_repeat(ngx_modelgw_pq_array_t *a, ngx_uint_t times);

/*
 * The bytes of the element that follows p, which is what it has returned of the
 * one before; p NULL: of the first one.  NULL: there is none.
 */
u_char *ngx_modelgw_pq_array_next(ngx_modelgw_pq_array_t *a, u_char *p,
    ngx_str_t *element);

/* a number as the server sends it and takes it: len bytes, the highest first */
int64_t ngx_modelgw_pq_read(const u_char *p, size_t len);

ngx_int_t ngx_modelgw_pq_array_end(ngx_modelgw_pq_array_t *a,
    ngx_modelgw_pq_param_t *param);
void ngx_modelgw_pq_array_free(ngx_modelgw_pq_array_t *a);


#endif /* _NGX_MODELGW_PQ_H_INCLUDED_ */
