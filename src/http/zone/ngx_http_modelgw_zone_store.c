
/*
 * Loads the store into shared memory when nginx starts.
 *
 * The workers write the store, so this is done as their user (see user.c):
 * files get the owner that they need, and missing permissions are an error
 * now.
 *
 * A ledger is used by one nginx at a time: flock() on a file beside it lasts
 * as long as any process has the descriptor.  Workers inherit it, so workers
 * whose master died keep a second nginx off.  The new binary of an upgrade
 * does not inherit it, and is kept off, too.
 *
 * A descriptor of the ledger itself is kept as well: writers come and go and
 * recognise the file by its inode, which must not be reused.  It is an O_PATH
 * descriptor, as closing one that is open for reading or writing would release
 * the POSIX locks of SQLite.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"

#include <sys/file.h>


#define NGX_HTTP_MODELGW_LOCK_TRIES  30  /* 100 ms apart: an exiting master may
                                            write for 2 seconds */


typedef struct {
    ngx_http_modelgw_main_conf_t  *mmcf;
    ngx_log_t                     *log;
    u_char                        *memory;
    size_t                         size;
    ngx_http_modelgw_user_t        user;
    ngx_modelgw_store_error_t      error;
} ngx_http_modelgw_load_t;


static ngx_int_t ngx_http_modelgw_load_as_user(void *data);
static ngx_int_t ngx_http_modelgw_load_open(ngx_http_modelgw_load_t *load);
static ngx_int_t ngx_http_modelgw_load_id(char *id);
static ngx_int_t ngx_http_modelgw_load_store(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store);
static ngx_int_t ngx_http_modelgw_load_pin(ngx_http_modelgw_load_t *load);
static ngx_int_t ngx_http_modelgw_load_create(ngx_http_modelgw_load_t *load,
    uint64_t last);
static ngx_int_t ngx_http_modelgw_load_account(void *data, ngx_str_t *name,
    int64_t balance, uint64_t opened);
static ngx_int_t ngx_http_modelgw_load_journal(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store);
static uint64_t ngx_http_modelgw_load_exchanged(uint64_t exchanged);
static ngx_int_t ngx_http_modelgw_load_lease(void *data, ngx_str_t *name,
    int64_t granted, int64_t returned, int64_t forced);
static ngx_int_t ngx_http_modelgw_load_budget(ngx_http_modelgw_load_t *load,
    ngx_str_t *name, ngx_modelgw_fund_t *fund, ngx_uint_t *window,
    uint64_t *ends);
static ngx_int_t ngx_http_modelgw_load_changes(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store);
static ngx_int_t ngx_http_modelgw_load_closed(void *data, ngx_str_t *name);
static void ngx_http_modelgw_load_probe(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store);
static ngx_int_t ngx_http_modelgw_load_prices(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store);
static ngx_int_t ngx_http_modelgw_load_failed(ngx_http_modelgw_load_t *load);
static ngx_int_t ngx_http_modelgw_lock(ngx_http_modelgw_load_t *load);
static ngx_int_t ngx_http_modelgw_duplicate(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_fd_t old, ngx_fd_t *fd);
static ngx_int_t ngx_http_modelgw_keep(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_fd_t fd, ngx_fd_t *kept);


