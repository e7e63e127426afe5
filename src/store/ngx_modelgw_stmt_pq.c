
/*
 * Statements of operators, by PostgreSQL: of a cluster's database.
 *
 * Their text is that for SQLite, but for a few words, which are in one table.
 * It is sent when the first row is read, with all parameters.
 *
 * A reader has one transaction for all that it reads, of one instant, and reads
 * rows by cursors: a query of a million calls needs the memory of a thousand.
 * It connects for its first statement, so that it may be interrupted from the
 * beginning on.
 *
 * An attached store uses a connection that is another one's, between _begin()
 * and _commit().
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_cluster.h"
#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STMT_SQL      8192   /* bytes of a statement */
#define NGX_MODELGW_STMT_FETCH    1000   /* rows at a time */

#define NGX_MODELGW_STMT_CONNECT  5000   /* ms */
#define NGX_MODELGW_STMT_READ     65000  /* ms; longer than the server's */
#define NGX_MODELGW_STMT_WRITE    10000  /* ms */


typedef struct {
    const char  *sqlite;
    const char  *pq;
} ngx_modelgw_stmt_word_t;


static ngx_int_t ngx_modelgw_stmt_pq_execute(ngx_modelgw_stmt_t *stmt);
static ngx_int_t ngx_modelgw_stmt_pq_send(ngx_modelgw_stmt_t *stmt,
    u_char *sql, ngx_uint_t n);
static ngx_int_t ngx_modelgw_stmt_pq_text(ngx_modelgw_stmt_t *stmt, u_char *p,
    u_char *last);
static ngx_int_t ngx_modelgw_stmt_pq_snapshot(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_stmt_pq_transaction(ngx_modelgw_store_t *s,
    const char *begin, const char *set, ngx_msec_t timeout);
static ngx_int_t ngx_modelgw_stmt_pq_fail(ngx_modelgw_store_t *s,
    ngx_modelgw_pq_error_t *error);
static ngx_modelgw_store_t *ngx_modelgw_store_cluster(void);


/*
 * What they say differently.  An account's balance is what no node has, and
 * what is left of the leases of those that have some.  Actions are told apart
 * by the node, too, which is parameter 16 of each statement.
 */

static ngx_modelgw_stmt_word_t  ngx_modelgw_stmt_words[] = {

    { "instr(", "strpos(" },
    { "max(?", "greatest(?" },           /* of two */
    { "min((?", "least((?" },
    { "COLLATE BINARY", "COLLATE \"C\"" },
    { NGX_MODELGW_STORE_AMONG, "= ANY(string_to_array(?2, ','))" },

    { NGX_MODELGW_STORE_DAY_TIME, "extract(epoch FROM day::date)::bigint" },
    { NGX_MODELGW_STORE_DAYS_SINCE,
      "day >= to_char(to_timestamp((?1 + 86399999) / 1000)"
      " AT TIME ZONE 'UTC', 'YYYY-MM-DD')" },

    { NGX_MODELGW_STORE_BALANCES,
      "(SELECT a.name, a.opened,"
      " a.free + coalesce(sum(granted - returned - forced - spent), 0)"
      " AS balance, coalesce(sum(held), 0) AS held FROM accounts a"
      " LEFT JOIN leases ON leases.account = a.name"
      " WHERE strpos(a.name, '#') = 0"
      " GROUP BY a.name, a.opened, a.free) AS balances" },

    { "(name, balance, opened)", "(name, free, opened)" },
    { "balance = balance + ?2", "free = free + ?2" },

    { "INSERT INTO actions VALUES (",
      "INSERT INTO actions VALUES (?16, " },
    { "FROM actions WHERE id = ?1",
      "FROM actions WHERE id = ?1 AND node = ?16" },
    { NGX_MODELGW_STORE_ACTIONS_NODE, "node" }
};

#define NGX_MODELGW_STMT_WORDS                                                \
    (sizeof(ngx_modelgw_stmt_words) / sizeof(ngx_modelgw_stmt_word_t))


ngx_modelgw_store_t *
ngx_modelgw_store_open_cluster(ngx_modelgw_pq_conf_t *conf,
    ngx_modelgw_store_error_t *error)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_cluster();

    if (s == NULL) {
        ngx_memzero(error, sizeof(ngx_modelgw_store_error_t));
        error->len = ngx_sprintf(error->data, "no memory") - error->data;
        return NULL;
    }

    s->conf = conf;

    return s;
}


ngx_modelgw_store_t *
ngx_modelgw_store_attach(ngx_modelgw_pq_t *pq, uint64_t node)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_cluster();

    if (s) {
        s->pq = pq;
        s->node = node;
    }

    return s;
}


static ngx_modelgw_store_t *
ngx_modelgw_store_cluster(void)
{
    ngx_modelgw_store_t  *s;

    s = calloc(1, sizeof(ngx_modelgw_store_t));
    if (s == NULL) {
        return NULL;
    }

    s->cluster = 1;
    s->path = "modelgw_cluster";

    return s;
}


