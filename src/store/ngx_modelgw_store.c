
/*
 * The durable ledger: one SQLite file.  Here it is opened, and failures get
 * their words.
 *
 * It is in WAL mode with synchronous=FULL: a commit is one append and one
 * fsync(), and readers and the writer never wait for each other.  Exactly one
 * connection writes and checkpoints: the writer's.  Those that read are
 * READONLY and query_only, and never checkpoint, neither by themselves
 * (wal_autocheckpoint=0) nor as they are closed.  So the WAL-reset bug of
 * SQLite before 3.51.3, which needs two connections that write or checkpoint at
 * the same instant, is out of reach.
 *
 * The writer never waits for a lock (busy_timeout 0): who locks the file is a
 * stranger, and the writer's caller has a better idea of what to do meanwhile.
 *
 * The tables are made in one transaction before the file becomes a WAL one, so
 * that the file's own header tells the version, whatever is in the WAL:
 * ngx_modelgw_store_check() reads it without any lock, and makes no files.
 *
 * A connection must not be carried over a fork().  No file descriptor of the
 * file is opened but through SQLite, save for a file that is new: closing one
 * would take the process's POSIX locks off the file, under SQLite's feet.  An
 * O_PATH one is none of these.
 *
 * Rejected: a journal of our own (recovery, queries and the operator's tools
 * would have to be written, and believed); synchronous=NORMAL (the last commits
 * are gone after a power cut); an index of calls by account (it more than
 * doubles what a call costs, for a query that an operator makes once a week);
 * numbers instead of words in the tables (the accountant's SQL is to be
 * readable).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_PATIENCE  100  /* milliseconds: to open, and of
                                            readers */
#define NGX_MODELGW_STORE_PATH      128  /* bytes of it in a message */


static ngx_modelgw_store_t *ngx_modelgw_store_connect(const char *path,
    int flags, ngx_modelgw_store_error_t *error);
static ngx_int_t ngx_modelgw_store_setup(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file);
static ngx_int_t ngx_modelgw_store_setup_read(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file);
static ngx_int_t ngx_modelgw_store_ours(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_wal(ngx_modelgw_store_t *s);


ngx_modelgw_store_t *
ngx_modelgw_store_open(const char *path, ngx_modelgw_store_error_t *error)
{
    if (ngx_modelgw_store_touch(path, error) != NGX_OK) {
        return NULL;
    }

    return ngx_modelgw_store_open_known(path, NULL, error);
}


ngx_modelgw_store_t *
ngx_modelgw_store_open_known(const char *path, ngx_modelgw_store_file_t *file,
    ngx_modelgw_store_error_t *error)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_connect(path, SQLITE_OPEN_READWRITE, error);
    if (s == NULL) {
        return NULL;
    }

    if (ngx_modelgw_store_setup(s, file) != NGX_OK) {
        *error = s->error;
        ngx_modelgw_store_close(s);
        return NULL;
    }

    return s;
}


ngx_modelgw_store_t *
ngx_modelgw_store_open_read(const char *path, ngx_modelgw_store_file_t *file,
    ngx_modelgw_store_error_t *error)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_connect(path, SQLITE_OPEN_READONLY, error);
    if (s == NULL) {
        return NULL;
    }

    if (ngx_modelgw_store_setup_read(s, file) != NGX_OK) {
        *error = s->error;
        ngx_modelgw_store_close(s);
        return NULL;
    }

    return s;
}


static ngx_modelgw_store_t *
ngx_modelgw_store_connect(const char *path, int flags,
    ngx_modelgw_store_error_t *error)
{
    int                   rc;
    size_t                len;
    ngx_modelgw_store_t  *s;

    len = ngx_strlen(path) + 1;

    s = calloc(1, sizeof(ngx_modelgw_store_t) + len);
    if (s == NULL) {
        ngx_modelgw_store_say(error, path, "cannot be opened", ENOMEM);
        return NULL;
    }

    s->path = (char *) &s[1];
    ngx_memcpy(&s[1], path, len);

    /* a connection is used by one thread at a time: NOMUTEX */

    rc = sqlite3_open_v2(path, &s->db,
                         flags|SQLITE_OPEN_NOMUTEX|SQLITE_OPEN_EXRESCODE,
                         NULL);

    if (rc != SQLITE_OK) {
        (void) ngx_modelgw_store_fail(s, NULL);
        *error = s->error;
        ngx_modelgw_store_close(s);
        return NULL;
    }

    (void) sqlite3_busy_timeout(s->db, NGX_MODELGW_STORE_PATIENCE);

    return s;
}


