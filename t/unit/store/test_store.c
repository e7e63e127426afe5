
/*
 * The store: opening, batches, queries, and failures.  Random operations and
 * kills are in test_store_crash.c.
 */


#include "unit_store.h"

#include "ngx_modelgw_store_private.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>


static ngx_modelgw_store_error_t  error;


static void
refused(unit_store_t *u, const char *text)
{
    assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error), NGX_DECLINED);
    unit_error_has(&error, text);

    assert_null(ngx_modelgw_store_open(u->path, &error));
    unit_error_has(&error, text);
    unit_error_has(&error, "ledger.db\" ");

    assert_null(ngx_modelgw_store_open_read(u->path, NULL, &error));
    unit_error_has(&error, text);
}


static off_t
size_of(unit_store_t *u)
{
    struct stat  st;

    assert_int_equal(stat(u->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    return st.st_size;
}


/* what a connection of ours is set to */

static int64_t
setting(ngx_modelgw_store_t *s, const char *pragma)
{
    int64_t  n;

    unit_store_ok(s, ngx_modelgw_store_number(s, pragma, &n));

    return n;
}


static void
test_new(void **state)
{
    unit_store_t         *u = *state;
    mode_t                mask;
    ngx_modelgw_store_t  *s;

    assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error), NGX_OK);
    assert_int_equal(access(u->path, F_OK), -1);

    assert_null(ngx_modelgw_store_open_read(u->path, NULL, &error));
    unit_error_has(&error, "unable to open database file (2: No such file");

    mask = umask(0);
    s = unit_open(u);
    umask(mask);

    assert_true(size_of(u) > 0);

    assert_int_equal(unit_sql(u, "PRAGMA user_version"), 2);
    assert_int_equal(unit_sql(u, "PRAGMA application_id"), 0x6d67776c);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM audit"), 0);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM sqlite_schema"
                                 " WHERE type = 'table'"
                                 " AND sql NOT LIKE '%STRICT%'"), 0);
    assert_int_equal(unit_sql(u, "SELECT (SELECT journal_mode FROM"
                                 " pragma_journal_mode) = 'wal'"), 1);

    assert_int_equal(setting(s, "PRAGMA synchronous"), 2);
    assert_int_equal(setting(s, "PRAGMA busy_timeout"), 0);

    /* its tables are in the file itself, not in the WAL */

    assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error), NGX_OK);

    ngx_modelgw_store_close(s);

    assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error), NGX_OK);
    ngx_modelgw_store_close(unit_open(u));
}


/* an existing file that is empty, and accessible to all */

static void
test_empty(void **state)
{
    FILE          *f;
    unit_store_t  *u = *state;

    f = fopen(u->path, "w");
    assert_non_null(f);
    assert_int_equal(fchmod(fileno(f), 0644), 0);
    fclose(f);

    assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error), NGX_OK);
    assert_null(ngx_modelgw_store_open_read(u->path, NULL, &error));
    unit_error_has(&error, "is empty");

    ngx_modelgw_store_close(unit_open(u));
    assert_true(size_of(u) > 0);
}


static void
test_version(void **state)
{
    unit_store_t  *u = *state;

    ngx_modelgw_store_close(unit_open(u));
    unit_write_sql(u, "PRAGMA user_version = 7");
    refused(u, "has version 7, 2 is required");

    unit_write_sql(u, "PRAGMA user_version = 0");
    refused(u, "has version 0, 2 is required");

    unit_write_sql(u, "PRAGMA user_version = 2; PRAGMA application_id = 0");
    refused(u, "is a database of another program");

    /* it was not changed */

    unit_write_sql(u, "PRAGMA application_id = 0x6d67776c");
    ngx_modelgw_store_close(unit_open(u));
}


static void
test_other_program(void **state)
{
    unit_store_t  *u = *state;

    unit_write_sql(u, "CREATE TABLE t (a); PRAGMA user_version = 1");
    refused(u, "is a database of another program");
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM sqlite_schema"), 1);
}


static void
test_no_database(void **state)
{
    int            i;
    char           journal[128];
    FILE          *f;
    unit_store_t  *u = *state;

    static const char  *texts[] = { "x", "SQLite format 3", "SQLite format 4" };

    for (i = 0; i < 3; i++) {
        f = fopen(u->path, "w");
        assert_non_null(f);
        fwrite(texts[i], strlen(texts[i]) + 1, 1, f);
        fclose(f);

        assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error),
                         NGX_DECLINED);
        assert_null(ngx_modelgw_store_open(u->path, &error));
        unit_error_has(&error, "file is not a database");
    }

    /* with a journal next to it, it may be a ledger nevertheless */

    sprintf(journal, "%s-journal", u->path);
    f = fopen(journal, "w");
    assert_non_null(f);
    fclose(f);

    assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error), NGX_OK);
}


static void
test_directory(void **state)
{
    char           path[128];
    unit_store_t  *u = *state;

    assert_int_equal(mkdir(u->path, 0700), 0);
    refused(u, "Is a directory");
    assert_int_equal(rmdir(u->path), 0);

    sprintf(path, "%s/none/ledger.db", u->dir);

    assert_int_equal(ngx_modelgw_store_check(path, 0, &error), NGX_DECLINED);
    unit_error_has(&error, "none\" is not writable (2: No such file");

    assert_null(ngx_modelgw_store_open(path, &error));
    unit_error_has(&error, "cannot be created (2: No such file");
}


/* access as another user; only root can try that */

static ngx_uint_t
as_nobody(unit_store_t *u, ngx_uint_t (*test)(unit_store_t *u))
{
    int    status;
    pid_t  pid;

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        _exit(setegid(65534) || seteuid(65534) || !test(u));
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);

    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}


static ngx_uint_t
says(const char *text)
{
    return memmem(error.data, error.len, text, strlen(text)) != NULL;
}


static ngx_uint_t
may_not_make(unit_store_t *u)
{
    return ngx_modelgw_store_check(u->path, 0, &error) == NGX_DECLINED
           && says("is not writable (13: ")
           && ngx_modelgw_store_open(u->path, &error) == NULL
           && says("cannot be created (13: ");
}


static ngx_uint_t
may_not_write(unit_store_t *u)
{
    return ngx_modelgw_store_check(u->path, 0, &error) == NGX_DECLINED
           && says("cannot be written")
           && ngx_modelgw_store_open(u->path, &error) == NULL
           && says("cannot be written");
}


static ngx_uint_t
may_not_read(unit_store_t *u)
{
    return ngx_modelgw_store_check(u->path, 0, &error) == NGX_DECLINED
           && says("(13: ")
           && ngx_modelgw_store_open(u->path, &error) == NULL
           && says("(13: ");
}


static void
test_rights(void **state)
{
    unit_store_t  *u = *state;

    if (geteuid() != 0) {
        print_message("not root: rights are not tested\n");
        return;
    }

    assert_int_equal(chmod(u->dir, 0755), 0);
    assert_true(as_nobody(u, may_not_make));

    ngx_modelgw_store_close(unit_open(u));
    assert_true(as_nobody(u, may_not_read));

    assert_int_equal(chmod(u->path, 0644), 0);
    assert_true(as_nobody(u, may_not_write));
}


static void
test_long_path(void **state)
{
    char    path[600];

    memset(path, 'x', sizeof(path));
    memcpy(path, "/none/", 6);
    strcpy(path + sizeof(path) - 8, "/led.db");

    assert_null(ngx_modelgw_store_open(path, &error));
    unit_error_has(&error, "\"...xxx");
    unit_error_has(&error, "/led.db\" cannot be created (");
}


/* the same file is recognized at its path, and no other is accepted */