ngx_int_t
ngx_http_modelgw_zone_load(ngx_http_modelgw_main_conf_t *mmcf, ngx_log_t *log,
    u_char *memory, size_t size)
{
    ngx_http_modelgw_load_t  load;

    ngx_memzero(&load, sizeof(ngx_http_modelgw_load_t));

    load.mmcf = mmcf;
    load.log = log;
    load.memory = memory;
    load.size = size;

    if (ngx_http_modelgw_user_find(&load.user, mmcf->cycle, log) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_user_run(&load.user, ngx_http_modelgw_load_as_user,
                                     &load, log);
}


static ngx_int_t
ngx_http_modelgw_load_as_user(void *data)
{
    ngx_http_modelgw_load_t *load = data;

    const char                    *path;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = load->mmcf;
    path = (const char *) mmcf->ledger_path.data;

    if (ngx_test_config) {

        if (ngx_modelgw_store_check(path, mmcf->cluster != NULL, &load->error)
            != NGX_OK)
        {
            return ngx_http_modelgw_load_failed(load);
        }

        return ngx_http_modelgw_load_create(load, 0);
    }

    if (ngx_http_modelgw_lock(load) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_load_open(load);
}


static ngx_int_t
ngx_http_modelgw_load_open(ngx_http_modelgw_load_t *load)
{
    char                  *path, id[NGX_MODELGW_JOURNAL_ID];
    ngx_int_t             rc;
    ngx_modelgw_store_t  *store;

    path = (char *) load->mmcf->ledger_path.data;

    if (load->mmcf->cluster == NULL) {
        store = ngx_modelgw_store_open(path, &load->error);

    } else if (ngx_http_modelgw_load_id(id) == NGX_OK) {
        store = ngx_modelgw_store_open_journal(path, id, &load->error);

    } else {
        ngx_log_error(NGX_LOG_EMERG, load->log, 0,
                      "\"modelgw_ledger\": no random id for a new journal");
        return NGX_ERROR;
    }

    if (store == NULL) {
        return ngx_http_modelgw_load_failed(load);
    }

    rc = ngx_http_modelgw_load_store(load, store);

    if (rc == NGX_OK) {
        ngx_http_modelgw_load_probe(load, store);
    }

    ngx_modelgw_store_close(store);

    return rc;
}


/* of a journal, if the file is new */

static ngx_int_t
ngx_http_modelgw_load_id(char *id)
{
    u_char  bytes[NGX_MODELGW_JOURNAL_ID / 2];

    if (ngx_modelgw_key_random(bytes, sizeof(bytes)) != NGX_OK) {
        return NGX_ERROR;
    }

    *ngx_hex_dump((u_char *) id, bytes, sizeof(bytes)) = '\0';

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_load_store(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store)
{
    u_char                     *p, amount[NGX_MODELGW_AMOUNT_LEN];
    int64_t                     charged;
    uint64_t                    last;
    ngx_uint_t                  n;
    ngx_time_t                 *tp;
    ngx_http_modelgw_shared_t  *shared;

    tp = ngx_timeofday();
    shared = load->mmcf->shared;

    if (ngx_modelgw_store_file(store, &shared->file) != NGX_OK
        || ngx_modelgw_store_recover(store,
                                     (uint64_t) tp->sec * 1000 + tp->msec,
                                     &n, &charged)
           != NGX_OK
        || ngx_modelgw_store_last_id(store, &last) != NGX_OK)
    {
        ngx_modelgw_store_error(store, &load->error);
        return ngx_http_modelgw_load_failed(load);
    }

    if (ngx_http_modelgw_load_pin(load) != NGX_OK) {
        return NGX_ERROR;
    }

    if (n) {
        p = ngx_modelgw_amount(amount, charged);

        ngx_log_error(NGX_LOG_WARN, load->log, 0,
                      "calls that were open as nginx ended: %ui, %*s euro are "
                      "charged for them", n, p - amount, amount);
    }

    if (ngx_modelgw_store_migrated(store)) {
        ngx_log_error(NGX_LOG_NOTICE, load->log, 0,
                      "\"modelgw_ledger\": \"%V\" was migrated to version %d",
                      &load->mmcf->ledger_path, NGX_MODELGW_STORE_VERSION);
    }

    if (ngx_http_modelgw_load_create(load, last) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_accounts(store, ngx_http_modelgw_load_account, load)
        == NGX_OK
        && ngx_http_modelgw_load_journal(load, store) == NGX_OK
        && ngx_http_modelgw_load_changes(load, store) == NGX_OK)
    {
        return NGX_OK;
    }

    if (load->error.len == 0) {
        ngx_modelgw_store_error(store, &load->error);
    }

    return ngx_http_modelgw_load_failed(load);
}


/* the store has opened the file: the path must still lead to it */

static ngx_int_t
ngx_http_modelgw_load_pin(ngx_http_modelgw_load_t *load)
{
    ngx_fd_t                       fd;
    struct stat                    st;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = load->mmcf;

    fd = open((char *) mmcf->ledger_path.data, O_PATH|O_CLOEXEC);

    if (fd == NGX_INVALID_FILE || fstat(fd, &st) == -1) {
        ngx_log_error(NGX_LOG_EMERG, load->log, ngx_errno,
                      "\"modelgw_ledger\": " ngx_open_file_n " \"%V\" failed",
                      &mmcf->ledger_path);

        if (fd != NGX_INVALID_FILE) {
            (void) ngx_close_file(fd);
        }

        return NGX_ERROR;
    }

    if (st.st_dev != mmcf->shared->file.dev
        || st.st_ino != mmcf->shared->file.ino)
    {
        ngx_log_error(NGX_LOG_EMERG, load->log, 0,
                      "\"modelgw_ledger\": \"%V\" is another file now",
                      &mmcf->ledger_path);

        (void) ngx_close_file(fd);

        return NGX_ERROR;
    }

    return ngx_http_modelgw_keep(mmcf, fd, &mmcf->ledger_file);
}


static ngx_int_t
ngx_http_modelgw_load_create(ngx_http_modelgw_load_t *load, uint64_t last)
{
    uint64_t               id;
    ngx_modelgw_ledger_t  *ledger;

    id = ngx_http_modelgw_zone_first_id(last);

    ledger = ngx_modelgw_ledger_create(load->memory, load->size, id,
                                       load->mmcf->cluster
                                       ? NGX_MODELGW_LEDGER_CLUSTER
                                       : NGX_MODELGW_LEDGER_CREDIT);

    if (ledger == NULL) {
        ngx_log_error(NGX_LOG_EMERG, load->log, 0,
                      "\"modelgw_zone\" of %uzk cannot be laid out",
                      load->mmcf->zone_size / 1024);
        return NGX_ERROR;
    }

    load->mmcf->ledger = ledger;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_load_account(void *data, ngx_str_t *name, int64_t balance,
    uint64_t opened)
{
    ngx_http_modelgw_load_t *load = data;

    u_char    *p;
    uint32_t   index;

    if (ngx_modelgw_ledger_account(load->mmcf->ledger, name, 1, balance, opened,
                                   1, &index)
        == NGX_DONE)
    {
        return NGX_OK;
    }

    p = ngx_snprintf(load->error.data, NGX_MODELGW_STORE_ERROR,
                     "zone too small: \"modelgw_zone\" of %uzk has no room for "
                     "the accounts of the ledger",
                     load->mmcf->zone_size / 1024);

    load->error.len = p - load->error.data;

    return NGX_ERROR;
}


/*
 * What the node of a cluster knew when it ended: with that it goes on without
 * the database, and has keys from before the first exchange.
 */

static ngx_int_t
ngx_http_modelgw_load_journal(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store)
{
    ngx_modelgw_ledger_t      *ledger;
    ngx_modelgw_journal_t      journal;
    ngx_modelgw_lease_node_t  *node;

    ledger = load->mmcf->ledger;
    node = ngx_modelgw_node(ledger);

    if (node == NULL) {
        return NGX_OK;
    }

    if (ngx_modelgw_journal_read(store, &journal) != NGX_OK
        || ngx_modelgw_journal_leases(store, ngx_http_modelgw_load_lease, load)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    node->num = journal.num;
    node->pos = journal.pos;
    node->end = journal.end;
    node->keys_version = journal.keys_version;
    node->exchanged = ngx_http_modelgw_load_exchanged(journal.exchanged);

    if (journal.num) {
        ngx_modelgw_node_ids(ledger, journal.num);
    }

    ngx_modelgw_node_set(ledger, NGX_MODELGW_NODE_NEW);

    return NGX_OK;
}


/*
 * Milliseconds since the Epoch as those of CLOCK_BOOTTIME, from which others
 * are subtracted: it may have been before the machine was started.  If the
 * clock was set back since, it is not known how long ago that was.
 */

static uint64_t
ngx_http_modelgw_load_exchanged(uint64_t exchanged)
{
    uint64_t         now, boot;
    ngx_time_t      *tp;
    struct timespec  ts;

    tp = ngx_timeofday();
    now = (uint64_t) tp->sec * 1000 + tp->msec;

    if (exchanged == 0 || exchanged > now) {
        return 0;
    }

    (void) clock_gettime(CLOCK_BOOTTIME, &ts);

    boot = (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
    boot -= now - exchanged;

    return boot ? boot : 1;
}


static ngx_int_t
ngx_http_modelgw_load_lease(void *data, ngx_str_t *name, int64_t granted,
    int64_t returned, int64_t forced)
{
    ngx_http_modelgw_load_t *load = data;

    uint64_t               ends;
    ngx_int_t              rc;
    ngx_uint_t             window;
    ngx_modelgw_fund_t     fund;
    ngx_modelgw_ledger_t  *ledger;

    ledger = load->mmcf->ledger;

    if (name->len && name->data[0] == '#') {
        rc = ngx_http_modelgw_load_budget(load, name, &fund, &window, &ends);

    } else {
        window = NGX_MODELGW_WINDOW_NONE;
        ends = 0;
        fund.kind = NGX_MODELGW_FUND_ACCOUNT;
        rc = ngx_modelgw_ledger_account(ledger, name, 0, 0, 0, 0, &fund.index);
    }

    if (rc == NGX_OK) {
        ngx_modelgw_lease_load(ledger, &fund, granted, returned, forced,
                               window, ends);
    }

    return NGX_OK;
}


/*
 * Of "#KEY/WINDOW/START": a window that is still on.  The record of the key is
 * made here, the configuration gives it its window later.
 *     NGX_OK
 *     NGX_DECLINED  it is over, or there is no room: the database has it
 */

static ngx_int_t
ngx_http_modelgw_load_budget(ngx_http_modelgw_load_t *load, ngx_str_t *name,
    ngx_modelgw_fund_t *fund, ngx_uint_t *window, uint64_t *ends)
{
    u_char      *p, *start, *last;
    off_t        time;
    size_t       len;
    ngx_str_t    key;
    ngx_time_t  *tp;
    ngx_uint_t   i;

    last = name->data + name->len;

    for (p = last; p > name->data && p[-1] != '/'; p--) { /* void */ }

    start = p;
    time = ngx_atoof(start, last - start);

    if (time == NGX_ERROR || p == name->data) {
        return NGX_DECLINED;
    }

    for (p = start - 1; p > name->data && p[-1] != '/'; p--) { /* void */ }

    len = start - 1 - p;

    for (i = NGX_MODELGW_WINDOW_TOTAL; i > 0; i--) {

        if (ngx_modelgw_windows[i].len == len
            && ngx_memcmp(ngx_modelgw_windows[i].data, p, len) == 0)
        {
            break;
        }
    }

    if (i == NGX_MODELGW_WINDOW_NONE || p < name->data + 2) {
        return NGX_DECLINED;
    }

    tp = ngx_timeofday();
    *window = i;
    *ends = ngx_modelgw_budget_end(i, time);

    if (*ends <= (uint64_t) tp->sec * 1000 + tp->msec) {
        return NGX_DECLINED;
    }

    key.data = name->data + 1;
    key.len = p - 1 - key.data;

    fund->kind = NGX_MODELGW_FUND_BUDGET;

    return (ngx_modelgw_ledger_key(load->mmcf->ledger, &key, &fund->index)
            == NGX_OK)
           ? NGX_OK : NGX_DECLINED;
}


/* what operators have changed */

static ngx_int_t
ngx_http_modelgw_load_changes(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store)
{
    uint64_t  time;

    if (ngx_modelgw_store_last_change(store, &time) != NGX_OK
        || ngx_modelgw_store_closed(store, ngx_http_modelgw_load_closed, load)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_ledger_change_after(load->mmcf->ledger, time);

    return ngx_http_modelgw_zone_keys_load(load->mmcf, store, &load->error,
                                           load->log);
}


static ngx_int_t
ngx_http_modelgw_load_closed(void *data, ngx_str_t *name)
{
    ngx_http_modelgw_load_t *load = data;

    uint32_t               index;
    ngx_modelgw_ledger_t  *ledger;

    ledger = load->mmcf->ledger;

    if (ngx_modelgw_ledger_account(ledger, name, 0, 0, 0, 0, &index)
        == NGX_OK)
    {
        ngx_modelgw_ledger_account_at(ledger, index)->closed = 1;
    }

    return NGX_OK;
}


/*
 * If the ledger can be read but not written, nginx starts, but no call is
 * admitted until a writer has written it.  A lock may be of a process that was
 * just killed: the writer waits for it.
 */

static void
ngx_http_modelgw_load_probe(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t  probed;

    probed = (ngx_modelgw_store_space(store) == NGX_OK);

    if (probed
        && ngx_modelgw_store_probe(store) == NGX_OK
        && ngx_http_modelgw_load_prices(load, store) == NGX_OK)
    {
        return;
    }

    ngx_modelgw_store_error(store, &load->error);

    if (load->error.locked) {
        return;
    }

    if (probed) {
        load->mmcf->shared->unsynced = 1;
    }

    ngx_modelgw_ledger_set_writable(load->mmcf->ledger, 0);

    ngx_log_error(NGX_LOG_ALERT, load->log, 0,
                  NGX_HTTP_MODELGW_CANNOT "%*s",
                  load->error.len, load->error.data);
}


static ngx_int_t
ngx_http_modelgw_load_prices(ngx_http_modelgw_load_t *load,
    ngx_modelgw_store_t *store)
{
    ngx_int_t                   rc;
    ngx_modelgw_store_price_t  *prices;

    prices = ngx_http_modelgw_prices_copy(load->mmcf, load->log);
    if (prices == NULL) {
        return NGX_OK;
    }

    rc = ngx_http_modelgw_prices_store(prices, store, load->mmcf->ledger,
                                       load->log);

    ngx_free(prices);

    return rc;
}


static ngx_int_t
ngx_http_modelgw_load_failed(ngx_http_modelgw_load_t *load)
{
    ngx_uint_t  denied;

    denied = (load->error.denied && load->user.name);

    ngx_log_error(NGX_LOG_EMERG, load->log, 0,
                  "\"modelgw_ledger\": %*s%s%s",
                  load->error.len, load->error.data,
                  denied ? ", as the user " : "",
                  denied ? load->user.name : "");

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_modelgw_lock(ngx_http_modelgw_load_t *load)
{
    size_t                         len;
    u_char                        *name;
    ngx_fd_t                       fd;
    ngx_err_t                      err;
    ngx_log_t                     *log;
    ngx_uint_t                     tries;
    ngx_http_modelgw_main_conf_t  *mmcf;

    log = load->log;
    mmcf = load->mmcf;

    len = mmcf->ledger_path.len + sizeof(".lock");

    name = ngx_pnalloc(mmcf->cycle->pool, len);
    if (name == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(name, "%V.lock%Z", &mmcf->ledger_path);

    fd = open((char *) name, O_RDONLY|O_CREAT|O_CLOEXEC, 0600);

    if (fd == NGX_INVALID_FILE) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "\"modelgw_ledger\": " ngx_open_file_n " \"%s\" failed"
                      "%s%s", name, load->user.name ? ", as the user " : "",
                      load->user.name ? load->user.name : "");
        return NGX_ERROR;
    }

    for (tries = 0; flock(fd, LOCK_EX|LOCK_NB) == -1; tries++) {
        err = ngx_errno;

        if (err == NGX_EINTR) {
            continue;
        }

        if (err == NGX_EAGAIN && tries < NGX_HTTP_MODELGW_LOCK_TRIES) {
            ngx_msleep(100);
            continue;
        }

        if (err == NGX_EAGAIN) {
            ngx_log_error(NGX_LOG_EMERG, log, 0,
                          "\"modelgw_ledger %V\" is in use by another nginx, "
                          "or by workers that its master has left behind; a "
                          "binary upgrade must stop the old one first",
                          &mmcf->ledger_path);

        } else {
            ngx_log_error(NGX_LOG_EMERG, log, err,
                          "\"modelgw_ledger\": flock() of \"%s\" failed",
                          name);
        }

        (void) ngx_close_file(fd);

        return NGX_ERROR;
    }

    return ngx_http_modelgw_keep(mmcf, fd, &mmcf->ledger_lock);
}


ngx_int_t
ngx_http_modelgw_zone_relock(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_main_conf_t *old)
{
    if (ngx_http_modelgw_duplicate(mmcf, old->ledger_lock, &mmcf->ledger_lock)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_duplicate(mmcf, old->ledger_file,
                                      &mmcf->ledger_file);
}


static ngx_int_t
ngx_http_modelgw_duplicate(ngx_http_modelgw_main_conf_t *mmcf, ngx_fd_t old,
    ngx_fd_t *fd)
{
    ngx_fd_t  copy;

    if (old == NGX_INVALID_FILE) {
        return NGX_OK;
    }

    copy = fcntl(old, F_DUPFD_CLOEXEC, 0);

    if (copy == NGX_INVALID_FILE) {
        ngx_log_error(NGX_LOG_EMERG, mmcf->cycle->log, ngx_errno,
                      "\"modelgw_ledger\": fcntl(F_DUPFD_CLOEXEC) failed");
        return NGX_ERROR;
    }

    return ngx_http_modelgw_keep(mmcf, copy, fd);
}


static ngx_int_t
ngx_http_modelgw_keep(ngx_http_modelgw_main_conf_t *mmcf, ngx_fd_t fd,
    ngx_fd_t *kept)
{
    ngx_pool_cleanup_t       *cln;
    ngx_pool_cleanup_file_t  *file;

    cln = ngx_pool_cleanup_add(mmcf->cycle->pool,
                               sizeof(ngx_pool_cleanup_file_t));
    if (cln == NULL) {
        (void) ngx_close_file(fd);
        return NGX_ERROR;
    }

    file = cln->data;

    file->fd = fd;
    file->name = mmcf->ledger_path.data;
    file->log = mmcf->cycle->log;

    cln->handler = ngx_pool_cleanup_file;

    *kept = fd;

    return NGX_OK;
}
