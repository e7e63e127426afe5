
/*
 * The file of the store from outside: making it, telling whether it is still
 * the same, and whether it can be used without changing anything.
 *
 * The check reads the header of the file and takes no lock: it is to be of use
 * to "nginx -t" beside an nginx that runs.  Whether a file that is there can be
 * written SQLite tells, which opens it to write.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"

#include <sys/statvfs.h>


#define NGX_MODELGW_STORE_HEADER  100    /* bytes of an SQLite file's */
#define NGX_MODELGW_STORE_SPACE   (512 * 1024)


static void ngx_modelgw_store_directory(const char *path, char *dir,
    size_t size);
static ngx_int_t ngx_modelgw_store_check_header(sqlite3 *db, const char *path,
    ngx_modelgw_store_error_t *error);
static ngx_int_t ngx_modelgw_store_check_directory(const char *path,
    ngx_modelgw_store_error_t *error);
static uint32_t ngx_modelgw_store_uint32(u_char *p);


/* a file that is new: its mode is 0600 from the first instant */

ngx_int_t
ngx_modelgw_store_touch(const char *path, ngx_modelgw_store_error_t *error)
{
    int  fd;

    fd = open(path, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600);

    if (fd == -1) {
        if (errno == EEXIST) {
            return NGX_OK;
        }

        ngx_modelgw_store_say(error, path, "cannot be made", errno);
        return NGX_ERROR;
    }

    (void) close(fd);

    return NGX_OK;
}


/*
 * SQLite tells whether the name that the path led to as it was opened is that
 * of the file still; a symbolic link may lead elsewhere by now.
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
        text = (errno == ENOENT || errno == ENOTDIR) ? "is not there any more"
                                                     : "cannot be looked at";
        ngx_modelgw_store_say(&s->error, s->path, text, errno);
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


/* SQLite tells of the ledger itself whether it has moved, not of these. */

ngx_int_t
ngx_modelgw_store_beside(ngx_modelgw_store_t *s)
{
    char                       name[PATH_MAX];
    ngx_uint_t                 i;
    struct stat                st;
    ngx_modelgw_store_file_t  *file;

    static const char  *suffixes[NGX_MODELGW_STORE_BESIDE] = { "-wal", "-shm" };

    for (i = 0; i < NGX_MODELGW_STORE_BESIDE; i++) {

        (void) snprintf(name, sizeof(name), "%s%s",
                        sqlite3_db_filename(s->db, "main"), suffixes[i]);

        if (stat(name, &st) == -1) {
            ngx_modelgw_store_say(&s->error, name, "is not there any more",
                                  errno);
            return NGX_ERROR;
        }

        file = &s->beside[i];

        if (file->ino == 0) {
            file->dev = st.st_dev;
            file->ino = st.st_ino;
        }

        if (st.st_dev != file->dev || st.st_ino != file->ino) {
            ngx_modelgw_store_say(&s->error, name, "is another file now", 0);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_space(ngx_modelgw_store_t *s)
{
    struct statvfs  fs;

    if (statvfs(s->path, &fs) == -1) {
        ngx_modelgw_store_say(&s->error, s->path, "cannot be looked at", errno);
        return NGX_ERROR;
    }

    if ((uint64_t) fs.f_bavail * fs.f_frsize < NGX_MODELGW_STORE_SPACE) {
        return ngx_modelgw_store_fail_text(s, "is on a disk that is full");
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_check(const char *path, ngx_modelgw_store_error_t *error)
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
        ngx_modelgw_store_say(error, path, sqlite3_errstr(rc),
                              db ? sqlite3_system_errno(db) : 0);
        result = NGX_DECLINED;

    } else if (sqlite3_db_readonly(db, "main")) {
        ngx_modelgw_store_say(error, path, "cannot be written", 0);
        result = NGX_DECLINED;

    } else {
        result = ngx_modelgw_store_check_header(db, path, error);

        /* the files beside it are made where a symbolic link leads to */

        if (result == NGX_OK) {
            result = ngx_modelgw_store_check_directory(
                                     sqlite3_db_filename(db, "main"), error);
        }
    }

    (void) sqlite3_close(db);

    return result;
}


/*
 * Reads the file's header through SQLite's file, but not by its pager, which
 * would take locks, and make files.
 */

static ngx_int_t
ngx_modelgw_store_check_header(sqlite3 *db, const char *path,
    ngx_modelgw_store_error_t *error)
{
    int             rc;
    u_char          header[NGX_MODELGW_STORE_HEADER];
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

    /* what is too short has zeros at its end, and no version of ours */

    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ) {
        ngx_modelgw_store_say(error, path, sqlite3_errstr(rc), errno);
        return NGX_DECLINED;
    }

    if (ngx_memcmp(header, "SQLite format 3", sizeof("SQLite format 3")) != 0) {

        /* making it was cut short by a power cut: opening it undoes that */

        if (access(sqlite3_filename_journal(sqlite3_db_filename(db, "main")),
                   F_OK)
            == 0)
        {
            return NGX_OK;
        }

        ngx_modelgw_store_say(error, path, sqlite3_errstr(SQLITE_NOTADB), 0);
        return NGX_DECLINED;
    }

    if (ngx_modelgw_store_version(ngx_modelgw_store_uint32(header + 68),
                                  ngx_modelgw_store_uint32(header + 60),
                                  path, error)
        != NGX_OK)
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

    /* by the effective user, whom the master has changed for this */

    if (faccessat(AT_FDCWD, dir, W_OK|X_OK, AT_EACCESS) == -1) {
        ngx_modelgw_store_say(error, dir, "cannot be written in", errno);
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