static void
test_known(void **state)
{
    char                       away[1024], link[1024];
    FILE                      *f;
    unit_store_t              *u = *state;
    struct stat                st;
    ngx_modelgw_store_t       *s;
    ngx_modelgw_store_file_t   file, empty;

    snprintf(away, sizeof(away), "%s.away", u->path);
    snprintf(link, sizeof(link), "%s.link", u->path);

    s = unit_open(u);
    unit_store_ok(s, ngx_modelgw_store_file(s, &file));
    unit_store_ok(s, ngx_modelgw_store_known(s, &file));

    assert_int_equal(rename(u->path, away), 0);
    assert_int_equal(ngx_modelgw_store_known(s, &file), NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "is missing");
    assert_null(ngx_modelgw_store_open_known(u->path, &file, &error));
    assert_int_equal(stat(u->path, &st), -1);

    /* an empty one in its place */

    f = fopen(u->path, "w");
    assert_non_null(f);
    fclose(f);

    assert_int_equal(ngx_modelgw_store_known(s, &file), NGX_ERROR);
    assert_null(ngx_modelgw_store_open_known(u->path, &file, &error));
    unit_error_has(&error, "is another file now");

    assert_int_equal(stat(u->path, &st), 0);
    empty.dev = st.st_dev;
    empty.ino = st.st_ino;
    assert_null(ngx_modelgw_store_open_known(u->path, &empty, &error));
    unit_error_has(&error, "is empty");

    /* and back */

    assert_int_equal(rename(away, u->path), 0);
    unit_store_ok(s, ngx_modelgw_store_known(s, &file));
    unit_begin(s);
    unit_put_account(s, "alice", 9);
    unit_commit(s);
    ngx_modelgw_store_close(s);

    /* a symbolic link may point elsewhere */

    assert_int_equal(symlink(u->path, link), 0);
    s = ngx_modelgw_store_open_known(link, &file, &error);
    assert_non_null(s);
    unit_store_ok(s, ngx_modelgw_store_known(s, &file));
    unlink(link);
    assert_int_equal(symlink(away, link), 0);
    assert_int_equal(ngx_modelgw_store_known(s, &file), NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "is missing");
    assert_int_equal(symlink(link, away), 0);
    assert_int_equal(ngx_modelgw_store_known(s, &file), NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "cannot be checked (40: ");
    unlink(away);
    assert_int_equal(symlink("/", away), 0);
    assert_int_equal(ngx_modelgw_store_known(s, &file), NGX_ERROR);
    ngx_modelgw_store_close(s);
    unlink(away);
    unlink(link);
}


/* a descriptor of the file keeps its inode from another */

static void
test_pinned(void **state)
{
    int                        i, fd;
    char                       command[512];
    unit_store_t              *u = *state;
    ngx_modelgw_store_t       *s;
    ngx_modelgw_store_file_t   file;

    s = unit_open(u);
    unit_store_ok(s, ngx_modelgw_store_file(s, &file));
    ngx_modelgw_store_close(s);

    fd = open(u->path, O_PATH|O_CLOEXEC);
    assert_true(fd != -1);

    snprintf(command, sizeof(command), "cp %s %s-wal && rm %s && mv %s-wal %s",
             u->path, u->path, u->path, u->path, u->path);

    for (i = 0; i < 3; i++) {
        assert_int_equal(system(command), 0);
        assert_null(ngx_modelgw_store_open_known(u->path, &file, &error));
        unit_error_has(&error, "is another file now");
        assert_null(ngx_modelgw_store_open_read(u->path, &file, &error));
        unit_error_has(&error, "is another file now");
    }

    assert_int_equal(close(fd), 0);
}


/* our locks as another process sees them */

static int
locks(const char *path)
{
    int           fd, status;
    pid_t         pid;
    struct flock  lock;

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        memset(&lock, 0, sizeof(lock));
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;

        fd = open(path, O_RDWR);
        _exit(fd == -1 || fcntl(fd, F_GETLK, &lock) == -1
              || lock.l_type != F_UNLCK);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));

    return WEXITSTATUS(status);
}


/* to close such a descriptor keeps SQLite's locks, to close others does not */

static void
test_pin_closed(void **state)
{
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 9);
    unit_commit(s);

    assert_int_equal(locks(u->path), 1);
    assert_int_equal(close(open(u->path, O_PATH|O_CLOEXEC)), 0);
    assert_int_equal(locks(u->path), 1);
    assert_int_equal(close(open(u->path, O_RDONLY|O_CLOEXEC)), 0);
    assert_int_equal(locks(u->path), 0);

    ngx_modelgw_store_close(s);
}


static void
test_account(void **state)
{
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);

    unit_begin(s);
    unit_put_account(s, "alice", 1000);
    unit_put_account(s, "bob", 0);
    unit_put_account(s, "alice", 5);
    unit_commit(s);

    unit_begin(s);
    unit_put_account(s, "alice", 7);
    unit_put_account(s, "bob", 7);
    unit_commit(s);

    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"), 2);
    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"
                                 " WHERE name = 'alice'"), 1000);
    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"
                                 " WHERE name = 'bob'"), 0);
    assert_int_equal(unit_sql(u, "SELECT opened FROM accounts"),
                     UNIT_TIME / 1000 * 1000);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM topups"), 1);
    assert_int_equal(unit_sql(u, "SELECT amount FROM topups"
                                 " WHERE id = 'founding:alice'"
                                 " AND account = 'alice'"), 1000);
    unit_audit(u);
}


static void
test_call(void **state)
{
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);

    unit_begin(s);
    unit_put_account(s, "alice", 1000);
    call = unit_call(17, "key-1", 300);
    call.noted = 1;
    unit_put_hold(s, &call, "alice");
    unit_commit(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM holds"), 1);
    assert_int_equal(unit_sql(u, "SELECT cost FROM holds WHERE id = 17"
                                 " AND input = 5 AND hold = 1000000"
                                 " AND account = 'alice' AND key = 'key-1'"
                                 " AND model = 'family_a-large'"), 10);
    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 1000);

    /* it is charged once, however often it is written */

    unit_begin(s);
    unit_put_hold(s, &call, "alice");
    unit_put_call(s, &call, "alice");
    unit_put_call(s, &call, "alice");
    unit_commit(s);

    unit_begin(s);
    unit_put_call(s, &call, "alice");
    unit_commit(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM holds"), 0);
    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 700);
    unit_audit(u);

    /* a row says all of it */

    call = unit_call(18, "key-2", -1);
    call.charge.tokens.input = 1;
    call.charge.tokens.cache_read = 2;
    call.charge.tokens.cache_write = 3;
    call.charge.tokens.cache_write_1h = 4;
    call.charge.tokens.output = 5;
    call.charge.tokens.reasoning = 6;
    call.charge.cost = 2000000007;
    call.charge.outcome = NGX_MODELGW_ESTIMATED;
    call.end = NGX_MODELGW_END_CLIENT;
    call.seen.status = 206;

    unit_begin(s);
    unit_put_call(s, &call, "alice");
    unit_commit(s);

    assert_int_equal(unit_sql(u, "SELECT cost FROM calls WHERE id = 18"
        " AND time = 1795330020123 AND ended = 1795330021623"
        " AND key = 'key-2' AND account = 'alice'"
        " AND model = 'family_a-large' AND input = 1 AND cache_read = 2"
        " AND cache_write = 3 AND cache_write_1h = 4 AND output = 5"
        " AND reasoning = 6 AND outcome = 'estimated' AND \"end\" = 'client'"
        " AND status = 206"), 2000000007);

    assert_int_equal(unit_sql(u, "SELECT euro = '2.000000007'"
        " AND time = '2026-11-22T06:47:00.123Z'"
        " AND ended = '2026-11-22T06:47:01.623Z' FROM ledger WHERE id = 18"),
        1);
    assert_int_equal(unit_sql(u, "SELECT euro = '-1.999999307'"
        " AND opened = '2026-11-22 06:47:00' FROM balances"), 1);

    unit_audit(u);
    ngx_modelgw_store_close(s);
}


static void
test_names(void **state)
{
    char                        text[NGX_MODELGW_LEDGER_NAME + 1];
    unit_store_t               *u = *state;
    ngx_uint_t                  i;
    ngx_modelgw_call_t          call;
    ngx_modelgw_store_t        *s;

    /* the longest names, which no NUL ends */

    memset(text, 'n', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, text, 10);

    call = unit_call(1, text, 4);
    call.model_len = NGX_MODELGW_LEDGER_MODEL;
    memset(call.model, 'm', call.model_len);

    /* a name for every end and outcome */

    for (i = NGX_MODELGW_END_COMPLETE; i <= NGX_MODELGW_END_LOST; i++) {
        call.end = i;
        call.id = 100 + i;
        unit_put_call(s, &call, text);
    }

    for (i = NGX_MODELGW_REPORTED; i <= NGX_MODELGW_REFUSED; i++) {
        call.charge.outcome = i;
        call.id = 200 + i;
        unit_put_call(s, &call, text);
    }

    unit_commit(s);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"
        " WHERE length(key) = 64 AND length(account) = 64"
        " AND length(model) = 96"), 11);
    assert_int_equal(unit_sql(u, "SELECT group_concat(\"end\") ="
        " 'complete,client,upstream,timeout,killed,stopped,lost'"
        " FROM (SELECT * FROM calls WHERE id < 200 ORDER BY id)"), 1);
    assert_int_equal(unit_sql(u, "SELECT group_concat(outcome) ="
        " 'reported,estimated,unanswered,refused'"
        " FROM (SELECT * FROM calls WHERE id >= 200 ORDER BY id)"), 1);
    assert_int_equal(unit_sql(u, "SELECT length(id) FROM topups"), 73);
    unit_audit(u);
}


