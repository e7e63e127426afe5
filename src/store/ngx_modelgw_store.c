
/*
 * The durable ledger, one SQLite file: opening it, checks of the file, and the
 * text of failures.
 *
 * It is in WAL mode with synchronous=FULL: a commit is one append and one
 * fsync(), and readers and the writer never wait for each other.  Exactly one
 * connection writes and checkpoints: the writer's.  Connections that read are
 * READONLY and query_only, and never checkpoint, neither by themselves
 * (wal_autocheckpoint=0) nor when closed.  So the WAL-reset bug of SQLite
 * before 3.51.3, which needs two connections that write or checkpoint at the
 * same instant, is out of reach.
 *
 * A batch never waits for a lock (busy_timeout 0): a process that locks the
 * file is not ours, and the writer's caller knows better what to do meanwhile.
 * Opening the file, readers, and _checkpoint() wait for a moment.
 *
 * A new file becomes a WAL file when it has its tables, so its header has the
 * version, whatever is in the WAL: ngx_modelgw_store_check() reads the header
 * without any lock and creates no files, and so "nginx -t" works next to an
 * nginx that runs.
 *
 * A connection must not be carried over a fork().  The file is opened through
 * SQLite only, except when it is created: closing another descriptor would drop
 * the process's POSIX locks on it, which SQLite relies on.  O_PATH descriptors
 * do not count.
 *
 * Rejected: a journal of our own (recovery, queries and the operator's tools
 * would have to be written, and trusted); synchronous=NORMAL (the last commits
 * are lost in a power failure).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/statvfs.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_HEADER    100  /* bytes of an SQLite file's header */
#define NGX_MODELGW_STORE_REGION    32768 /* bytes of "-shm" mapped at once */
#define NGX_MODELGW_STORE_SPACE     (512 * 1024)  /* bytes free, at least */
#define NGX_MODELGW_STORE_TIMEOUT   100  /* ms, for a lock: to open, for a
                                            checkpoint */
#define NGX_MODELGW_STORE_READ      1000 /* ms, the same, for a reader */
#define NGX_MODELGW_STORE_OWNER     1000 /* ms, until a superuser's SQLite has
                                            given a file to its owner */
#define NGX_MODELGW_STORE_PATH      128  /* bytes of it in a message */


static ngx_int_t ngx_modelgw_store_touch(const char *path,
    ngx_modelgw_store_error_t *error);
static ngx_modelgw_store_t *ngx_modelgw_store_open_file(const char *path,
    int flags, ngx_modelgw_store_file_t *file, const char *id,
    ngx_modelgw_store_error_t *error);
static ngx_modelgw_store_t *ngx_modelgw_store_connect(const char *path,
    int flags, ngx_modelgw_store_error_t *error);
