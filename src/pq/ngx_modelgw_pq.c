
/*
 * Statements on a connection to PostgreSQL, and their results, without
 * blocking: each wait is a poll() with a deadline, in steps in which the
 * caller's stop is looked at.
 *
 * After a deadline the state of the statement is not known, and a connection
 * with an answer on its way cannot be used for anything else: it is closed.
 * Statements are never cancelled: a commit that waits for a synchronous standby
 * would become visible, and might still be lost.
 *
 * Rejected: the simple query protocol with values as text (quoting is a risk,
 * and a plan for each call costs more than its execution).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <poll.h>

#include "ngx_modelgw_pq_private.h"


#define NGX_MODELGW_PQ_TICK        10    /* ms, between looks at *stop */
#define NGX_MODELGW_PQ_NAME        16    /* bytes of a prepared statement's */

#define NGX_MODELGW_PQ_INT2        21    /* pg_type.dat */
#define NGX_MODELGW_PQ_NUMERIC     1700


static ngx_modelgw_pq_statement_t *ngx_modelgw_pq_statement(
    ngx_modelgw_pq_t *pq, const char *sql);
static ngx_int_t ngx_modelgw_pq_send(ngx_modelgw_pq_t *pq,
    ngx_modelgw_pq_statement_t *st, const char *sql,
    ngx_modelgw_pq_param_t *params, ngx_uint_t n);
static ngx_int_t ngx_modelgw_pq_receive(ngx_modelgw_pq_t *pq,
    uint64_t deadline, ngx_modelgw_pq_result_t **results,
    ngx_modelgw_pq_error_t *error);
static ngx_modelgw_pq_result_t *ngx_modelgw_pq_next(ngx_modelgw_pq_t *pq,
    uint64_t deadline, ngx_int_t *rc, ngx_modelgw_pq_error_t *error);
static ngx_int_t ngx_modelgw_pq_flush(ngx_modelgw_pq_t *pq, uint64_t deadline,
    ngx_modelgw_pq_error_t *error);
static ngx_int_t ngx_modelgw_pq_get(ngx_modelgw_pq_t *pq, uint64_t deadline,
    ngx_modelgw_pq_result_t **result, ngx_modelgw_pq_error_t *error);
static ngx_int_t ngx_modelgw_pq_good(ngx_modelgw_pq_result_t *result,
    ngx_modelgw_pq_error_t *error);
static int64_t ngx_modelgw_pq_numeric(const u_char *p, size_t len);


void
ngx_modelgw_pq_close(ngx_modelgw_pq_t *pq)
{
    libpq.PQfinish(pq->conn);
    free(pq);
}


ngx_uint_t
ngx_modelgw_pq_alive(ngx_modelgw_pq_t *pq)
{
    return !pq->dead && libpq.PQstatus(pq->conn) == CONNECTION_OK;
}


ngx_int_t
ngx_modelgw_pq_exec(ngx_modelgw_pq_t *pq, const char *sql,
    ngx_modelgw_pq_param_t *params, ngx_uint_t n, ngx_msec_t timeout,
    ngx_modelgw_pq_result_t **result, ngx_modelgw_pq_error_t *error)
{
    uint64_t  deadline;

    if (result) {
        *result = NULL;
    }

    deadline = ngx_modelgw_pq_now() + timeout;

    if (pq->dead || pq->nqueued
        || ngx_modelgw_pq_send(pq, NULL, sql, params, n) != NGX_OK)
    {
        return ngx_modelgw_pq_lost(pq, error);
    }

    return ngx_modelgw_pq_finish(pq, deadline, result, error);
}