/*
 * A writer that was killed after its commit did not credit the account in
 * memory: the next one must.
 */

static void
test_topup_asked_again(void **state)
{
    unit_store_t          *u = *state;
    ngx_modelgw_store_t   *s;
    ngx_modelgw_change_e   result;
    ngx_modelgw_change_t   t = unit_topup("t1", "alice", 50);

    s = unit_open(u);

    unit_begin(s);
    unit_put_account(s, "alice", 0);
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);
    unit_commit(s);

    unit_begin(s);
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);
    t.time++;
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_KNOWN);
    unit_commit(s);

    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 50);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM actions"), 1);
    unit_audit(u);
}


/* a correction may take the balance below 0, but not out of int64 */

static void
test_correction(void **state)
{
    unit_store_t          *u = *state;
    ngx_modelgw_store_t   *s;
    ngx_modelgw_change_e   result;
    ngx_modelgw_change_t   t = unit_topup("c1", "alice", -80);

    t.correction = 1;
    t.note_len = sizeof("typed twice") - 1;
    memcpy(t.note, "typed twice", t.note_len);
    t.address_len = 4;
    memcpy(t.address, "::1x", 4);

    s = unit_open(u);

    unit_begin(s);
    unit_put_account(s, "alice", 50);
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);

    t.id = unit_name("c2");
    t.amount = INT64_MIN + 29;
    t.time++;
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_FAILED);
    unit_commit(s);

    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), -30);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM topups"
                                 " WHERE reason = 'typed twice'"), 1);
    assert_int_equal(unit_sql(u,
        "SELECT count(*) FROM actions WHERE id = time AND actor = 'uid:0'"
        " AND address = '::1x' AND action = 'correction' AND target = 'alice'"
        " AND before = '{\"balance\":\"0.00000005\"}'"
        " AND after = '{\"balance\":\"-0.00000003\",\"id\":\"c1\","
            "\"amount\":\"-0.00000008\",\"reason\":\"typed twice\"}'"), 1);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM actions"), 1);
    unit_audit(u);
}


static ngx_int_t
test_closed_name(void *data, ngx_str_t *name)
{
    ngx_uint_t *n = data;

    unit_assert_str(name->data, name->len, "alice");
    (*n)++;

    return NGX_OK;
}


static void
test_account_changes(void **state)
{
    uint64_t               time;
    ngx_str_t              out, text;
    ngx_uint_t             n;
    unit_store_t          *u = *state;
    ngx_modelgw_store_t   *s;
    ngx_modelgw_change_e   result;
    ngx_modelgw_change_t   t = unit_topup("", "alice", 50);
    static ngx_str_t       alice = ngx_string("alice");

    s = unit_open(u);

    unit_store_ok(s, ngx_modelgw_store_last_change(s, &time));
    assert_int_equal(time, 0);

    unit_begin(s);

    /* nothing to close yet */

    t.kind = NGX_MODELGW_CHANGE_ACCOUNT_SET;
    t.sets = NGX_MODELGW_CHANGE_STATE|NGX_MODELGW_CHANGE_NOTE;
    t.closed = 1;
    t.note_len = 4;
    memcpy(t.note, "left", 4);
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_FAILED);

    /* the same again, and another one */

    t.kind = NGX_MODELGW_CHANGE_ACCOUNT_NEW;
    t.note_len = 0;
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);
    t.amount = 7;
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(t.amount, 50);
    t.time++;
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_OTHER);

    n = 0;
    unit_store_ok(s, ngx_modelgw_store_closed(s, test_closed_name, &n));
    assert_int_equal(n, 0);

    t.kind = NGX_MODELGW_CHANGE_ACCOUNT_SET;
    t.note_len = 4;
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
    assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);
    unit_commit(s);

    unit_store_ok(s, ngx_modelgw_store_closed(s, test_closed_name, &n));
    assert_int_equal(n, 1);
    unit_store_ok(s, ngx_modelgw_store_last_change(s, &time));
    assert_int_equal(time, t.time);
    unit_store_ok(s, ngx_modelgw_store_note(s, &alice, &out, u->pool));
    unit_assert_str(out.data, out.len, "\"left\"");

    text = unit_str("eft");
    unit_store_ok(s, ngx_modelgw_store_noted(s, &text, test_closed_name, &n));
    assert_int_equal(n, 2);
    text = unit_str("Left");
    unit_store_ok(s, ngx_modelgw_store_noted(s, &text, test_closed_name, &n));
    assert_int_equal(n, 2);

    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"
                                 " WHERE state = 'closed'"), 50);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM topups"
                                 " WHERE id = 'founding:alice'"), 1);
    assert_int_equal(unit_sql(u,
        "SELECT count(*) FROM actions WHERE (action = 'account.create'"
        " AND before = '{}' AND after = '{\"state\":\"open\",\"note\":\"\","
            "\"founding\":\"0.00000005\"}')"
        " OR (action = 'account.close'"
        " AND before = '{\"state\":\"open\",\"note\":\"\"}'"
        " AND after = '{\"state\":\"closed\",\"note\":\"left\"}')"), 2);
    unit_audit(u);
}


static ngx_uint_t
actions_have(ngx_str_t *out, const char *text)
{
    return memmem(out->data, out->len, text, strlen(text)) != NULL;
}


/* pages of the audit log, newest first */

static void
test_actions(void **state)
{
    int                           i;
    char                          id[16];
    ngx_str_t                     out;
    unit_store_t                 *u = *state;
    ngx_modelgw_store_t          *s;
    ngx_modelgw_store_actions_t   f;

    s = unit_open(u);

    unit_begin(s);
    unit_put_account(s, "alice", 0);
    unit_put_account(s, "robin", 0);

    for (i = 0; i < 5; i++) {
        sprintf(id, "t%d", i);
        (void) unit_put_topup(s, id, (i & 1) ? "robin" : "alice", 1);
    }

    unit_commit(s);

    ngx_memzero(&f, sizeof(f));
    f.limit = 2;
    f.target = unit_str("alice");
    unit_store_ok(s, ngx_modelgw_store_actions(s, &f, &out, u->pool));
    assert_true(actions_have(&out, "\"t4\""));
    assert_true(actions_have(&out, "\"t2\""));
    assert_true(actions_have(&out, "\"more\":true,\"next\":\""));
    assert_false(actions_have(&out, "\"t0\""));

    f.after = strtoull((char *) memmem(out.data, out.len, "\"next\":\"", 8)
                       + 8, NULL, 10);
    unit_store_ok(s, ngx_modelgw_store_actions(s, &f, &out, u->pool));
    assert_true(actions_have(&out, "\"t0\""));
    assert_false(actions_have(&out, "\"t2\""));
    assert_false(actions_have(&out, "\"more\""));

    f.after = 0;
    f.actor = unit_str("nobody");
    unit_store_ok(s, ngx_modelgw_store_actions(s, &f, &out, u->pool));
    unit_assert_str(out.data, out.len, "{\"actions\":[]}");

    ngx_modelgw_store_close(s);
}


static void
test_topup(void **state)
{
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);

    unit_begin(s);
    unit_put_account(s, "alice", 0);
    unit_put_account(s, "bob", 0);
    assert_int_equal(unit_put_topup(s, "t1", "alice", 50),
                     NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(unit_put_topup(s, "t1", "alice", 50),
                     NGX_MODELGW_CHANGE_KNOWN);
    assert_int_equal(unit_put_topup(s, "t1", "alice", 51),
                     NGX_MODELGW_CHANGE_OTHER);
    assert_int_equal(unit_put_topup(s, "t2", "alice", 8),
                     NGX_MODELGW_CHANGE_MADE);
    unit_commit(s);

    unit_begin(s);
    assert_int_equal(unit_put_topup(s, "t1", "alice", 50),
                     NGX_MODELGW_CHANGE_KNOWN);
    assert_int_equal(unit_put_topup(s, "t1", "bob", 50),
                     NGX_MODELGW_CHANGE_OTHER);
    assert_int_equal(unit_put_topup(s, "t3", "nobody", 50),
                     NGX_MODELGW_CHANGE_FAILED);

    /* up to int64 and not above, including what is not in the file yet */

    assert_int_equal(unit_put_topup(s, "t4", "alice", INT64_MAX - 57),
                     NGX_MODELGW_CHANGE_FAILED);
    assert_int_equal(unit_put_topup(s, "t4", "alice", INT64_MAX - 60),
                     NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(unit_put_topup(s, "t5", "alice", 3),
                     NGX_MODELGW_CHANGE_FAILED);
    assert_int_equal(unit_put_topup(s, "t5", "alice", 2),
                     NGX_MODELGW_CHANGE_MADE);
    unit_commit(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"
                                 " WHERE name = 'alice'"), INT64_MAX);
    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"
                                 " WHERE name = 'bob'"), 0);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM topups"), 4);
    unit_audit(u);

    ngx_modelgw_store_close(s);
}