static ngx_int_t ngx_modelgw_store_setup(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file, const char *id);
static ngx_int_t ngx_modelgw_store_setup_read(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file);
static ngx_int_t ngx_modelgw_store_wal(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_check_shm(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_check_header(sqlite3 *db, const char *path,
    ngx_uint_t cluster, ngx_modelgw_store_error_t *error);
static ngx_int_t ngx_modelgw_store_check_directory(const char *path,
    ngx_modelgw_store_error_t *error);
static void ngx_modelgw_store_directory(const char *path, char *dir,
    size_t size);
static uint32_t ngx_modelgw_store_uint32(u_char *p);


ngx_modelgw_store_t *
ngx_modelgw_store_open(const char *path, ngx_modelgw_store_error_t *error)
{
    return ngx_modelgw_store_open_journal(path, NULL, error);
}


ngx_modelgw_store_t *
ngx_modelgw_store_open_journal(const char *path, const char *id,
    ngx_modelgw_store_error_t *error)
{
    if (ngx_modelgw_store_touch(path, error) != NGX_OK) {
        return NULL;
    }

    return ngx_modelgw_store_open_file(path, SQLITE_OPEN_READWRITE, NULL, id,
                                       error);
}


ngx_modelgw_store_t *
ngx_modelgw_store_open_known(const char *path, ngx_modelgw_store_file_t *file,
    ngx_modelgw_store_error_t *error)
{
    return ngx_modelgw_store_open_file(path, SQLITE_OPEN_READWRITE, file, NULL,
                                       error);
}


ngx_modelgw_store_t *
ngx_modelgw_store_open_read(const char *path, ngx_modelgw_store_file_t *file,
    ngx_modelgw_store_error_t *error)
{
    return ngx_modelgw_store_open_file(path, SQLITE_OPEN_READONLY, file, NULL,
                                       error);
}


/*
 * file: the one that it must be, of either kind; NULL: any that is a journal,
 * with an id for a new one, or, if that is NULL, a ledger of one machine.
 *
 * If an operator reads the ledger as a superuser meanwhile, SQLite there may
 * create "-wal" and "-shm", and gives them to the owner of the ledger only
 * then.
 */

static ngx_modelgw_store_t *
ngx_modelgw_store_open_file(const char *path, int flags,
    ngx_modelgw_store_file_t *file, const char *id,
    ngx_modelgw_store_error_t *error)
{
    int                   waited;
    ngx_int_t             rc;
    ngx_modelgw_store_t  *s;

    waited = 0;

    for ( ;; ) {
        s = ngx_modelgw_store_connect(path, flags, error);
        if (s == NULL) {
            return NULL;
        }

        rc = (flags & SQLITE_OPEN_READONLY)
             ? ngx_modelgw_store_setup_read(s, file)
             : ngx_modelgw_store_setup(s, file, id);

        if (rc == NGX_OK) {
            return s;
        }

        *error = s->error;
        ngx_modelgw_store_close(s);

        if (!error->denied || waited >= NGX_MODELGW_STORE_OWNER) {
            return NULL;
        }

        waited += sqlite3_sleep(10);
    }
}


/* a new file has mode 0600 from the first instant */

static ngx_int_t
ngx_modelgw_store_touch(const char *path, ngx_modelgw_store_error_t *error)
{
    int  fd;

    fd = open(path, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600);

    if (fd == -1) {
        if (errno == EEXIST) {
            return NGX_OK;
        }

        ngx_modelgw_store_set_error(error, path, "cannot be created", errno);
        return NGX_ERROR;
    }

    (void) close(fd);

    return NGX_OK;
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
        ngx_modelgw_store_set_error(error, path, "cannot be opened", ENOMEM);
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

    (void) sqlite3_busy_timeout(s->db, NGX_MODELGW_STORE_TIMEOUT);

    return s;
}


ngx_uint_t
ngx_modelgw_store_migrated(ngx_modelgw_store_t *s)
{
    return s->migrated;
}


ngx_uint_t
ngx_modelgw_store_journal(ngx_modelgw_store_t *s)
{
    return s->journal;
}


void
ngx_modelgw_store_close(ngx_modelgw_store_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_STORE_STATEMENTS; i++) {
        (void) sqlite3_finalize(s->stmts[i]);
    }

    ngx_modelgw_store_hours_free(s);

    /* what is not committed is rolled back */

    if (s->cluster) {
        ngx_modelgw_store_cluster_close(s);
    }

    (void) sqlite3_close(s->db);

    free(s);
}


void
ngx_modelgw_store_interrupt(ngx_modelgw_store_t *s)
{
    if (s->cluster) {
        s->stop = 1;
        return;
    }

    sqlite3_interrupt(s->db);
}


static ngx_int_t
ngx_modelgw_store_setup(ngx_modelgw_store_t *s, ngx_modelgw_store_file_t *file,
    const char *id)
{
    int64_t    pages;
    ngx_int_t  rc;

    if (file && ngx_modelgw_store_known(s, file) != NGX_OK) {
        return NGX_ERROR;
    }

    if (sqlite3_db_readonly(s->db, "main")) {
        (void) ngx_modelgw_store_fail_text(s, "cannot be written");
        s->error.denied = 1;
        return NGX_ERROR;
    }

    rc = ngx_modelgw_store_identify(s);

    if (rc == NGX_ERROR
        || ngx_modelgw_store_exec(s, "PRAGMA synchronous = FULL") != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (rc == NGX_DECLINED) {
        rc = file ? ngx_modelgw_store_fail_text(s, "is empty")
                  : ngx_modelgw_store_create(s, id);

    } else if (file == NULL
               && ngx_modelgw_store_kind(s->journal, id != NULL, s->path,
                                         &s->error)
                  != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (rc == NGX_DONE) {
        rc = ngx_modelgw_store_migrate(s);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_wal(s) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a long reader may have let the WAL grow: give the space back */

    if (ngx_modelgw_store_exec(s, "PRAGMA journal_size_limit = 16777216")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    (void) sqlite3_busy_timeout(s->db, 0);

    if (ngx_modelgw_store_hours_init(s) != NGX_OK
        || ngx_modelgw_store_write_init(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* reading makes SQLite open "-wal" and "-shm", if they are not open yet */

    if (ngx_modelgw_store_number(s, "PRAGMA page_count", &pages) != NGX_OK) {
        return NGX_ERROR;
    }

    return (ngx_modelgw_store_check_shm(s) == NGX_OK)
           ? ngx_modelgw_store_check_wal(s) : NGX_ERROR;
}


static ngx_int_t
ngx_modelgw_store_setup_read(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file)
{
    ngx_int_t  rc;

    /* a writer that closes the file as the last one, at a reload, locks it
       until its checkpoint is on the disk */

    (void) sqlite3_busy_timeout(s->db, NGX_MODELGW_STORE_READ);

    /* before the first read: the WAL next to another file is not its own */

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

    rc = ngx_modelgw_store_identify(s);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_store_fail_text(s, "is empty");
    }

    if (rc == NGX_DONE) {
        return ngx_modelgw_store_fail_text(s, "is not migrated yet");
    }

    return rc;
}


/* SQLite returns the mode that the file is in, which may be the old one */

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
        return ngx_modelgw_store_fail_text(s, "cannot be switched to WAL mode");
    }

    return NGX_OK;
}


/*
 * SQLite maps "-shm" for reading only if it may not write it, and keeps it so.
 * Mapping again what is mapped returns that, and waits for no lock.
 */

static ngx_int_t
ngx_modelgw_store_check_shm(ngx_modelgw_store_t *s)
{
    int             rc;
    void volatile  *region;
    sqlite3_file   *file;

    rc = sqlite3_file_control(s->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);

    if (rc == SQLITE_OK) {
        rc = file->pMethods->xShmMap(file, 0, NGX_MODELGW_STORE_REGION, 0,
                                     &region);
    }

    if (rc != SQLITE_OK) {
        (void) ngx_modelgw_store_fail_text(s, "has a \"-shm\" that cannot be "
                                              "written");
        s->error.denied = ((rc & 0xff) == SQLITE_READONLY);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_check(const char *path, ngx_uint_t cluster,
    ngx_modelgw_store_error_t *error)
{
    int           rc;
    sqlite3      *db;
    ngx_int_t     result;
    struct stat   st;

    if (stat(path, &st) == -1 && errno == ENOENT) {
        return ngx_modelgw_store_check_directory(path, error);
    }

    rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE|SQLITE_OPEN_NOMUTEX
                                    |SQLITE_OPEN_EXRESCODE, NULL);

    if (rc != SQLITE_OK) {
        ngx_modelgw_store_set_error(error, path, sqlite3_errstr(rc),
                                    db ? sqlite3_system_errno(db) : 0);
        result = NGX_DECLINED;

    } else if (sqlite3_db_readonly(db, "main")) {
        ngx_modelgw_store_set_error(error, path, "cannot be written", 0);
        error->denied = 1;
        result = NGX_DECLINED;

    } else {
        result = ngx_modelgw_store_check_header(db, path, cluster, error);

        /* "-wal" and "-shm" are created where a symbolic link leads to */

        if (result == NGX_OK) {
            result = ngx_modelgw_store_check_directory(
                                     sqlite3_db_filename(db, "main"), error);
        }
    }

    (void) sqlite3_close(db);

    return result;
}


/*
 * Reads the file's header through SQLite's file object, but not by its pager,
 * which would take locks and create files.
 */

static ngx_int_t
ngx_modelgw_store_check_header(sqlite3 *db, const char *path,
    ngx_uint_t cluster, ngx_modelgw_store_error_t *error)
{
    int             rc;
    u_char          header[NGX_MODELGW_STORE_HEADER];
    int64_t         version;
    ngx_uint_t      journal;
    sqlite3_file   *file;
    sqlite3_int64   size;

    size = 0;

    rc = sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);

    if (rc == SQLITE_OK) {
        rc = file->pMethods->xFileSize(file, &size);
    }

    if (rc == SQLITE_OK && size == 0) {
        return NGX_OK;
    }

    if (rc == SQLITE_OK) {
        rc = file->pMethods->xRead(file, header, sizeof(header), 0);
    }

    /* a short file is padded with zeros, and has no version of ours */

    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ) {
        ngx_modelgw_store_set_error(error, path, sqlite3_errstr(rc), errno);
        return NGX_DECLINED;
    }

    if (ngx_memcmp(header, "SQLite format 3", sizeof("SQLite format 3")) != 0) {

        /* creating it was interrupted: opening it rolls that back */

        if (access(sqlite3_filename_journal(sqlite3_db_filename(db, "main")),
                   F_OK)
            == 0)
        {
            return NGX_OK;
        }

        ngx_modelgw_store_set_error(error, path,
                                    sqlite3_errstr(SQLITE_NOTADB), 0);
        return NGX_DECLINED;
    }

    version = ngx_modelgw_store_uint32(header + 60);

    if (ngx_modelgw_store_version(ngx_modelgw_store_uint32(header + 68),
                                  &version, &journal, path, error)
        != NGX_OK
        || ngx_modelgw_store_kind(journal, cluster, path, error) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_check_directory(const char *path,
    ngx_modelgw_store_error_t *error)
{
    char  dir[PATH_MAX];

    ngx_modelgw_store_directory(path, dir, sizeof(dir));

    /* as the effective user, which the master has changed for this */

    if (faccessat(AT_FDCWD, dir, W_OK|X_OK, AT_EACCESS) == -1) {
        ngx_modelgw_store_set_error(error, dir, "is not writable", errno);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void
ngx_modelgw_store_directory(const char *path, char *dir, size_t size)
{
    size_t       len;
    const char  *p;

    p = strrchr(path, '/');

    if (p == NULL) {
        path = ".";
        len = 1;

    } else {
        len = ngx_max(p - path, 1);
    }

    ngx_cpystrn((u_char *) dir, (u_char *) path, ngx_min(len + 1, size));
}


static uint32_t
ngx_modelgw_store_uint32(u_char *p)
{
    return (uint32_t) p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}


/*
 * SQLite checks whether the name that the path led to when it was opened is
 * still that of the file; a symbolic link may lead elsewhere by now.
 */

ngx_int_t
ngx_modelgw_store_file(ngx_modelgw_store_t *s, ngx_modelgw_store_file_t *file)
{
    int          moved;
    struct stat  st;
    const char  *text;

    moved = 0;

    if (sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved)
        != SQLITE_OK)
    {
        return ngx_modelgw_store_fail(s, NULL);
    }

    if (stat(s->path, &st) == -1) {
        text = (errno == ENOENT || errno == ENOTDIR) ? "is missing"
                                                     : "cannot be checked";
        ngx_modelgw_store_set_error(&s->error, s->path, text, errno);
        return NGX_ERROR;
    }

    if (moved) {
        return ngx_modelgw_store_fail_text(s, "is another file now");
    }

    file->dev = st.st_dev;
    file->ino = st.st_ino;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_known(ngx_modelgw_store_t *s, ngx_modelgw_store_file_t *file)
{
    ngx_modelgw_store_file_t  now;

    if (ngx_modelgw_store_file(s, &now) != NGX_OK) {
        return NGX_ERROR;
    }

    if (now.dev != file->dev || now.ino != file->ino) {
        return ngx_modelgw_store_fail_text(s, "is another file now");
    }

    return NGX_OK;
}


/* SQLite checks only whether the ledger itself was moved. */

ngx_int_t
ngx_modelgw_store_check_wal(ngx_modelgw_store_t *s)
{
    char                       name[PATH_MAX];
    ngx_uint_t                 i;
    struct stat                st;
    ngx_modelgw_store_file_t  *file;

    static const char  *suffixes[NGX_MODELGW_STORE_WAL_FILES] = {
        "-wal", "-shm"
    };

    for (i = 0; i < NGX_MODELGW_STORE_WAL_FILES; i++) {

        (void) snprintf(name, sizeof(name), "%s%s",
                        sqlite3_db_filename(s->db, "main"), suffixes[i]);

        if (stat(name, &st) == -1) {
            ngx_modelgw_store_set_error(&s->error, name, "is missing", errno);
            return NGX_ERROR;
        }

        file = &s->wal_files[i];

        if (file->ino == 0) {
            file->dev = st.st_dev;
            file->ino = st.st_ino;
        }

        if (st.st_dev != file->dev || st.st_ino != file->ino) {
            ngx_modelgw_store_set_error(&s->error, name, "is another file now",
                                        0);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Waits for readers that are about to finish. */

ngx_int_t
ngx_modelgw_store_checkpoint(ngx_modelgw_store_t *s)
{
    int  rc;

    (void) sqlite3_busy_timeout(s->db, NGX_MODELGW_STORE_TIMEOUT);

    ngx_set_errno(0);

    rc = sqlite3_wal_checkpoint_v2(s->db, "main", SQLITE_CHECKPOINT_TRUNCATE,
                                   NULL, NULL);

    if (rc != SQLITE_OK) {
        return ngx_modelgw_store_fail(s, NULL);
    }

    (void) sqlite3_busy_timeout(s->db, 0);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_space(ngx_modelgw_store_t *s)
{
    struct statvfs  fs;

    if (statvfs(s->path, &fs) == -1) {
        ngx_modelgw_store_set_error(&s->error, s->path, "cannot be checked",
                                    errno);
        return NGX_ERROR;
    }

    if ((uint64_t) fs.f_bavail * fs.f_frsize < NGX_MODELGW_STORE_SPACE) {
        return ngx_modelgw_store_fail_text(s, "is on a full disk");
    }

    return NGX_OK;
}


/* SQLite writes the page of the version even if it does not change. */

ngx_int_t
ngx_modelgw_store_probe(ngx_modelgw_store_t *s)
{
    char  sql[64];

    (void) snprintf(sql, sizeof(sql), "PRAGMA user_version = %d",
                    ngx_modelgw_store_user_version(s));

    return ngx_modelgw_store_exec(s, sql);
}


void
ngx_modelgw_store_error(ngx_modelgw_store_t *s,
    ngx_modelgw_store_error_t *error)
{
    *error = s->error;
}


void
ngx_modelgw_store_set_error(ngx_modelgw_store_error_t *error, const char *path,
    const char *text, int err)
{
    u_char  *p, *last;
    size_t   len;

    p = error->data;
    last = p + NGX_MODELGW_STORE_ERROR;

    /* the end of a long path is more useful */

    len = ngx_strlen(path);

    if (len > NGX_MODELGW_STORE_PATH) {
        path += len - NGX_MODELGW_STORE_PATH;
        p = ngx_slprintf(p, last, "\"...%s\" %s", path, text);

    } else {
        p = ngx_slprintf(p, last, "\"%s\" %s", path, text);
    }

    /* strerror() of glibc, since 2.32, and of musl is thread-safe */

    if (err) {
        p = ngx_slprintf(p, last, " (%d: %s)", err, strerror(err));
    }

    error->len = p - error->data;
    error->locked = 0;
    error->denied = (err == EACCES || err == EPERM || err == EROFS);
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

        /* SQLite does not keep that of a commit */

        if (err == 0) {
            err = last;
        }
    }

    (void) snprintf(text, sizeof(text), "failed: %s",
                    s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));

    ngx_modelgw_store_set_error(&s->error, s->path, text, err);

    s->error.locked = (rc == SQLITE_BUSY);
    s->error.denied |= (rc == SQLITE_READONLY || rc == SQLITE_PERM);

    if (stmt) {
        (void) sqlite3_reset(stmt);
    }

    return NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_fail_text(ngx_modelgw_store_t *s, const char *text)
{
    ngx_modelgw_store_set_error(&s->error, s->path, text, 0);

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


ngx_int_t
ngx_modelgw_store_exec(ngx_modelgw_store_t *s, const char *sql)
{
    ngx_set_errno(0);

    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return ngx_modelgw_store_fail(s, NULL);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_step(ngx_modelgw_store_t *s, const char *sql, int64_t first,
    int64_t second, int64_t *n)
{
    ngx_int_t      rc;
    ngx_uint_t     nparams;
    sqlite3_stmt  *stmt;

    if (ngx_modelgw_store_prepare(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    nparams = sqlite3_bind_parameter_count(stmt);

    if (nparams > 0) {
        (void) sqlite3_bind_int64(stmt, 1, first);
    }

    if (nparams > 1) {
        (void) sqlite3_bind_int64(stmt, 2, second);
    }

    rc = NGX_OK;

    if (sqlite3_step(stmt) != (n ? SQLITE_ROW : SQLITE_DONE)) {
        rc = ngx_modelgw_store_fail(s, NULL);

    } else if (n) {
        *n = sqlite3_column_int64(stmt, 0);
    }

    (void) sqlite3_finalize(stmt);

    return rc;
}