void
ngx_modelgw_store_cluster_close(ngx_modelgw_store_t *s)
{
    if (s->conf) {

        if (s->pq) {
            ngx_modelgw_pq_close(s->pq);
        }

    } else if (s->batch) {
        ngx_modelgw_store_cluster_rollback(s);
    }
}


ngx_int_t
ngx_modelgw_store_cluster_begin(ngx_modelgw_store_t *s)
{
    if (s->failed || s->batch) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_stmt_pq_transaction(s, "BEGIN",
            "SELECT set_config('search_path', 'modelgw', true)",
            NGX_MODELGW_STMT_WRITE)
        != NGX_OK)
    {
        return ngx_modelgw_store_abandon(s);
    }

    s->batch = 1;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_cluster_commit(ngx_modelgw_store_t *s)
{
    ngx_modelgw_pq_error_t  error;

    if (s->failed || !s->batch) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_pq_exec(s->pq, "COMMIT", NULL, 0, NGX_MODELGW_STMT_WRITE,
                            NULL, &error)
        != NGX_OK)
    {
        (void) ngx_modelgw_stmt_pq_fail(s, &error);
        return ngx_modelgw_store_abandon(s);
    }

    s->batch = 0;

    return NGX_OK;
}


/* without a connection the server does so by itself */

void
ngx_modelgw_store_cluster_rollback(ngx_modelgw_store_t *s)
{
    ngx_modelgw_pq_error_t  error;

    if (s->pq && ngx_modelgw_pq_alive(s->pq)) {
        (void) ngx_modelgw_pq_exec(s->pq, "ROLLBACK", NULL, 0,
                                   NGX_MODELGW_STMT_WRITE, NULL, &error);
    }
}


/*
 * The transaction of a reader.  The session's settings are for exchanges, which
 * do not read tables as a whole.  The server of version 13 does not have all.
 */

static ngx_int_t
ngx_modelgw_stmt_pq_snapshot(ngx_modelgw_store_t *s)
{
    ngx_modelgw_pq_error_t  error;

    if (s->pq) {
        return NGX_OK;
    }

    s->pq = ngx_modelgw_pq_connect(s->conf, NGX_MODELGW_STMT_CONNECT, &s->stop,
                                   &error);
    if (s->pq == NULL) {
        return ngx_modelgw_stmt_pq_fail(s, &error);
    }

    return ngx_modelgw_stmt_pq_transaction(s,
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        "SELECT set_config(s.name, v.value, true) FROM (VALUES"
            " ('search_path', 'modelgw'),"
            " ('statement_timeout', '60000'),"
            " ('client_connection_check_interval', '1000'),"
            " ('plan_cache_mode', 'auto'),"
            " ('enable_seqscan', 'on'),"
            " ('enable_bitmapscan', 'on')) AS v (name, value)"
        " JOIN pg_settings s ON s.name = v.name", NGX_MODELGW_STMT_READ);
}


static ngx_int_t
ngx_modelgw_stmt_pq_transaction(ngx_modelgw_store_t *s, const char *begin,
    const char *set, ngx_msec_t timeout)
{
    ngx_modelgw_pq_error_t  error;

    if (ngx_modelgw_pq_add(s->pq, begin, NULL, 0, &error) != NGX_OK
        || ngx_modelgw_pq_add(s->pq, set, NULL, 0, &error) != NGX_OK
        || ngx_modelgw_pq_run(s->pq, timeout, NULL, 2, &error) != NGX_OK)
    {
        return ngx_modelgw_stmt_pq_fail(s, &error);
    }

    return NGX_OK;
}


/* The first rows, or all of them: NGX_OK, NGX_ERROR. */

static ngx_int_t
ngx_modelgw_stmt_pq_execute(ngx_modelgw_stmt_t *stmt)
{
    u_char               *p, *last, sql[NGX_MODELGW_STMT_SQL];
    ngx_modelgw_store_t  *s;

    s = stmt->store;
    p = sql;
    last = sql + NGX_MODELGW_STMT_SQL;

    stmt->executed = 1;
    ngx_modelgw_stmt_bind_int(stmt, NGX_MODELGW_STMT_NODE, s->node);

    if (s->conf) {

        if (ngx_modelgw_stmt_pq_snapshot(s) != NGX_OK) {
            return NGX_ERROR;
        }

        stmt->cursor = ++s->cursors;
        p = ngx_sprintf(p, "DECLARE c%ui NO SCROLL CURSOR FOR ", stmt->cursor);
    }

    if (ngx_modelgw_stmt_pq_text(stmt, p, last) != NGX_OK) {
        return ngx_modelgw_store_fail_text(s, "failed: a statement too long");
    }

    return ngx_modelgw_stmt_pq_send(stmt, sql, NGX_MODELGW_STMT_NODE);
}