/* calls with the ids of a range, each once and out of order */

static void
put_range(ngx_modelgw_store_t *s, ngx_uint_t first, ngx_uint_t n, int64_t cost)
{
    ngx_uint_t          i, id;
    ngx_modelgw_call_t  call;

    unit_begin(s);

    for (i = 0; i < n; i++) {
        id = first + (i * 7919) % n;         /* a prime that is not in n */

        call = unit_call(id, "key", cost * id);
        call.noted = (id % 5 == 0);
        unit_put_call(s, &call, (id % 3) ? "alice" : "bob");
    }

    unit_commit(s);
}


/* more calls than one statement takes; then again, some that are new among */

static void
test_batch(void **state)
{
    ngx_uint_t            i;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);

    unit_begin(s);
    unit_put_account(s, "alice", 0);
    unit_put_account(s, "bob", 0);

    for (i = 5; i <= 3700; i += 5) {
        call = unit_call(i, "key", 1);
        unit_put_hold(s, &call, "alice");
    }

    unit_commit(s);

    put_range(s, 1, 2500, 10);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"
                                 " WHERE cost = 10 * id"), 2500);
    assert_int_equal(unit_sql(u, "SELECT -sum(balance) FROM accounts"),
                     10 * 2500 * 2501 / 2);
    assert_int_equal(unit_sql(u, "SELECT min(id) FROM holds"), 2505);
    unit_audit(u);

    put_range(s, 1201, 2500, 100);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"
                                 " WHERE cost = iif(id > 2500, 100, 10) * id"),
                     3700);
    assert_int_equal(unit_sql(u, "SELECT -balance FROM accounts"
                                 " WHERE name = 'bob'"),
                     unit_sql(u, "SELECT sum(cost) FROM calls"
                                 " WHERE id % 3 = 0 AND account = 'bob'"));
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM holds"), 0);
    unit_audit(u);

    ngx_modelgw_store_close(s);
}


/* more accounts in a batch than its table can hold, each twice */

static void
test_many_accounts(void **state)
{
    char                  name[32];
    int                   i, round;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    unit_begin(s);

    for (round = 0; round < 2; round++) {
        for (i = 0; i < 1000; i++) {
            sprintf(name, "account-%d", i);
            unit_put_account(s, name, 100);
            call = unit_call(round * 1000 + i, name, i);
            unit_put_call(s, &call, name);
        }
    }

    unit_commit(s);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"
        " WHERE balance = 100 - 2 * CAST(substr(name, 9) AS INTEGER)"), 1000);
    unit_audit(u);
}


static void
test_rollback(void **state)
{
    unit_store_t               *u = *state;
    ngx_modelgw_call_t          call;
    ngx_modelgw_store_t        *s;
    ngx_modelgw_ledger_name_t   name = unit_name("alice");

    s = unit_open(u);
    call = unit_call(1, "key", 5);

    /* outside of a batch nothing is written */

    assert_int_equal(ngx_modelgw_store_call(s, &call, &name), NGX_ERROR);
    assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);
    ngx_modelgw_store_close(s);

    /* what was not committed is lost */

    s = unit_open(u);
    unit_begin(s);
    assert_int_equal(ngx_modelgw_store_begin(s), NGX_ERROR);
    unit_put_account(s, "alice", 9);
    ngx_modelgw_store_close(s);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"), 0);

    /* a call without an account fails its batch, and the store */

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "bob", 9);
    unit_put_call(s, &call, "alice");
    assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "an account of a call is missing");
    assert_int_equal(ngx_modelgw_store_begin(s), NGX_ERROR);
    assert_int_equal(ngx_modelgw_store_call(s, &call, &name), NGX_ERROR);
    assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"), 0);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 0);
}


/* a commit after a failure writes nothing of what was gathered before it */

static void
test_commit_after_failure(void **state)
{
    int                          again;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call, other;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_ledger_name_t    name = unit_name("alice");

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 1000);
    unit_commit(s);
    ngx_modelgw_store_close(s);

    unit_write_sql(u, "CREATE TRIGGER t BEFORE INSERT ON holds"
                      " BEGIN SELECT RAISE(ABORT, 'no holds'); END");

    call = unit_call(7, "key", 100);
    other = unit_call(8, "key", 1);

    s = unit_open(u);
    unit_begin(s);
    unit_put_call(s, &call, "alice");
    assert_int_equal(ngx_modelgw_store_hold(s, &other, &name), NGX_ERROR);

    for (again = 0; again < 2; again++) {
        assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);
        ngx_modelgw_store_error(s, &error);
        unit_error_has(&error, "no holds");
    }

    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 0);
    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 1000);

    s = unit_open(u);
    unit_begin(s);
    unit_put_call(s, &call, "alice");
    unit_commit(s);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 900);
    unit_audit(u);
}


/* a table in the file that has the name of the one that calls are read from */

static void
test_shadow(void **state)
{
    int                   i;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    static const char  *tables[] = {
        "CREATE TABLE modelgw_batch AS SELECT * FROM calls",
        "DROP TABLE modelgw_batch;"
        "CREATE VIEW modelgw_batch AS SELECT * FROM calls"
    };

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 1000);
    unit_commit(s);
    ngx_modelgw_store_close(s);

    for (i = 0; i < 4; i++) {

        if (i % 2 == 0) {
            unit_write_sql(u, tables[i / 2]);
        }

        call = unit_call(7 + i / 2, "key", 100);

        s = unit_open(u);
        unit_begin(s);
        unit_put_call(s, &call, "alice");
        unit_commit(s);
        ngx_modelgw_store_close(s);

        assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 1 + i / 2);
        unit_audit(u);
    }

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 800);
}


/* a foreign trigger drops rows silently: nothing is charged for them */

static void
test_left_out(void **state)
{
    int                          n, known;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_change_e         result;
    ngx_modelgw_change_t         t = unit_topup("t8", "alice", 50);
    ngx_modelgw_ledger_name_t    name = unit_name("alice");

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 1000);
    call = unit_call(3, "key", 100);
    unit_put_call(s, &call, "alice");
    unit_commit(s);
    ngx_modelgw_store_close(s);

    unit_write_sql(u, "CREATE TRIGGER c BEFORE INSERT ON calls"
                      " WHEN new.id = 8 BEGIN SELECT RAISE(IGNORE); END;"
                      "CREATE TRIGGER t BEFORE INSERT ON topups"
                      " WHEN new.id = 't8' BEGIN SELECT RAISE(IGNORE); END;"
                      "CREATE TRIGGER h BEFORE INSERT ON holds"
                      " WHEN new.id = 8 BEGIN SELECT RAISE(IGNORE); END");

    /* alone, among others, and one by one as one of them is known */

    for (n = 0; n < 3; n++) {
        s = unit_open(u);
        unit_begin(s);

        for (known = (n == 2) ? 3 : 5; known < 12; known++) {
            if (n > 0 || known == 8) {
                call = unit_call(known, "key", 100);
                unit_put_call(s, &call, "alice");
            }
        }

        assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);
        ngx_modelgw_store_error(s, &error);
        unit_error_has(&error, "failed: calls were not inserted");
        ngx_modelgw_store_close(s);

        assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 1);
        assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 900);
    }

    s = unit_open(u);
    unit_begin(s);
    assert_int_equal(ngx_modelgw_store_change(s, &t, &result),
                     NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "failed: a top-up was not inserted");
    assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);
    ngx_modelgw_store_close(s);

    call = unit_call(8, "key", 100);

    s = unit_open(u);
    unit_begin(s);
    assert_int_equal(ngx_modelgw_store_hold(s, &call, &name), NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "failed: a hold was not inserted");
    assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 900);
    unit_audit(u);
}


/* the schema changes during a statement: it restarts, with all of its rows */

static void
test_schema_changes(void **state)
{
    unit_store_t         *u = *state;
    ngx_uint_t            i;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 1000);
    unit_commit(s);

    for (i = 0; i < 3; i++) {
        unit_write_sql(u, (i % 2) ? "DROP TABLE x" : "CREATE TABLE x (a)");

        unit_begin(s);
        call = unit_call(10 + 2 * i, "key", 1);
        unit_put_call(s, &call, "alice");
        call = unit_call(11 + 2 * i, "key", 1);
        unit_put_call(s, &call, "alice");
        unit_commit(s);
    }

    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 6);
    unit_audit(u);
}