ngx_int_t
ngx_modelgw_pq_add(ngx_modelgw_pq_t *pq, const char *sql,
    ngx_modelgw_pq_param_t *params, ngx_uint_t n,
    ngx_modelgw_pq_error_t *error)
{
    ngx_modelgw_pq_queued_t     *q;
    ngx_modelgw_pq_statement_t  *st;

    if (pq->dead || (pq->nqueued == 0
                     && !libpq.PQenterPipelineMode(pq->conn)))
    {
        return ngx_modelgw_pq_lost(pq, error);
    }

    st = ngx_modelgw_pq_statement(pq, sql);

    if (st == NULL || pq->nqueued == NGX_MODELGW_PQ_QUEUE) {
        pq->dead = 1;
        ngx_modelgw_pq_set_error(error, "too many statements");
        return NGX_ERROR;
    }

    q = &pq->queued[pq->nqueued++];

    q->statement = st;
    q->prepare = (st->state == NGX_MODELGW_PQ_UNKNOWN);

    if (ngx_modelgw_pq_send(pq, st, sql, params, n) != NGX_OK) {
        return ngx_modelgw_pq_lost(pq, error);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_pq_run(ngx_modelgw_pq_t *pq, ngx_msec_t timeout,
    ngx_modelgw_pq_result_t **results, ngx_uint_t n,
    ngx_modelgw_pq_error_t *error)
{
    uint64_t    deadline;
    ngx_int_t   rc;
    ngx_uint_t  i;

    deadline = ngx_modelgw_pq_now() + timeout;

    if (results) {
        ngx_memzero(results, n * sizeof(ngx_modelgw_pq_result_t *));
    }

    if (pq->dead || pq->nqueued == 0 || (results && n != pq->nqueued)
        || !libpq.PQpipelineSync(pq->conn))
    {
        rc = ngx_modelgw_pq_lost(pq, error);

    } else {
        rc = ngx_modelgw_pq_flush(pq, deadline, error);

        if (rc == NGX_OK) {
            rc = ngx_modelgw_pq_receive(pq, deadline, results, error);
        }
    }

    /* those that were not prepared, as the run has ended before */

    for (i = 0; i < pq->nqueued; i++) {
        if (pq->queued[i].statement->state == NGX_MODELGW_PQ_SENT) {
            pq->queued[i].statement->state = NGX_MODELGW_PQ_UNKNOWN;
        }
    }

    pq->nqueued = 0;

    if (rc != NGX_OK && results) {
        for (i = 0; i < n; i++) {
            ngx_modelgw_pq_clear(results[i]);
            results[i] = NULL;
        }
    }

    return rc;
}


/* NULL: there is no room for another one */

static ngx_modelgw_pq_statement_t *
ngx_modelgw_pq_statement(ngx_modelgw_pq_t *pq, const char *sql)
{
    ngx_uint_t  i;

    for (i = 0; i < pq->nstatements; i++) {
        if (pq->statements[i].sql == sql) {
            return &pq->statements[i];
        }
    }

    if (i == NGX_MODELGW_PQ_STATEMENTS) {
        return NULL;
    }

    pq->nstatements++;
    pq->statements[i].sql = sql;

    return &pq->statements[i];
}


/* st NULL: it is not prepared */

static ngx_int_t
ngx_modelgw_pq_send(ngx_modelgw_pq_t *pq, ngx_modelgw_pq_statement_t *st,
    const char *sql, ngx_modelgw_pq_param_t *params, ngx_uint_t n)
{
    int          lengths[NGX_MODELGW_PQ_PARAMS];
    int          formats[NGX_MODELGW_PQ_PARAMS];
    Oid          types[NGX_MODELGW_PQ_PARAMS];
    char         name[NGX_MODELGW_PQ_NAME];
    ngx_uint_t   i;
    const char  *values[NGX_MODELGW_PQ_PARAMS];

    if (n > NGX_MODELGW_PQ_PARAMS) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        types[i] = params[i].type;
        values[i] = (char *) params[i].data;
        lengths[i] = params[i].len;
        formats[i] = 1;
    }

    if (st == NULL) {
        return libpq.PQsendQueryParams(pq->conn, sql, n, types, values,
                                       lengths, formats, 1)
               ? NGX_OK : NGX_ERROR;
    }

    ngx_sprintf((u_char *) name, "s%ui%Z", (ngx_uint_t) (st - pq->statements));

    if (st->state == NGX_MODELGW_PQ_UNKNOWN) {

        if (!libpq.PQsendPrepare(pq->conn, name, sql, n, types)) {
            return NGX_ERROR;
        }

        st->state = NGX_MODELGW_PQ_SENT;
    }

    return libpq.PQsendQueryPrepared(pq->conn, name, n, values, lengths,
                                     formats, 1)
           ? NGX_OK : NGX_ERROR;
}


/*
 * Reads the results of a run up to its end: after an error the server skips
 * what is left.
 */

static ngx_int_t
ngx_modelgw_pq_receive(ngx_modelgw_pq_t *pq, uint64_t deadline,
    ngx_modelgw_pq_result_t **results, ngx_modelgw_pq_error_t *error)
{
    ngx_int_t                 rc;
    ngx_uint_t                i;
    ngx_modelgw_pq_error_t    ignored;
    ngx_modelgw_pq_queued_t  *q;
    ngx_modelgw_pq_result_t  *result;

    rc = NGX_OK;

    for (i = 0; i < pq->nqueued; i++) {
        q = &pq->queued[i];

        if (q->prepare) {
            ngx_modelgw_pq_clear(ngx_modelgw_pq_next(pq, deadline, &rc,
                                                     error));

            if (rc == NGX_OK) {
                q->statement->state = NGX_MODELGW_PQ_READY;
            }
        }

        result = ngx_modelgw_pq_next(pq, deadline, &rc, error);

        if (results) {
            results[i] = result;

        } else {
            ngx_modelgw_pq_clear(result);
        }

        if (pq->dead) {
            return NGX_ERROR;
        }
    }

    if (rc != NGX_OK) {
        error = &ignored;
    }

    if (ngx_modelgw_pq_get(pq, deadline, &result, error) != NGX_OK) {
        return NGX_ERROR;
    }

    if (libpq.PQresultStatus((PGresult *) result) != PGRES_PIPELINE_SYNC
        || !libpq.PQexitPipelineMode(pq->conn))
    {
        rc = ngx_modelgw_pq_lost(pq, error);
    }

    ngx_modelgw_pq_clear(result);

    return rc;
}


/*
 * The next result in a run, or NULL.  The first one that is not good, or a
 * failure of the connection, sets *rc to NGX_ERROR and error.
 */

static ngx_modelgw_pq_result_t *
ngx_modelgw_pq_next(ngx_modelgw_pq_t *pq, uint64_t deadline, ngx_int_t *rc,
    ngx_modelgw_pq_error_t *error)
{
    ngx_modelgw_pq_error_t    ignored;
    ngx_modelgw_pq_result_t  *result, *end;

    if (*rc != NGX_OK) {
        error = &ignored;
    }

    if (pq->dead
        || ngx_modelgw_pq_get(pq, deadline, &result, error) != NGX_OK)
    {
        *rc = NGX_ERROR;
        return NULL;
    }

    if (ngx_modelgw_pq_good(result, error) != NGX_OK) {
        *rc = NGX_ERROR;
        error = &ignored;
    }

    /* NULL ends the results of one statement */

    if (libpq.PQstatus(pq->conn) != CONNECTION_OK) {
        *rc = ngx_modelgw_pq_lost(pq, error);
        return result;
    }

    if (ngx_modelgw_pq_get(pq, deadline, &end, error) != NGX_OK) {
        *rc = NGX_ERROR;
        return result;
    }

    if (end) {
        ngx_modelgw_pq_clear(end);
        *rc = ngx_modelgw_pq_lost(pq, error);
    }

    return result;
}


ngx_int_t
ngx_modelgw_pq_finish(ngx_modelgw_pq_t *pq, uint64_t deadline,
    ngx_modelgw_pq_result_t **result, ngx_modelgw_pq_error_t *error)
{
    ngx_int_t                 rc;
    ngx_modelgw_pq_error_t    ignored;
    ngx_modelgw_pq_result_t  *res, *first;

    if (result) {
        *result = NULL;
    }

    if (ngx_modelgw_pq_flush(pq, deadline, error) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = NGX_OK;
    first = NULL;

    for ( ;; ) {

        if (ngx_modelgw_pq_get(pq, deadline, &res, error) != NGX_OK) {
            rc = NGX_ERROR;
            break;
        }

        if (res == NULL) {
            break;
        }

        if (ngx_modelgw_pq_good(res, error) != NGX_OK) {
            rc = NGX_ERROR;
            error = &ignored;
        }

        if (first == NULL) {
            first = res;

        } else {
            ngx_modelgw_pq_clear(res);
        }
    }

    if (rc == NGX_OK && result) {
        *result = first;

    } else {
        ngx_modelgw_pq_clear(first);
    }

    return rc;
}


/* Sends what is queued, and reads meanwhile, so that the server goes on. */

static ngx_int_t
ngx_modelgw_pq_flush(ngx_modelgw_pq_t *pq, uint64_t deadline,
    ngx_modelgw_pq_error_t *error)
{
    int    rc;
    short  revents;

    for ( ;; ) {
        rc = libpq.PQflush(pq->conn);

        if (rc == 0) {
            return NGX_OK;
        }

        if (rc < 0) {
            return ngx_modelgw_pq_lost(pq, error);
        }

        if (ngx_modelgw_pq_wait(pq, POLLIN|POLLOUT, deadline, &revents, error)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if ((revents & ~POLLOUT) && !libpq.PQconsumeInput(pq->conn)) {
            return ngx_modelgw_pq_lost(pq, error);
        }
    }
}


/* *result is NULL at the end of a statement's results */

static ngx_int_t
ngx_modelgw_pq_get(ngx_modelgw_pq_t *pq, uint64_t deadline,
    ngx_modelgw_pq_result_t **result, ngx_modelgw_pq_error_t *error)
{
    short  revents;

    while (libpq.PQisBusy(pq->conn)) {

        if (ngx_modelgw_pq_wait(pq, POLLIN, deadline, &revents, error)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (!libpq.PQconsumeInput(pq->conn)) {
            return ngx_modelgw_pq_lost(pq, error);
        }
    }

    *result = (ngx_modelgw_pq_result_t *) libpq.PQgetResult(pq->conn);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_pq_good(ngx_modelgw_pq_result_t *result,
    ngx_modelgw_pq_error_t *error)
{
    char            *text, *state;
    PGresult        *res;
    ExecStatusType   status;

    res = (PGresult *) result;
    status = libpq.PQresultStatus(res);

    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        return NGX_OK;
    }

    text = libpq.PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
    state = libpq.PQresultErrorField(res, PG_DIAG_SQLSTATE);

    ngx_modelgw_pq_set_error(error, "%s",
                             text ? text : libpq.PQresultErrorMessage(res));

    if (state) {
        ngx_cpystrn((u_char *) error->state, (u_char *) state,
                    sizeof(error->state));
    }

    return NGX_ERROR;
}


ngx_int_t
ngx_modelgw_pq_wait(ngx_modelgw_pq_t *pq, short events, uint64_t deadline,
    short *revents, ngx_modelgw_pq_error_t *error)
{
    int            n;
    uint64_t       now, timeout;
    struct pollfd  pfd;

    pfd.fd = libpq.PQsocket(pq->conn);
    pfd.events = events;

    for ( ;; ) {

        if (pq->stop && *pq->stop) {
            ngx_modelgw_pq_set_error(error, "stopped");
            break;
        }

        now = ngx_modelgw_pq_now();
        timeout = (deadline > now) ? deadline - now : 0;

        if (pq->stop) {
            timeout = ngx_min(timeout, NGX_MODELGW_PQ_TICK);
        }

        pfd.revents = 0;
        n = poll(&pfd, 1, (int) ngx_min(timeout, NGX_MAX_INT32_VALUE));

        if (n == 1) {
            *revents = pfd.revents;
            return NGX_OK;
        }

        if (n == -1 && errno != EINTR) {
            ngx_modelgw_pq_set_error(error, "poll() failed: %s",
                                     strerror(errno));
            break;
        }

        if (now >= deadline) {
            ngx_modelgw_pq_set_error(error, "the database has not answered in"
                                     " time");
            break;
        }
    }

    pq->dead = 1;

    return NGX_ERROR;
}


ngx_int_t
ngx_modelgw_pq_lost(ngx_modelgw_pq_t *pq, ngx_modelgw_pq_error_t *error)
{
    char  *text;

    pq->dead = 1;

    text = libpq.PQerrorMessage(pq->conn);

    ngx_modelgw_pq_set_error(error, "%s",
                             *text ? text : "the connection is closed");

    return NGX_ERROR;
}


uint64_t
ngx_modelgw_pq_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


/* one line, whatever the text has */

void
ngx_modelgw_pq_set_error(ngx_modelgw_pq_error_t *error, const char *fmt, ...)
{
    u_char   *p, *dst, *last;
    va_list   args;

    va_start(args, fmt);
    last = ngx_vslprintf(error->data, error->data + NGX_MODELGW_PQ_ERROR, fmt,
                         args);
    va_end(args);

    dst = error->data;

    for (p = error->data; p < last; p++) {
        if (*p > ' ') {
            *dst++ = *p;

        } else if (dst > error->data && dst[-1] != ' ') {
            *dst++ = ' ';
        }
    }

    error->len = dst - error->data;
    error->len -= (error->len && dst[-1] == ' ');
    error->state[0] = '\0';
}


ngx_uint_t
ngx_modelgw_pq_rows(ngx_modelgw_pq_result_t *result)
{
    return libpq.PQntuples((PGresult *) result);
}


ngx_uint_t
ngx_modelgw_pq_changed(ngx_modelgw_pq_result_t *result)
{
    return strtoul(libpq.PQcmdTuples((PGresult *) result), NULL, 10);
}


ngx_uint_t
ngx_modelgw_pq_null(ngx_modelgw_pq_result_t *result, ngx_uint_t row,
    ngx_uint_t column)
{
    return libpq.PQgetisnull((PGresult *) result, row, column);
}


int64_t
ngx_modelgw_pq_int(ngx_modelgw_pq_result_t *result, ngx_uint_t row,
    ngx_uint_t column)
{
    ngx_str_t  value;

    ngx_modelgw_pq_text(result, row, column, &value);

    switch (libpq.PQftype((PGresult *) result, column)) {

    case NGX_MODELGW_PQ_BOOL:
    case NGX_MODELGW_PQ_INT2:
    case NGX_MODELGW_PQ_INT4:
    case NGX_MODELGW_PQ_INT8:
        return ngx_modelgw_pq_read(value.data, value.len);

    case NGX_MODELGW_PQ_NUMERIC:
        return ngx_modelgw_pq_numeric(value.data, value.len);
    }

    return 0;
}


void
ngx_modelgw_pq_text(ngx_modelgw_pq_result_t *result, ngx_uint_t row,
    ngx_uint_t column, ngx_str_t *text)
{
    text->data = (u_char *) libpq.PQgetvalue((PGresult *) result, row, column);
    text->len = libpq.PQgetlength((PGresult *) result, row, column);
}


void
ngx_modelgw_pq_clear(ngx_modelgw_pq_result_t *result)
{
    if (result) {
        libpq.PQclear((PGresult *) result);
    }
}


/* a number in network order, with its sign */

int64_t
ngx_modelgw_pq_read(const u_char *p, size_t len)
{
    uint64_t  n;

    n = (len && (*p & 0x80)) ? (uint64_t) -1 : 0;

    while (len--) {
        n = n << 8 | *p++;
    }

    return (int64_t) n;
}


/*
 * The number of digits to the base of 10,000, the weight of the first one, the
 * sign, the scale, the digits, 16 bits each: numeric_send() in PostgreSQL's
 * src/backend/utils/adt/numeric.c.  sum(bigint) has this type.
 */

static int64_t
ngx_modelgw_pq_numeric(const u_char *p, size_t len)
{
    int64_t     n, digit, weight;
    ngx_uint_t  i, digits, negative;

    if (len < 8) {
        return 0;
    }

    digits = (p[0] << 8 | p[1]);
    weight = ngx_modelgw_pq_read(p + 2, 2);
    negative = (p[4] == 0x40);

    n = 0;
    p += 8;

    for (i = 0; (int64_t) i <= weight; i++) {

        digit = (i < digits && len >= 10 + 2 * i) ? p[2 * i] << 8 | p[2 * i + 1]
                                                  : 0;

        if (n < (INT64_MIN + digit) / 10000) {
            return negative ? INT64_MIN : INT64_MAX;
        }

        n = n * 10000 - digit;
    }

    if (negative) {
        return n;
    }

    return (n == INT64_MIN) ? INT64_MAX : -n;
}