static ngx_int_t
ngx_modelgw_stmt_pq_send(ngx_modelgw_stmt_t *stmt, u_char *sql, ngx_uint_t n)
{
    ngx_modelgw_store_t     *s;
    ngx_modelgw_pq_error_t   error;

    s = stmt->store;

    if (stmt->result) {
        ngx_modelgw_pq_clear(stmt->result);
    }

    stmt->result = NULL;
    stmt->row = 0;
    stmt->rows = 0;

    if (ngx_modelgw_pq_exec(s->pq, (char *) sql, &stmt->params[1], n,
                            s->conf ? NGX_MODELGW_STMT_READ
                                    : NGX_MODELGW_STMT_WRITE,
                            &stmt->result, &error)
        != NGX_OK)
    {
        return ngx_modelgw_stmt_pq_fail(s, &error);
    }

    stmt->rows = ngx_modelgw_pq_rows(stmt->result);

    return NGX_OK;
}


/* Translates it: NGX_OK, NGX_ERROR (too long). */

static ngx_int_t
ngx_modelgw_stmt_pq_text(ngx_modelgw_stmt_t *stmt, u_char *p, u_char *last)
{
    size_t                    len, n;
    ngx_uint_t                i;
    const char               *sql, *word;
    ngx_modelgw_stmt_word_t  *words;

    words = ngx_modelgw_stmt_words;

    for (sql = stmt->sql; *sql; sql += len) {
        len = 1;
        word = NULL;

        for (i = 0; i < NGX_MODELGW_STMT_WORDS; i++) {
            n = ngx_strlen(words[i].sqlite);

            if (ngx_strncmp(sql, words[i].sqlite, n) == 0) {
                len = n;
                word = words[i].pq;
                break;
            }
        }

        if (last - p <= (word ? (ssize_t) ngx_strlen(word) : 1)) {
            return NGX_ERROR;
        }

        if (word == NULL) {
            *p++ = (*sql == '?') ? '$' : *sql;
            continue;
        }

        for ( /* void */ ; *word; word++) {
            *p++ = (*word == '?') ? '$' : *word;
        }
    }

    *p = '\0';

    return NGX_OK;
}


void
ngx_modelgw_stmt_pq_prepare(ngx_modelgw_stmt_t *stmt, const char *sql)
{
    ngx_uint_t  i;

    stmt->sql = sql;

    for (i = 1; i <= NGX_MODELGW_STMT_NODE; i++) {
        stmt->params[i].type = NGX_MODELGW_PQ_TEXT;
    }
}


/*
 * The database has no text that is not UTF-8, or with a NUL: nothing is found
 * by such a one, and nothing written.
 */

void
ngx_modelgw_stmt_pq_bind_text(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    u_char *data, size_t len)
{
    size_t   n;
    u_char  *p, *last;

    last = data + len;

    for (p = data; p < last; p += n) {
        n = ngx_modelgw_pq_utf8(p, last);

        if (n == 0) {
            stmt->invalid = 1;
            return;
        }
    }

    ngx_modelgw_pq_param_text(&stmt->params[i],
                              len ? data : (u_char *) "", len);
}


ngx_int_t
ngx_modelgw_stmt_pq_next(ngx_modelgw_stmt_t *stmt)
{
    u_char  sql[sizeof("FETCH  FROM c") + 2 * NGX_INT_T_LEN];

    if (stmt->invalid) {
        return stmt->store->conf
               ? NGX_DONE
               : ngx_modelgw_store_fail_text(stmt->store,
                                             "failed: a text is not UTF-8");
    }

    if (!stmt->executed) {

        if (ngx_modelgw_stmt_pq_execute(stmt) != NGX_OK) {
            return NGX_ERROR;
        }

        stmt->more = (stmt->cursor != 0);

    } else {
        stmt->row++;
    }

    if (stmt->row >= stmt->rows && stmt->more) {

        *ngx_sprintf(sql, "FETCH %d FROM c%ui", NGX_MODELGW_STMT_FETCH,
                     stmt->cursor) = '\0';

        if (ngx_modelgw_stmt_pq_send(stmt, sql, 0) != NGX_OK) {
            return NGX_ERROR;
        }

        stmt->more = (stmt->rows == NGX_MODELGW_STMT_FETCH);
    }

    return (stmt->row < stmt->rows) ? NGX_OK : NGX_DONE;
}


static ngx_int_t
ngx_modelgw_stmt_pq_fail(ngx_modelgw_store_t *s,
    ngx_modelgw_pq_error_t *error)
{
    u_char  *p;

    p = ngx_slprintf(s->error.data, s->error.data + NGX_MODELGW_STORE_ERROR,
                     "the database of \"%s\" failed: %*s", s->path, error->len,
                     error->data);

    s->error.len = p - s->error.data;
    s->error.locked = 0;
    s->error.denied = 0;

    return NGX_ERROR;
}