/* a WAL that was removed, and another file in its place, while it is open */

static void
test_check_wal(void **state)
{
    int                         i;
    char                        name[PATH_MAX], text[32];
    unit_store_t               *u = *state;
    ngx_modelgw_store_t        *s;
    ngx_modelgw_store_error_t   error;

    for (i = 0; i < 4; i++) {
        s = unit_open(u);
        assert_int_equal(ngx_modelgw_store_check_wal(s), NGX_OK);

        (void) snprintf(name, sizeof(name), "%s%s", u->path,
                        (i & 1) ? "-shm" : "-wal");
        assert_int_equal(unlink(name), 0);

        if (i & 2) {
            assert_int_equal(symlink("/dev/null", name), 0);
        }

        (void) snprintf(text, sizeof(text), "account-%d", i);
        unit_begin(s);
        unit_put_account(s, text, 1);
        unit_commit(s);

        assert_int_equal(ngx_modelgw_store_check_wal(s), NGX_ERROR);
        ngx_modelgw_store_error(s, &error);
        unit_error_has(&error, (i & 1) ? "-shm\" is" : "-wal\" is");
        unit_error_has(&error, (i & 2) ? "another file now"
                                       : "is missing");

        assert_int_equal(ngx_modelgw_store_checkpoint(s), NGX_OK);

        /* another connection finds it, without what was removed */

        (void) unlink(name);
        assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"), i + 1);
        unit_audit(u);

        ngx_modelgw_store_close(s);
    }
}


static void
test_locked(void **state)
{
    int                   i;
    sqlite3              *db;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    static const char  *locks[] = { "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE" };

    for (i = 0; i < 2; i++) {
        s = unit_open(u);

        assert_int_equal(sqlite3_open(u->path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, locks[i], NULL, NULL, NULL),
                         SQLITE_OK);

        ngx_modelgw_store_error(s, &error);
        assert_false(error.locked);
        assert_int_equal(ngx_modelgw_store_begin(s), NGX_ERROR);
        ngx_modelgw_store_error(s, &error);
        assert_true(error.locked);
        unit_error_has(&error, "database is locked");
        ngx_modelgw_store_close(s);

        /* it can be opened, and read, nevertheless */

        s = unit_open(u);
        assert_int_equal(ngx_modelgw_store_begin(s), NGX_ERROR);
        ngx_modelgw_store_close(s);

        s = ngx_modelgw_store_open_read(u->path, NULL, &error);
        assert_non_null(s);
        ngx_modelgw_store_close(s);

        sqlite3_close(db);

        s = unit_open(u);
        unit_begin(s);
        unit_put_account(s, "alice", 9);
        unit_commit(s);
        ngx_modelgw_store_close(s);
    }

    unit_audit(u);
}


/* a reader meanwhile does not stop the writer, nor sees its batch */

static void
test_reader(void **state)
{
    sqlite3              *db;
    ngx_str_t             out;
    sqlite3_stmt         *stmt;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s, *r;

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 9);
    unit_put_account(s, "bob", 9);
    unit_commit(s);

    assert_int_equal(sqlite3_open_v2(u->path, &db, SQLITE_OPEN_READONLY, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT * FROM accounts", -1,
                                        &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);

    unit_begin(s);
    call = unit_call(1, "key", 5);
    unit_put_call(s, &call, "alice");
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 0);
    unit_commit(s);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 1);

    sqlite3_finalize(stmt);
    sqlite3_close(db);

    /* ours cannot write */

    r = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(r);
    assert_int_equal(setting(r, "PRAGMA query_only"), 1);
    assert_int_equal(setting(r, "PRAGMA wal_autocheckpoint"), 0);
    assert_int_equal(ngx_modelgw_store_begin(r), NGX_ERROR);
    ngx_modelgw_store_close(r);

    r = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(r);
    unit_store_ok(r, ngx_modelgw_store_topups(r, &(ngx_str_t)
                                              ngx_string("alice"), 5, &out,
                                              u->pool));

    /* closed last of all it leaves the WAL to the writer */

    ngx_modelgw_store_close(s);
    ngx_modelgw_store_close(r);
    unit_audit(u);
}


static void
test_full(void **state)
{
    int                           i;
    char                          name[32];
    unit_store_t                 *u = *state;
    ngx_int_t                     rc;
    struct rlimit                 limit, old;
    ngx_modelgw_store_t          *s;
    ngx_modelgw_ledger_account_t  a;

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 9);
    unit_commit(s);

    /* the file system is full for us */

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 65536;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);

    rc = ngx_modelgw_store_begin(s);

    for (i = 0; rc == NGX_OK && i < 10000; i++) {
        sprintf(name, "account-%d", i);
        a = unit_account(name, 1);
        rc = ngx_modelgw_store_account(s, &a);
    }

    if (rc == NGX_OK) {
        rc = ngx_modelgw_store_commit(s);
    }

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);

    assert_int_equal(rc, NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "disk I/O error (27: File too large)");
    assert_false(error.locked);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"), 1);

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "bob", 9);
    unit_commit(s);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"), 2);
    unit_audit(u);
}


static ngx_int_t
see_account(void *data, ngx_str_t *name, int64_t balance, uint64_t opened)
{
    int64_t  *sum = data;

    assert_int_equal(opened, UNIT_TIME / 1000);
    assert_int_equal(name->len, 5);

    *sum += balance;

    return (balance == 3) ? NGX_ABORT : NGX_OK;
}


static void
test_recover(void **state)
{
    int64_t               charged, sum;
    uint64_t              id;
    ngx_uint_t            n;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);

    unit_store_ok(s, ngx_modelgw_store_last_id(s, &id));
    assert_int_equal(id, 0);

    unit_store_ok(s, ngx_modelgw_store_recover(s, UNIT_TIME, &n, &charged));
    assert_int_equal(n, 0);
    assert_int_equal(charged, 0);

    unit_begin(s);
    unit_put_account(s, "alice", 100);
    unit_put_account(s, "robin", 200);
    call = unit_call(1, "key", 5);
    unit_put_hold(s, &call, "alice");
    call = unit_call(2, "key", 5);
    unit_put_hold(s, &call, "alice");
    call = unit_call(3, "key", 5);
    unit_put_hold(s, &call, "robin");
    unit_put_call(s, &call, "robin");    /* its hold is left over */
    call = unit_call(9, "key", 5);
    call.estimate = 7;
    unit_put_hold(s, &call, "robin");
    unit_commit(s);

    unit_store_ok(s, ngx_modelgw_store_last_id(s, &id));
    assert_int_equal(id, 9);

    ngx_modelgw_store_close(s);

    s = unit_open(u);
    unit_store_ok(s, ngx_modelgw_store_recover(s, UNIT_TIME + 90000, &n,
                                               &charged));
    assert_int_equal(n, 3);
    assert_int_equal(charged, 10 + 10 + 14);

    /* once */

    unit_store_ok(s, ngx_modelgw_store_recover(s, UNIT_TIME + 99000, &n,
                                               &charged));
    assert_int_equal(n, 0);
    assert_int_equal(charged, 0);

    sum = 0;
    unit_store_ok(s, ngx_modelgw_store_accounts(s, see_account, &sum));
    assert_int_equal(sum, 100 - 20 + 200 - 5 - 14);

    unit_store_ok(s, ngx_modelgw_store_last_id(s, &id));
    assert_int_equal(id, 9);

    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM holds"), 0);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"
        " WHERE id IN (1, 2, 9) AND outcome = 'unanswered'"
        " AND \"end\" = 'lost' AND status = 0 AND output = 0"
        " AND time = 1795330020123 AND ended = 1795330110123"
        " AND key = 'key' AND model = 'family_a-large'"), 3);
    assert_int_equal(unit_sql(u, "SELECT input FROM calls WHERE id = 9"), 7);
    unit_audit(u);

    /* the callback's return code ends it */

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "aaaaa", 3);
    unit_commit(s);
    sum = 0;
    assert_int_equal(ngx_modelgw_store_accounts(s, see_account, &sum),
                     NGX_ABORT);
    assert_int_equal(sum, 3);
    ngx_modelgw_store_close(s);
}


/* a trigger that leaves out what recovery writes: it refuses, and all stays */