void
ngx_modelgw_store_close(ngx_modelgw_store_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_STORE_STATEMENTS; i++) {
        (void) sqlite3_finalize(s->stmts[i]);
    }

    /* what is not committed is rolled back */

    (void) sqlite3_close(s->db);

    free(s);
}


void
ngx_modelgw_store_interrupt(ngx_modelgw_store_t *s)
{
    sqlite3_interrupt(s->db);
}


/* Readers that are about to end are waited for. */

ngx_int_t
ngx_modelgw_store_checkpoint(ngx_modelgw_store_t *s)
{
    int  rc;

    (void) sqlite3_busy_timeout(s->db, NGX_MODELGW_STORE_PATIENCE);

    ngx_set_errno(0);

    rc = sqlite3_wal_checkpoint_v2(s->db, "main", SQLITE_CHECKPOINT_TRUNCATE,
                                   NULL, NULL);

    if (rc != SQLITE_OK) {
        return ngx_modelgw_store_fail(s, NULL);
    }

    (void) sqlite3_busy_timeout(s->db, 0);

    return NGX_OK;
}


/* SQLite writes the page of the version whether it is another one or not. */

ngx_int_t
ngx_modelgw_store_probe(ngx_modelgw_store_t *s)
{
    char  sql[64];

    (void) snprintf(sql, sizeof(sql), "PRAGMA user_version = %d",
                    NGX_MODELGW_STORE_VERSION);

    return ngx_modelgw_store_exec(s, sql);
}


/* file: the one that it must be, with the tables; NULL: any */