static void
test_recover_left_out(void **state)
{
    int64_t               charged;
    ngx_uint_t            i, n;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;
    static const char    *accounts[] = { "alice", "robin", "robin", "nobody" };

    static struct {
        const char  *trigger;
        const char  *words;
    } c[] = {
        { "CREATE TRIGGER t BEFORE INSERT ON calls"
          " BEGIN SELECT RAISE(IGNORE); END",
          "failed: calls were not inserted" },
        { "CREATE TRIGGER t BEFORE INSERT ON calls"
          " WHEN new.id = 2 BEGIN SELECT RAISE(IGNORE); END",
          "failed: calls were not inserted" },
        { "CREATE TRIGGER t BEFORE UPDATE ON accounts"
          " WHEN new.name = 'robin' BEGIN SELECT RAISE(IGNORE); END",
          "failed: accounts were not charged" },
        { "CREATE TRIGGER t BEFORE DELETE ON holds"
          " BEGIN SELECT RAISE(IGNORE); END",
          "failed: holds were not deleted" }
    };

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 100);
    unit_put_account(s, "robin", 200);
    unit_put_account(s, "other", 300);

    for (i = 0; i < 4; i++) {
        call = unit_call(i + 1, "key", 5);
        unit_put_hold(s, &call, accounts[i]);
    }

    unit_commit(s);
    ngx_modelgw_store_close(s);

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        unit_write_sql(u, c[i].trigger);

        s = unit_open(u);
        assert_int_equal(ngx_modelgw_store_recover(s, UNIT_TIME, &n, &charged),
                         NGX_ERROR);
        ngx_modelgw_store_error(s, &error);
        unit_error_has(&error, c[i].words);
        ngx_modelgw_store_close(s);

        assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 0);
        assert_int_equal(unit_sql(u, "SELECT count(*) FROM holds"), 4);
        assert_int_equal(unit_sql(u, "SELECT sum(balance) FROM accounts"), 600);

        unit_write_sql(u, "DROP TRIGGER t");
    }

    s = unit_open(u);
    unit_store_ok(s, ngx_modelgw_store_recover(s, UNIT_TIME, &n, &charged));
    assert_int_equal(n, 4);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 4);
    assert_int_equal(unit_sql(u, "SELECT sum(balance) FROM accounts"), 570);
}


static ngx_int_t
interrupt_account(void *data, ngx_str_t *name, int64_t balance,
    uint64_t opened)
{
    ngx_modelgw_store_interrupt(data);

    return NGX_OK;
}


static void
test_interrupt(void **state)
{
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 3);
    unit_put_account(s, "robin", 3);
    unit_commit(s);

    assert_int_equal(ngx_modelgw_store_accounts(s, interrupt_account, s),
                     NGX_ERROR);
    ngx_modelgw_store_error(s, &error);
    unit_error_has(&error, "interrupted");

    /* it applies only to the function that it was meant for */

    unit_begin(s);
    unit_commit(s);
    ngx_modelgw_store_close(s);
}


static void
roll_up(ngx_modelgw_store_t *s, uint64_t time, ngx_uint_t max, ngx_uint_t done)
{
    ngx_uint_t  n;

    n = 4711;
    unit_store_ok(s, ngx_modelgw_store_roll_up(s, time / 1000, max, &n));
    assert_int_equal(n, done);
}


static void
hours(ngx_modelgw_store_t *s, uint64_t time, ngx_uint_t max, ngx_uint_t done)
{
    ngx_uint_t  n;

    n = 4711;
    unit_store_ok(s, ngx_modelgw_store_hours(s, time / 1000, max, &n));
    assert_int_equal(n, done);
}


static void
test_roll_up(void **state)
{
    uint64_t              day;
    ngx_uint_t            i;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    day = UNIT_TIME / UNIT_DAY * UNIT_DAY;

    s = unit_open(u);
    roll_up(s, UNIT_TIME, 100, 0);

    unit_begin(s);
    unit_put_account(s, "alice", 1000);
    unit_put_account(s, "robin", 1000);

    /* the last and the first instant of a day; the start does not count */

    for (i = 0; i < 10; i++) {
        call = unit_call(i + 1, (i & 1) ? "odd" : "even", 10);
        call.started = day - 5000;
        call.ended = (i < 7) ? day - 1 : day;
        call.charge.tokens.input = 1;
        call.charge.tokens.cache_read = 2;
        call.charge.tokens.cache_write = 3;
        call.charge.tokens.cache_write_1h = 4;
        call.charge.tokens.reasoning = 5;
        unit_put_call(s, &call, (i & 2) ? "alice" : "robin");
    }

    /* one with an id out of order */

    call.id = 20;
    call.ended = day - UNIT_DAY - 1;
    unit_put_call(s, &call, "alice");
    unit_commit(s);

    roll_up(s, day - UNIT_DAY - 1000, 100, 0);
    roll_up(s, day + UNIT_DAY - 1000, 3, 3);
    unit_audit(u);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 8);
    roll_up(s, day + 1000, 3, 3);
    roll_up(s, day + 1000, 3, 2);
    roll_up(s, day + 1000, 3, 0);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 3);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls WHERE id < 8"),
                     0);
    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM days"), 8);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM days"), 5);
    assert_int_equal(unit_sql(u, "SELECT calls FROM days"
        " WHERE day = '2026-11-20' AND key = 'odd' AND account = 'alice'"), 1);
    assert_int_equal(unit_sql(u, "SELECT calls FROM days"
        " WHERE day = '2026-11-21' AND key = 'even' AND account = 'robin'"
        " AND model = 'family_a-large' AND input = 2 AND cache_read = 4"
        " AND cache_write = 6 AND cache_write_1h = 8 AND output = 20"
        " AND reasoning = 10 AND cost = 20"), 2);
    assert_int_equal(unit_sql(u, "SELECT sum(cost) FROM days"), 80);
    unit_audit(u);

    /* a day later the rest is added to existing days, or new ones */

    roll_up(s, day + UNIT_DAY, 100, 3);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 0);
    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM days"), 11);
    unit_audit(u);

    ngx_modelgw_store_close(s);
}


/* a trigger that leaves out what a roll-up writes: it refuses, and all stays */

static void
test_roll_up_left_out(void **state)
{
    uint64_t              later;
    ngx_uint_t            i, n;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    static struct {
        const char  *trigger;
        const char  *words;
    } c[] = {
        { "CREATE TRIGGER t BEFORE INSERT ON days"
          " BEGIN SELECT RAISE(IGNORE); END",
          "failed: days were not updated" },
        { "CREATE TRIGGER t BEFORE INSERT ON days"
          " WHEN new.key = 'odd' BEGIN SELECT RAISE(IGNORE); END",
          "failed: days were not updated" },
        { "CREATE TRIGGER t BEFORE UPDATE ON days"
          " BEGIN SELECT RAISE(IGNORE); END",
          "failed: days were not updated" },
        { "CREATE TRIGGER t BEFORE DELETE ON calls"
          " WHEN old.id = 3 BEGIN SELECT RAISE(IGNORE); END",
          "failed: calls were not deleted" }
    };

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 1000);

    for (i = 0; i < 5; i++) {
        call = unit_call(i + 1, (i & 1) ? "odd" : "even", 10);
        unit_put_call(s, &call, "alice");
    }

    unit_commit(s);

    later = UNIT_TIME + 2 * UNIT_DAY;
    roll_up(s, later, 1, 1);
    ngx_modelgw_store_close(s);

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        unit_write_sql(u, c[i].trigger);

        s = unit_open(u);
        assert_int_equal(ngx_modelgw_store_roll_up(s, later / 1000, 100, &n),
                         NGX_ERROR);
        ngx_modelgw_store_error(s, &error);
        unit_error_has(&error, c[i].words);
        ngx_modelgw_store_close(s);

        assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 4);
        assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM days"), 1);
        unit_audit(u);

        unit_write_sql(u, "DROP TRIGGER t");
    }

    s = unit_open(u);
    roll_up(s, later, 100, 4);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM days"), 5);
    unit_audit(u);
}


static void
ask_calls(unit_store_t *u, ngx_modelgw_store_filter_t *filter,
    const char *expected)
{
    ngx_str_t             out;
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(s);
    unit_store_ok(s, ngx_modelgw_store_calls(s, filter, &out, u->pool));
    unit_assert_str(out.data, out.len, expected);
    ngx_modelgw_store_close(s);
}


static void
ask_usage(unit_store_t *u, ngx_modelgw_store_by_e by,
    ngx_modelgw_store_filter_t *filter, const char *expected)
{
    ngx_str_t                out;
    ngx_modelgw_store_t     *s;
    ngx_modelgw_store_by_t   one;

    s = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(s);
    one.n = 1;
    one.bys[0] = by;
    unit_store_ok(s, ngx_modelgw_store_usage(s, &one, filter, &out, u->pool));
    unit_assert_str(out.data, out.len, expected);
    ngx_modelgw_store_close(s);
}


/* three calls: of two accounts and keys, the last one a day later */

static void
three_calls(unit_store_t *u)
{
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 0);
    unit_put_account(s, "robin", 0);

    call = unit_call(1795330020123456, "key-1", 10500000);
    call.charge.tokens.input = 1;
    call.charge.tokens.cache_read = 2;
    call.charge.tokens.cache_write = 3;
    call.charge.tokens.cache_write_1h = 4;
    call.charge.tokens.output = 5;
    call.charge.tokens.reasoning = 6;
    unit_put_call(s, &call, "alice");

    call = unit_call(1795330020123457, "key\"\xff", 1);
    call.end = NGX_MODELGW_END_UPSTREAM;
    call.charge.outcome = NGX_MODELGW_REFUSED;
    call.seen.status = 503;
    call.model_len = 1;
    unit_put_call(s, &call, "robin");

    call = unit_call(1795330020123458, "key-1", 2000000000);
    call.charge.tokens.output = 100;
    call.started += UNIT_DAY;
    call.ended += UNIT_DAY;
    unit_put_call(s, &call, "alice");

    unit_commit(s);
    ngx_modelgw_store_close(s);
}


#define AFTER(day)                                                            \
    "\"ended\":\"" day "T06:47:01.623Z\",\"duration_ms\":1500,"             \
    "\"first_byte_ms\":20,\"request_id\":\"req-1\",\"stream\":true,"       \
    "\"translated\":false}"

#define CALL_1                                                                \
    "{\"id\":1795330020123456,\"time\":\"2026-11-22T06:47:00.123Z\","         \
    "\"key\":\"key-1\",\"account\":\"alice\",\"model\":\"family_a-large\","   \
    "\"input_tokens\":1,\"cache_read_tokens\":2,\"cache_write_tokens\":3,"    \
    "\"cache_write_1h_tokens\":4,\"output_tokens\":5,\"reasoning_tokens\":6," \
    "\"cost\":\"0.0105\",\"outcome\":\"reported\",\"end\":\"complete\","      \
    "\"status\":200," AFTER("2026-11-22")

#define CALL_2                                                                \
    "{\"id\":1795330020123457,\"time\":\"2026-11-22T06:47:00.123Z\","         \
    "\"key\":\"key\\\"\xef\xbf\xbd\",\"account\":\"robin\",\"model\":\"f\","  \
    "\"input_tokens\":0,\"cache_read_tokens\":0,\"cache_write_tokens\":0,"    \
    "\"cache_write_1h_tokens\":0,\"output_tokens\":1,\"reasoning_tokens\":0," \
    "\"cost\":\"0.000000001\",\"outcome\":\"refused\",\"end\":\"upstream\","  \
    "\"status\":503," AFTER("2026-11-22")

#define CALL_3                                                                \
    "{\"id\":1795330020123458,\"time\":\"2026-11-23T06:47:00.123Z\","         \
    "\"key\":\"key-1\",\"account\":\"alice\",\"model\":\"family_a-large\","   \
    "\"input_tokens\":0,\"cache_read_tokens\":0,\"cache_write_tokens\":0,"    \
    "\"cache_write_1h_tokens\":0,\"output_tokens\":100,"                      \
    "\"reasoning_tokens\":0,"                                                 \
    "\"cost\":\"2.00\",\"outcome\":\"reported\",\"end\":\"complete\","        \
    "\"status\":200," AFTER("2026-11-23")

#define SUMS(calls, errors, i, cr, cw, cwh, o, r, cost)                       \
    ",\"calls\":" calls ",\"errors\":" errors                                 \
    ",\"input_tokens\":" i ",\"cache_read_tokens\":" cr                       \
    ",\"cache_write_tokens\":" cw ",\"cache_write_1h_tokens\":" cwh           \
    ",\"output_tokens\":" o ",\"reasoning_tokens\":" r ",\"cost\":\"" cost    \
    "\",\"avg_ms\":1500,\"avg_first_byte_ms\":20}"

#define BOTH   SUMS("2", "0", "1", "2", "3", "4", "105", "6", "2.0105")
#define SMALL  SUMS("1", "1", "0", "0", "0", "0", "1", "0", "0.000000001")


static void
test_calls(void **state)
{
    unit_store_t                *u = *state;
    ngx_modelgw_store_filter_t   f;

    memset(&f, 0, sizeof(f));
    f.limit = 10;

    ngx_modelgw_store_close(unit_open(u));
    ask_calls(u, &f, "{\"calls\":[]}");

    three_calls(u);
    ask_calls(u, &f, "{\"calls\":[" CALL_3 "," CALL_2 "," CALL_1 "]}");

    f.limit = 2;
    ask_calls(u, &f, "{\"calls\":[" CALL_3 "," CALL_2 "],\"more\":true,"
              "\"next\":\"1a2020218f7-660d7d81aa341\"}");

    ngx_str_set(&f.account, "alice");
    ask_calls(u, &f, "{\"calls\":[" CALL_3 "," CALL_1 "]}");

    ngx_str_set(&f.key, "key-1");
    f.to = UNIT_TIME + UNIT_DAY;
    ask_calls(u, &f, "{\"calls\":[" CALL_1 "]}");

    /* the end of a call counts; the beginning of the span is inclusive, its
       end exclusive */

    f.from = UNIT_TIME + 1500;
    ask_calls(u, &f, "{\"calls\":[" CALL_1 "]}");
    f.from++;
    ask_calls(u, &f, "{\"calls\":[]}");
    f.from = 0;
    f.to = UNIT_TIME + 1500;
    ask_calls(u, &f, "{\"calls\":[]}");

    memset(&f, 0, sizeof(f));
    f.limit = 1;
    f.to = UINT64_MAX;
    ngx_str_set(&f.model, "f");
    ask_calls(u, &f, "{\"calls\":[" CALL_2 "]}");
    ngx_str_set(&f.model, "family_a-larg");
    ask_calls(u, &f, "{\"calls\":[]}");
    f.from = UINT64_MAX;
    f.model.len = 0;
    ask_calls(u, &f, "{\"calls\":[]}");
}


static void
usages(unit_store_t *u)
{
    ngx_modelgw_store_filter_t  f;

    memset(&f, 0, sizeof(f));
    f.limit = 10;

    ask_usage(u, NGX_MODELGW_BY_DAY, &f, "{\"usage\":["
        "{\"day\":\"2026-11-23\""
        SUMS("1", "0", "0", "0", "0", "0", "100", "0", "2.00") ","
        "{\"day\":\"2026-11-22\""
        SUMS("2", "1", "1", "2", "3", "4", "6", "6", "0.010500001") "]}");
    ask_usage(u, NGX_MODELGW_BY_KEY, &f, "{\"usage\":["
        "{\"key\":\"key-1\"" BOTH ",{\"key\":\"key\\\"\xef\xbf\xbd\"" SMALL
        "]}");
    ask_usage(u, NGX_MODELGW_BY_MODEL, &f, "{\"usage\":["
        "{\"model\":\"family_a-large\"" BOTH ",{\"model\":\"f\"" SMALL "]}");
    ask_usage(u, NGX_MODELGW_BY_ACCOUNT, &f, "{\"usage\":["
        "{\"account\":\"alice\"" BOTH ",{\"account\":\"robin\"" SMALL "]}");

    f.limit = 2;
    ask_usage(u, NGX_MODELGW_BY_ACCOUNT, &f, "{\"usage\":["
        "{\"account\":\"alice\"" BOTH ",{\"account\":\"robin\"" SMALL "]}");

    f.limit = 1;
    ask_usage(u, NGX_MODELGW_BY_ACCOUNT, &f, "{\"usage\":["
        "{\"account\":\"alice\"" BOTH "],\"more\":true}");

    /* spans that meet at midnight */

    f.to = UNIT_TIME / UNIT_DAY * UNIT_DAY + UNIT_DAY;
    ngx_str_set(&f.key, "key\"\xff");
    ask_usage(u, NGX_MODELGW_BY_ACCOUNT, &f, "{\"usage\":["
        "{\"account\":\"robin\"" SMALL "]}");
    f.from = f.to;
    f.to = 0;
    ask_usage(u, NGX_MODELGW_BY_ACCOUNT, &f, "{\"usage\":[]}");
    f.key.len = 0;
    ask_usage(u, NGX_MODELGW_BY_DAY, &f, "{\"usage\":["
        "{\"day\":\"2026-11-23\""
        SUMS("1", "0", "0", "0", "0", "0", "100", "0", "2.00") "]}");
}