static ngx_int_t
ngx_modelgw_store_setup(ngx_modelgw_store_t *s, ngx_modelgw_store_file_t *file)
{
    int64_t    pages;
    ngx_int_t  rc;

    if (file && ngx_modelgw_store_known(s, file) != NGX_OK) {
        return NGX_ERROR;
    }

    if (sqlite3_db_readonly(s->db, "main")) {
        return ngx_modelgw_store_fail_text(s, "cannot be written");
    }

    if (ngx_modelgw_store_exec(s, "PRAGMA synchronous = FULL") != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_store_ours(s);

    if (rc == NGX_DECLINED) {
        rc = file ? ngx_modelgw_store_fail_text(s, "is empty")
                  : ngx_modelgw_store_create(s);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_wal(s) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a long reader may have kept the WAL growing: the space is given back */

    if (ngx_modelgw_store_exec(s, "PRAGMA journal_size_limit = 16777216")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    (void) sqlite3_busy_timeout(s->db, 0);

    if (ngx_modelgw_store_write_init(s) != NGX_OK) {
        return NGX_ERROR;
    }

    /* SQLite opens the files beside it as it reads, if it has not yet */

    if (ngx_modelgw_store_number(s, "PRAGMA page_count", &pages) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_beside(s);
}


static ngx_int_t
ngx_modelgw_store_setup_read(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file)
{
    ngx_int_t  rc;

    /* before the first read: beside another file, the WAL is not its own */

    if (file && ngx_modelgw_store_known(s, file) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_exec(s, "PRAGMA query_only = 1;"
                                  "PRAGMA wal_autocheckpoint = 0")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    (void) sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);

    rc = ngx_modelgw_store_ours(s);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_store_fail_text(s, "is empty");
    }

    return rc;
}


/*
 * NGX_OK        a ledger of this version
 * NGX_DECLINED  the file is empty
 * NGX_ERROR     it is something else, or cannot be read
 */

static ngx_int_t
ngx_modelgw_store_ours(ngx_modelgw_store_t *s)
{
    int64_t  pages, id, version;

    if (ngx_modelgw_store_number(s, "PRAGMA page_count", &pages) != NGX_OK) {
        return NGX_ERROR;
    }

    if (pages == 0) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_store_number(s, "PRAGMA application_id", &id) != NGX_OK
        || ngx_modelgw_store_number(s, "PRAGMA user_version", &version)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_version(id, version, s->path, &s->error);
}


/* SQLite answers the mode that the file is in, which may be the old one */

static ngx_int_t
ngx_modelgw_store_wal(ngx_modelgw_store_t *s)
{
    ngx_uint_t     wal;
    const char    *mode;
    sqlite3_stmt  *stmt;

    if (ngx_modelgw_store_prepare(s, "PRAGMA journal_mode = WAL", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (sqlite3_step(stmt) != SQLITE_ROW) {
        (void) ngx_modelgw_store_fail(s, NULL);
        (void) sqlite3_finalize(stmt);
        return NGX_ERROR;
    }

    mode = (const char *) sqlite3_column_text(stmt, 0);
    wal = (mode && ngx_strcmp(mode, "wal") == 0);

    (void) sqlite3_finalize(stmt);

    if (!wal) {
        return ngx_modelgw_store_fail_text(s, "cannot be put in WAL mode");
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_exec(ngx_modelgw_store_t *s, const char *sql)
{
    ngx_set_errno(0);

    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return ngx_modelgw_store_fail(s, NULL);
    }

    return NGX_OK;
}


void
ngx_modelgw_store_error(ngx_modelgw_store_t *s,
    ngx_modelgw_store_error_t *error)
{
    *error = s->error;
}


void
ngx_modelgw_store_say(ngx_modelgw_store_error_t *error, const char *path,
    const char *text, int err)
{
    u_char  *p, *last;
    size_t   len;

    p = error->data;
    last = p + NGX_MODELGW_STORE_ERROR;

    /* of a long path the end tells more */

    len = ngx_strlen(path);

    if (len > NGX_MODELGW_STORE_PATH) {
        path += len - NGX_MODELGW_STORE_PATH;
        p = ngx_slprintf(p, last, "\"...%s\" %s", path, text);

    } else {
        p = ngx_slprintf(p, last, "\"%s\" %s", path, text);
    }

    /* strerror() of glibc, since 2.32, and of musl may be called by threads */

    if (err) {
        p = ngx_slprintf(p, last, " (%d: %s)", err, strerror(err));
    }

    error->len = p - error->data;
    error->locked = 0;
}


ngx_int_t
ngx_modelgw_store_fail(ngx_modelgw_store_t *s, sqlite3_stmt *stmt)
{
    int   rc, err, last;
    char  text[NGX_MODELGW_STORE_ERROR];

    last = errno;
    rc = s->db ? sqlite3_errcode(s->db) & 0xff : SQLITE_NOMEM;
    err = 0;

    if (rc == SQLITE_IOERR || rc == SQLITE_CANTOPEN) {
        err = sqlite3_system_errno(s->db);

        /* it forgets that of a commit */

        if (err == 0) {
            err = last;
        }
    }

    (void) snprintf(text, sizeof(text), "failed: %s",
                    s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));

    ngx_modelgw_store_say(&s->error, s->path, text, err);

    s->error.locked = (rc == SQLITE_BUSY);

    if (stmt) {
        (void) sqlite3_reset(stmt);
    }

    return NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_fail_text(ngx_modelgw_store_t *s, const char *text)
{
    ngx_modelgw_store_say(&s->error, s->path, text, 0);

    return NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_prepare(ngx_modelgw_store_t *s, const char *sql,
    sqlite3_stmt **stmt)
{
    if (sqlite3_prepare_v2(s->db, sql, -1, stmt, NULL) != SQLITE_OK) {
        return ngx_modelgw_store_fail(s, NULL);
    }

    return NGX_OK;
}