typedef struct {
    int64_t     sum;
    ngx_uint_t  n;
} spent_t;


static ngx_int_t
spent_key(void *data, ngx_str_t *name, int64_t sum, uint64_t unused)
{
    spent_t *spent = data;

    spent->n++;
    spent->sum += sum;

    return NGX_OK;
}


/* for all keys; start: of the day, that many days after that of the calls */

static void
spent(unit_store_t *u, ngx_uint_t days, ngx_uint_t n, int64_t sum)
{
    spent_t                     found;
    ngx_modelgw_store_t        *s;
    ngx_modelgw_store_error_t   error;

    s = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(s);

    ngx_memzero(&found, sizeof(spent_t));

    unit_store_ok(s, ngx_modelgw_store_snapshot(s));
    unit_store_ok(s, ngx_modelgw_store_spent(s, NGX_MODELGW_BY_KEY, NULL,
                                             (UNIT_TIME / UNIT_DAY + days)
                                             * UNIT_DAY, spent_key, &found));

    assert_int_equal(found.n, n);
    assert_int_equal(found.sum, sum);

    ngx_modelgw_store_close(s);
}


/* what keys have spent, whatever was rolled up */

static void
test_spent(void **state)
{
    int64_t                     all, last;
    uint64_t                    id;
    ngx_uint_t                  i;
    unit_store_t               *u = *state;
    ngx_modelgw_store_t        *s, *reader;
    ngx_modelgw_store_error_t   error;

    three_calls(u);

    all = unit_sql(u, "SELECT sum(cost) FROM calls");
    last = unit_sql(u, "SELECT sum(cost) FROM calls WHERE ended >="
                       " (SELECT max(ended) FROM calls)");
    assert_true(last > 0 && last < all);

    s = unit_open(u);

    for (i = 0; i < 5; i++) {
        spent(u, 0, unit_sql(u, "SELECT count(DISTINCT key) FROM"
                                " (SELECT key FROM calls"
                                " UNION SELECT key FROM days)"), all);
        spent(u, 1, 1, last);
        spent(u, 2, 0, 0);

        switch (i) {
        case 0:
            hours(s, UNIT_TIME + UNIT_DAY, 10, 2);
            break;
        case 1:
            roll_up(s, UNIT_TIME + UNIT_DAY, 10, 2);
            break;
        case 2:
            hours(s, UNIT_TIME + 2 * UNIT_DAY, 10, 1);
            break;
        case 3:
            reader = ngx_modelgw_store_open_read(u->path, NULL, &error);
            assert_non_null(reader);
            unit_store_ok(reader, ngx_modelgw_store_snapshot(reader));
            id = unit_sql(u, "SELECT max(id) FROM calls");

            roll_up(s, UNIT_TIME + 2 * UNIT_DAY, 10, 1);

            /* of the instant when it began to read */

            assert_int_equal(ngx_modelgw_store_has_call(reader, id), NGX_OK);
            assert_int_equal(ngx_modelgw_store_has_call(reader, id + 1),
                             NGX_DECLINED);
            ngx_modelgw_store_close(reader);
            break;
        }
    }

    ngx_modelgw_store_close(s);
}


/* the same, whatever was rolled up */

static void
test_usage(void **state)
{
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    three_calls(u);
    usages(u);

    s = unit_open(u);
    hours(s, UNIT_TIME + UNIT_DAY, 10, 2);
    usages(u);
    roll_up(s, UNIT_TIME + UNIT_DAY, 10, 2);
    usages(u);
    hours(s, UNIT_TIME + 2 * UNIT_DAY, 10, 1);
    usages(u);
    roll_up(s, UNIT_TIME + 2 * UNIT_DAY, 10, 1);
    usages(u);
    ngx_modelgw_store_close(s);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 0);
}


/* more groups than fit in the initial memory */

static void
test_usage_many(void **state)
{
    char                         key[64];
    int                          i;
    u_char                      *p;
    ngx_str_t                    out;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_by_t       by;
    ngx_modelgw_store_filter_t   f;

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 0);

    for (i = 0; i < 3000; i++) {
        sprintf(key, "key-%04d", i % 1000);
        call = unit_call(i + 1, key, i % 1000);
        unit_put_call(s, &call, "alice");
    }

    unit_commit(s);

    memset(&f, 0, sizeof(f));
    f.limit = 5000;

    by.n = 1;
    by.bys[0] = NGX_MODELGW_BY_KEY;
    unit_store_ok(s, ngx_modelgw_store_usage(s, &by, &f, &out, u->pool));

    p = out.data + sizeof("{\"usage\":[") - 1;

    for (i = 999; i >= 0; i--) {
        sprintf(key, "{\"key\":\"key-%04d\",\"calls\":3,", i);
        assert_memory_equal(p, key, strlen(key));
        p = memchr(p, '}', out.data + out.len - p);
        assert_non_null(p);
        p += 2;
    }

    unit_assert_str(p, out.data + out.len - p, "}");

    unit_store_ok(s, ngx_modelgw_store_calls(s, &f, &out, u->pool));
    assert_in_range(out.len, 3000 * 350, 3000 * 500);

    ngx_modelgw_store_close(s);
}


static void
test_topups(void **state)
{
    int                          i;
    char                         id[16];
    ngx_str_t                    out;
    unit_store_t                *u = *state;
    ngx_modelgw_change_t         t;
    ngx_modelgw_change_e         result;
    ngx_modelgw_store_t         *s;
    static ngx_str_t             alice = ngx_string("alice");
    static ngx_str_t             nobody = ngx_string("nobody");

    s = unit_open(u);
    unit_begin(s);
    unit_put_account(s, "alice", 1000000000);
    unit_put_account(s, "robin", 1);

    for (i = 0; i < 3; i++) {
        sprintf(id, "t%d", i);
        t = unit_topup(id, "alice", 10 + i);
        t.time = UNIT_TIME + 1000 * (3 - i);
        unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));
        assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);
    }

    unit_commit(s);

    unit_store_ok(s, ngx_modelgw_store_topups(s, &alice, 10, &out, u->pool));
    unit_assert_str(out.data, out.len,
        "[{\"id\":\"t0\",\"time\":\"2026-11-22T06:47:03.123Z\","
        "\"amount\":\"0.00000001\"},"
        "{\"id\":\"t1\",\"time\":\"2026-11-22T06:47:02.123Z\","
        "\"amount\":\"0.000000011\"},"
        "{\"id\":\"t2\",\"time\":\"2026-11-22T06:47:01.123Z\","
        "\"amount\":\"0.000000012\"},"
        "{\"id\":\"founding:alice\",\"time\":\"2026-11-22T06:47:00.000Z\","
        "\"amount\":\"1.00\"}]");

    unit_store_ok(s, ngx_modelgw_store_topups(s, &alice, 1, &out, u->pool));
    unit_assert_str(out.data, out.len,
        "[{\"id\":\"t0\",\"time\":\"2026-11-22T06:47:03.123Z\","
        "\"amount\":\"0.00000001\"}]");

    unit_store_ok(s, ngx_modelgw_store_topups(s, &nobody, 1, &out, u->pool));
    unit_assert_str(out.data, out.len, "[]");

    ngx_modelgw_store_close(s);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_store_case(test_new),
        unit_store_case(test_empty),
        unit_store_case(test_version),
        unit_store_case(test_other_program),
        unit_store_case(test_no_database),
        unit_store_case(test_directory),
        unit_store_case(test_rights),
        unit_store_case(test_long_path),
        unit_store_case(test_known),
        unit_store_case(test_pinned),
        unit_store_case(test_pin_closed),
        unit_store_case(test_account),
        unit_store_case(test_call),
        unit_store_case(test_batch),
        unit_store_case(test_names),
        unit_store_case(test_topup),
        unit_store_case(test_topup_asked_again),
        unit_store_case(test_correction),
        unit_store_case(test_account_changes),
        unit_store_case(test_actions),
        unit_store_case(test_many_accounts),
        unit_store_case(test_rollback),
        unit_store_case(test_commit_after_failure),
        unit_store_case(test_shadow),
        unit_store_case(test_left_out),
        unit_store_case(test_schema_changes),
        unit_store_case(test_check_wal),
        unit_store_case(test_locked),
        unit_store_case(test_reader),
        unit_store_case(test_full),
        unit_store_case(test_recover),
        unit_store_case(test_recover_left_out),
        unit_store_case(test_interrupt),
        unit_store_case(test_roll_up),
        unit_store_case(test_roll_up_left_out),
        unit_store_case(test_calls),
        unit_store_case(test_spent),
        unit_store_case(test_usage),
        unit_store_case(test_usage_many),
        unit_store_case(test_topups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
