
/*
 * Accounts: a list of them, and one.
 *
 * Balances are read from shared memory, where they are current, not from the
 * store, which is one flush late and has no holds; but in a cluster, where
 * memory has only what is lent to this node.  The lock is taken for each
 * record: a call waits for one copy, not for the whole list.  Accounts are only
 * ever appended and their names do not change, so names are read without it.
 *
 * What was spent, and the keys that are not in the configuration, are read from
 * the store: those of one account, in a cluster those of a page, else of all
 * accounts at once, since SQLite has no index of calls by account.
 *
 * A list is sorted here, by a number and the id, since balances are not in the
 * store: after the number and the id of its last row the next page begins,
 * whatever was opened meanwhile.  A number that memory does not have is read of
 * all accounts that match, the rest of those of the page only.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store_cluster.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_ACCOUNTS_SIZE    4096  /* bytes allocated at first */
#define NGX_HTTP_MODELGW_ACCOUNTS_TOPUPS  100   /* rows of an account */
#define NGX_HTTP_MODELGW_ACCOUNTS_SPANS   2     /* of time */
#define NGX_HTTP_MODELGW_ACCOUNTS_NAMES   1000  /* asked for at a time */


typedef enum {
    NGX_HTTP_MODELGW_ACCOUNTS_OPENED = 0,
    NGX_HTTP_MODELGW_ACCOUNTS_NAME,

    /* those from here on are by what has to be read of all first */

    NGX_HTTP_MODELGW_ACCOUNTS_BALANCE,
    NGX_HTTP_MODELGW_ACCOUNTS_SPENT
} ngx_http_modelgw_accounts_sort_e;


typedef struct {
    ngx_str_t                      id;
    int64_t                        number;      /* that is sorted by */
    int64_t                        balance;
    int64_t                        held;
    int64_t                        spent[NGX_HTTP_MODELGW_ACCOUNTS_SPANS];
    ngx_uint_t                     keys;
    ngx_uint_t                     closed;
    uint32_t                       index;       /* in the ledger */
} ngx_http_modelgw_accounts_row_t;


typedef struct {
    ngx_http_modelgw_job_t           *job;
    ngx_modelgw_store_t              *store;
    ngx_modelgw_ledger_t             *ledger;
    ngx_http_modelgw_accounts_row_t  *rows;
    ngx_uint_t                        n;
    ngx_uint_t                        cut;      /* more than a page was found */
    ngx_str_t                         names;    /* to be read; len 0: all */
    u_char                           *noted;    /* by index: what is looked for
                                                   is in the note */
    uint32_t                          total;    /* in the ledger */
    ngx_uint_t                        cluster;  /* balances of all nodes */
    ngx_uint_t                        span;     /* that is read */
    uint64_t                          now;      /* seconds since the Epoch */
} ngx_http_modelgw_accounts_t;


static ngx_int_t ngx_http_modelgw_admin_accounts_after(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_admin_accounts_number(u_char *p,
    u_char *last, int64_t *number);
static void ngx_http_modelgw_admin_accounts_init(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store, ngx_http_modelgw_accounts_t *accounts);
static ngx_int_t ngx_http_modelgw_admin_accounts_search(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_int_t ngx_http_modelgw_admin_accounts_notes(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_uint_t ngx_http_modelgw_admin_accounts_match(
    ngx_http_modelgw_accounts_t *accounts,
    ngx_http_modelgw_accounts_row_t *row);
static void ngx_http_modelgw_admin_accounts_add(
    ngx_http_modelgw_accounts_t *accounts,
    ngx_http_modelgw_accounts_row_t *row);
static ngx_int_t ngx_http_modelgw_admin_accounts_order(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_uint_t ngx_http_modelgw_admin_accounts_cut(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_int_t ngx_http_modelgw_admin_accounts_read(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_int_t ngx_http_modelgw_admin_accounts_names(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_int_t ngx_http_modelgw_admin_accounts_balances(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_int_t ngx_http_modelgw_admin_accounts_costs(
    ngx_http_modelgw_accounts_t *accounts, ngx_uint_t span);
static void ngx_http_modelgw_admin_accounts_at(ngx_modelgw_ledger_t *ledger,
    uint32_t index, ngx_http_modelgw_accounts_row_t *row);
static void ngx_http_modelgw_admin_accounts_copy(ngx_modelgw_ledger_t *ledger,
    ngx_http_modelgw_accounts_row_t *row);
static ngx_http_modelgw_accounts_row_t *ngx_http_modelgw_admin_accounts_row(
    ngx_http_modelgw_accounts_t *accounts, uint32_t index);
static ngx_http_modelgw_accounts_row_t *ngx_http_modelgw_admin_accounts_named(
    ngx_http_modelgw_accounts_t *accounts, ngx_str_t *id);
static ngx_int_t ngx_http_modelgw_admin_accounts_balance(void *data,
    ngx_str_t *id, int64_t balance, uint64_t held);
static ngx_int_t ngx_http_modelgw_admin_accounts_spent(void *data,
    ngx_str_t *id, int64_t cost, uint64_t last);
static void ngx_http_modelgw_admin_accounts_keys(
    ngx_http_modelgw_accounts_t *accounts);
static ngx_int_t ngx_http_modelgw_admin_accounts_key(void *data,
    ngx_modelgw_managed_key_t *key);
static ngx_int_t ngx_http_modelgw_admin_accounts_noted(void *data,
    ngx_str_t *id);
static int ngx_libc_cdecl ngx_http_modelgw_admin_accounts_cmp(const void *one,
    const void *two);
static int ngx_libc_cdecl ngx_http_modelgw_admin_accounts_cmp_index(
    const void *one, const void *two);
static void ngx_http_modelgw_admin_accounts_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_accounts_row_t *row);
static void ngx_http_modelgw_admin_accounts_sums(ngx_modelgw_out_t *out,
    ngx_http_modelgw_accounts_row_t *row);


/* in the order of ngx_http_modelgw_accounts_sort_e */

static ngx_conf_enum_t  ngx_http_modelgw_admin_accounts_sorts[] = {
    { ngx_string("opened"), NGX_HTTP_MODELGW_ACCOUNTS_OPENED },
    { ngx_string("name"), NGX_HTTP_MODELGW_ACCOUNTS_NAME },
    { ngx_string("balance"), NGX_HTTP_MODELGW_ACCOUNTS_BALANCE },
    { ngx_string("spent"), NGX_HTTP_MODELGW_ACCOUNTS_SPENT },
    { ngx_null_string, 0 }
};


ngx_http_modelgw_option_t  ngx_http_modelgw_admin_account_params[] = {

    { ngx_string("q"), ngx_http_modelgw_admin_list_text,
      ngx_http_modelgw_job_offset(accounts.q), "1 to 256 bytes", NULL },

    { ngx_string("sort"), ngx_http_modelgw_option_word,
      ngx_http_modelgw_job_offset(accounts.sort),
      "opened, name, balance or spent",
      ngx_http_modelgw_admin_accounts_sorts },

    { ngx_string("limit"), ngx_http_modelgw_admin_list_limit,
      ngx_http_modelgw_job_offset(accounts.limit),
      "a number from 1 to 1000", NULL },

    { ngx_string("after"), ngx_http_modelgw_admin_accounts_after,
      ngx_http_modelgw_job_offset(accounts),
      "the \"next\" of an answer", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


static uint64_t  ngx_http_modelgw_admin_accounts_spans[] = {
    86400000, 30 * 86400000ULL                  /* milliseconds */
};


/* "balance:-12:ID": the order, the number and the id */

static ngx_int_t
ngx_http_modelgw_admin_accounts_after(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_http_modelgw_admin_accounts_t *asked = field;

    u_char     *p, *last;
    ngx_str_t   sort, *id;

    last = value->data + value->len;

    p = ngx_strlchr(value->data, last, ':');
    if (p == NULL) {
        return NGX_DECLINED;
    }

    sort.data = value->data;
    sort.len = p++ - value->data;

    id = &asked->after;
    id->data = ngx_strlchr(p, last, ':');
    if (id->data == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_modelgw_admin_accounts_number(p, id->data++, &asked->number)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    id->len = last - id->data;

    if (!ngx_http_modelgw_conf_id(id)) {
        return NGX_DECLINED;
    }

    return ngx_http_modelgw_option_word_find(
                                        ngx_http_modelgw_admin_accounts_sorts,
                                        &sort, &asked->after_sort);
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_number(u_char *p, u_char *last,
    int64_t *number)
{
    off_t       n;
    ngx_uint_t  negative;

    negative = (p < last && *p == '-');
    p += negative;

    n = ngx_atoof(p, last - p);
    if (n == NGX_ERROR) {
        return NGX_DECLINED;
    }

    *number = negative ? -n : n;

    return NGX_OK;
}


/* The number of an account may be another one since nginx was started again. */

ngx_int_t
ngx_http_modelgw_admin_accounts_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job)
{
    uint32_t                            i;
    ngx_http_modelgw_admin_accounts_t  *asked;

    asked = &job->accounts;

    if (asked->after.len == 0) {
        return NGX_OK;
    }

    if (asked->after_sort == asked->sort
        && ngx_modelgw_ledger_account(job->mmcf->ledger, &asked->after, 0, 0,
                                      0, 0, &i)
           == NGX_OK)
    {
        if (asked->sort == NGX_HTTP_MODELGW_ACCOUNTS_OPENED) {
            asked->number = i;
        }

        if (asked->sort != NGX_HTTP_MODELGW_ACCOUNTS_NAME
            || asked->number == 0)
        {
            return NGX_OK;
        }
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                  "INVALID_FIELD",
                                  "\"after\" must be the \"next\" of an answer "
                                  "with the same \"sort\"");
}


ngx_int_t
ngx_http_modelgw_admin_accounts_list(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_str_t                        *sort;
    ngx_uint_t                        i, more;
    ngx_modelgw_out_t                 out;
    ngx_modelgw_out_piece_t           piece;
    ngx_http_modelgw_accounts_t       accounts;
    ngx_http_modelgw_accounts_row_t  *row;

    ngx_http_modelgw_admin_accounts_init(job, store, &accounts);

    if (ngx_http_modelgw_admin_accounts_search(&accounts) != NGX_OK
        || ngx_http_modelgw_admin_accounts_order(&accounts) != NGX_OK)
    {
        return NGX_ERROR;
    }

    more = ngx_http_modelgw_admin_accounts_cut(&accounts);

    if (ngx_http_modelgw_admin_accounts_read(&accounts) != NGX_OK) {
        return NGX_ERROR;
    }

    row = accounts.rows;

    ngx_qsort(row, accounts.n, sizeof(ngx_http_modelgw_accounts_row_t),
              ngx_http_modelgw_admin_accounts_cmp);

    ngx_modelgw_out_piece(&out, &piece, job->pool,
                          NGX_HTTP_MODELGW_ACCOUNTS_SIZE);
    ngx_modelgw_out_text(&out, "{\"accounts\":[");

    for (i = 0; i < accounts.n; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_admin_accounts_write(&out, &row[i]);
        ngx_http_modelgw_admin_accounts_sums(&out, &row[i]);
        ngx_modelgw_out_text(&out, "}");
    }

    ngx_modelgw_out_text(&out, "]");

    if (more) {
        row = &row[accounts.n - 1];
        sort = &ngx_http_modelgw_admin_accounts_sorts[job->accounts.sort].name;

        ngx_modelgw_out_text(&out, ",\"more\":true,\"next\":\"");
        ngx_modelgw_out(&out, sort->data, sort->len);
        ngx_modelgw_out_text(&out, ":");
        ngx_modelgw_out_number(&out, row->number);
        ngx_modelgw_out_text(&out, ":");
        ngx_modelgw_out_escaped(&out, row->id.data, row->id.len);
        ngx_modelgw_out_text(&out, "\"");
    }

    ngx_modelgw_out_text(&out, "}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


ngx_int_t
ngx_http_modelgw_admin_accounts_get(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_str_t                         note, topups;
    ngx_modelgw_out_t                 out;
    ngx_modelgw_out_piece_t           piece;
    ngx_http_modelgw_accounts_t       accounts;
    ngx_http_modelgw_accounts_row_t   row;

    ngx_http_modelgw_admin_accounts_init(job, store, &accounts);
    ngx_http_modelgw_admin_accounts_at(job->mmcf->ledger, job->account, &row);

    accounts.rows = &row;
    accounts.n = 1;

    if (ngx_http_modelgw_admin_accounts_read(&accounts) != NGX_OK
        || ngx_modelgw_store_topups(store, &row.id,
                                    NGX_HTTP_MODELGW_ACCOUNTS_TOPUPS, &topups,
                                    job->pool)
           != NGX_OK
        || ngx_modelgw_store_note(store, &row.id, &note, job->pool) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_out_piece(&out, &piece, job->pool,
                          NGX_HTTP_MODELGW_ACCOUNTS_SIZE + topups.len);
    ngx_http_modelgw_admin_accounts_write(&out, &row);
    ngx_http_modelgw_admin_accounts_sums(&out, &row);

    if (job->holder) {
        ngx_str_set(&note, "null");
    }

    ngx_modelgw_out_text(&out, ",\"note\":");
    ngx_modelgw_out(&out, note.data, note.len);
    ngx_modelgw_out_text(&out, ",\"topups\":");
    ngx_modelgw_out(&out, topups.data, topups.len);
    ngx_modelgw_out_text(&out, "}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


static void
ngx_http_modelgw_admin_accounts_init(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store, ngx_http_modelgw_accounts_t *accounts)
{
    ngx_memzero(accounts, sizeof(ngx_http_modelgw_accounts_t));

    accounts->job = job;
    accounts->store = store;
    accounts->ledger = job->mmcf->ledger;
    accounts->total = ngx_modelgw_ledger_accounts(accounts->ledger);
    accounts->cluster = (job->mmcf->cluster && !job->local);
    accounts->now = job->filter.now / 1000;
}


/*
 * Those that are looked for.  If they are sorted by what memory has, no more
 * rows are kept than a page may need.
 */

static ngx_int_t
ngx_http_modelgw_admin_accounts_search(ngx_http_modelgw_accounts_t *accounts)
{
    uint32_t                            i;
    ngx_uint_t                          size, read;
    ngx_http_modelgw_accounts_row_t     row;
    ngx_http_modelgw_admin_accounts_t  *asked;

    asked = &accounts->job->accounts;
    read = (asked->sort >= NGX_HTTP_MODELGW_ACCOUNTS_BALANCE);

    size = accounts->total;

    if (asked->limit && !read) {
        size = ngx_min(size, 2 * (asked->limit + 1));
    }

    accounts->rows = ngx_palloc(accounts->job->pool, size
                                  * sizeof(ngx_http_modelgw_accounts_row_t));
    if (accounts->rows == NULL
        || ngx_http_modelgw_admin_accounts_notes(accounts) != NGX_OK)
    {
        return NGX_ERROR;
    }

    i = (asked->after.len && asked->sort == NGX_HTTP_MODELGW_ACCOUNTS_OPENED)
        ? (uint32_t) asked->number + 1 : 0;

    for ( /* void */ ; i < accounts->total; i++) {

        ngx_http_modelgw_admin_accounts_at(accounts->ledger, i, &row);

        if (!ngx_http_modelgw_admin_accounts_match(accounts, &row)) {
            continue;
        }

        if (read) {
            accounts->rows[accounts->n++] = row;
            continue;
        }

        if (asked->sort == NGX_HTTP_MODELGW_ACCOUNTS_OPENED) {

            if (asked->limit && accounts->n > asked->limit) {
                break;
            }

            row.number = i;
        }

        ngx_http_modelgw_admin_accounts_add(accounts, &row);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_notes(ngx_http_modelgw_accounts_t *accounts)
{
    ngx_str_t  *q;

    q = &accounts->job->accounts.q;

    if (q->len == 0) {
        return NGX_OK;
    }

    accounts->noted = ngx_pcalloc(accounts->job->pool, accounts->total);
    if (accounts->noted == NULL) {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_noted(accounts->store, q,
                                   ngx_http_modelgw_admin_accounts_noted,
                                   accounts);
}


static ngx_uint_t
ngx_http_modelgw_admin_accounts_match(ngx_http_modelgw_accounts_t *accounts,
    ngx_http_modelgw_accounts_row_t *row)
{
    ngx_str_t  *q;

    q = &accounts->job->accounts.q;

    return q->len == 0
           || accounts->noted[row->index]
           || memmem(row->id.data, row->id.len, q->data, q->len) != NULL;
}


/*
 * A row that is after the place and not after a whole page.  Whenever there are
 * two pages the second one is dropped.
 */

static void
ngx_http_modelgw_admin_accounts_add(ngx_http_modelgw_accounts_t *accounts,
    ngx_http_modelgw_accounts_row_t *row)
{
    ngx_uint_t                          page;
    ngx_http_modelgw_accounts_row_t     after;
    ngx_http_modelgw_admin_accounts_t  *asked;

    asked = &accounts->job->accounts;
    page = asked->limit + 1;                /* and whether there are more */

    after.number = asked->number;
    after.id = asked->after;

    if ((asked->after.len
         && ngx_http_modelgw_admin_accounts_cmp(row, &after) <= 0)
        || (accounts->cut
            && ngx_http_modelgw_admin_accounts_cmp(row,
                                             &accounts->rows[page - 1]) > 0))
    {
        return;
    }

    accounts->rows[accounts->n++] = *row;

    if (asked->limit && accounts->n == 2 * page) {
        ngx_qsort(accounts->rows, accounts->n,
                  sizeof(ngx_http_modelgw_accounts_row_t),
                  ngx_http_modelgw_admin_accounts_cmp);

        accounts->n = page;
        accounts->cut = 1;
    }
}


/* by a number that has to be read */

static ngx_int_t
ngx_http_modelgw_admin_accounts_order(ngx_http_modelgw_accounts_t *accounts)
{
    ngx_int_t                         rc;
    ngx_uint_t                        i, n, sort;
    ngx_http_modelgw_accounts_row_t  *row;

    sort = accounts->job->accounts.sort;

    if (sort < NGX_HTTP_MODELGW_ACCOUNTS_BALANCE) {
        return NGX_OK;
    }

    if (ngx_http_modelgw_admin_accounts_names(accounts) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = (sort == NGX_HTTP_MODELGW_ACCOUNTS_BALANCE)
         ? ngx_http_modelgw_admin_accounts_balances(accounts)
         : ngx_http_modelgw_admin_accounts_costs(accounts,
                                         NGX_HTTP_MODELGW_ACCOUNTS_SPANS - 1);
    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    n = accounts->n;
    accounts->n = 0;

    for (i = 0; i < n; i++) {
        row = &accounts->rows[i];

        row->number = (sort == NGX_HTTP_MODELGW_ACCOUNTS_BALANCE)
                      ? row->balance
                      : -row->spent[NGX_HTTP_MODELGW_ACCOUNTS_SPANS - 1];

        ngx_http_modelgw_admin_accounts_add(accounts, row);
    }

    return NGX_OK;
}


/* Leaves the rows of the page, in the order of the ledger; 1: there are more */

static ngx_uint_t
ngx_http_modelgw_admin_accounts_cut(ngx_http_modelgw_accounts_t *accounts)
{
    ngx_uint_t  limit;

    limit = accounts->job->accounts.limit;

    if (limit == 0 || accounts->n <= limit) {
        return 0;
    }

    ngx_qsort(accounts->rows, accounts->n,
              sizeof(ngx_http_modelgw_accounts_row_t),
              ngx_http_modelgw_admin_accounts_cmp);

    accounts->n = limit;

    ngx_qsort(accounts->rows, accounts->n,
              sizeof(ngx_http_modelgw_accounts_row_t),
              ngx_http_modelgw_admin_accounts_cmp_index);

    return 1;
}


/* what is not known of the rows yet; they are in the order of the ledger */

static ngx_int_t
ngx_http_modelgw_admin_accounts_read(ngx_http_modelgw_accounts_t *accounts)
{
    ngx_uint_t               i, sort;
    ngx_http_modelgw_job_t  *job;

    job = accounts->job;
    sort = job->accounts.sort;

    if (ngx_http_modelgw_admin_accounts_names(accounts) != NGX_OK) {
        return NGX_ERROR;
    }

    if (sort != NGX_HTTP_MODELGW_ACCOUNTS_BALANCE
        && ngx_http_modelgw_admin_accounts_balances(accounts) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_HTTP_MODELGW_ACCOUNTS_SPANS; i++) {

        if (sort == NGX_HTTP_MODELGW_ACCOUNTS_SPENT
            && i == NGX_HTTP_MODELGW_ACCOUNTS_SPANS - 1)
        {
            break;
        }

        if (ngx_http_modelgw_admin_accounts_costs(accounts, i) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_modelgw_admin_accounts_keys(accounts);

    if (job->mmcf->managed == NULL || accounts->n == 0) {
        return NGX_OK;
    }

    return ngx_modelgw_store_keys(accounts->store, &accounts->names,
                                  accounts->now,
                                  ngx_http_modelgw_admin_accounts_key,
                                  accounts);
}


/* Those that the store is asked for: of many rows all are read at once. */

static ngx_int_t
ngx_http_modelgw_admin_accounts_names(ngx_http_modelgw_accounts_t *accounts)
{
    size_t                            len;
    u_char                           *p;
    ngx_uint_t                        i;
    ngx_http_modelgw_accounts_row_t  *row;

    ngx_str_null(&accounts->names);

    if (accounts->n > (accounts->cluster ? NGX_HTTP_MODELGW_ACCOUNTS_NAMES
                                         : 1))
    {
        return NGX_OK;
    }

    row = accounts->rows;
    len = 0;

    for (i = 0; i < accounts->n; i++) {
        len += row[i].id.len + 1;
    }

    p = ngx_pnalloc(accounts->job->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    accounts->names.data = p;

    for (i = 0; i < accounts->n; i++) {

        if (i) {
            *p++ = ',';
        }

        p = ngx_cpymem(p, row[i].id.data, row[i].id.len);
    }

    accounts->names.len = p - accounts->names.data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_balances(ngx_http_modelgw_accounts_t *accounts)
{
    ngx_uint_t  i;

    for (i = 0; i < accounts->n; i++) {
        ngx_http_modelgw_admin_accounts_copy(accounts->ledger,
                                             &accounts->rows[i]);
    }

    if (!accounts->cluster || accounts->n == 0) {
        return NGX_OK;
    }

    return ngx_modelgw_store_balances(accounts->store, &accounts->names,
                                      ngx_http_modelgw_admin_accounts_balance,
                                      accounts);
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_costs(ngx_http_modelgw_accounts_t *accounts,
    ngx_uint_t span)
{
    uint64_t  start;

    if (accounts->n == 0) {
        return NGX_OK;
    }

    accounts->span = span;
    start = accounts->job->filter.now
            - ngx_http_modelgw_admin_accounts_spans[span];

    return ngx_modelgw_store_spent(accounts->store, NGX_MODELGW_BY_ACCOUNT,
                                   &accounts->names, start,
                                   ngx_http_modelgw_admin_accounts_spent,
                                   accounts);
}


static void
ngx_http_modelgw_admin_accounts_at(ngx_modelgw_ledger_t *ledger,
    uint32_t index, ngx_http_modelgw_accounts_row_t *row)
{
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(ledger, index);

    ngx_memzero(row, sizeof(ngx_http_modelgw_accounts_row_t));

    row->index = index;
    row->id.len = (size_t) a->name.len;
    row->id.data = a->name.data;
}


static void
ngx_http_modelgw_admin_accounts_copy(ngx_modelgw_ledger_t *ledger,
    ngx_http_modelgw_accounts_row_t *row)
{
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(ledger, row->index);

    ngx_modelgw_ledger_lock(ledger);

    row->balance = a->balance;
    row->held = a->held;

    ngx_modelgw_ledger_unlock(ledger);

    row->closed = __atomic_load_n(&a->closed, __ATOMIC_ACQUIRE);
}


/* NULL: it is not one of the rows */

static ngx_http_modelgw_accounts_row_t *
ngx_http_modelgw_admin_accounts_row(ngx_http_modelgw_accounts_t *accounts,
    uint32_t index)
{
    ngx_http_modelgw_accounts_row_t  *rows, row;

    rows = accounts->rows;

    if (index < accounts->n && rows[index].index == index) {
        return &rows[index];
    }

    row.index = index;

    return bsearch(&row, rows, accounts->n,
                   sizeof(ngx_http_modelgw_accounts_row_t),
                   ngx_http_modelgw_admin_accounts_cmp_index);
}


static ngx_http_modelgw_accounts_row_t *
ngx_http_modelgw_admin_accounts_named(ngx_http_modelgw_accounts_t *accounts,
    ngx_str_t *id)
{
    uint32_t  i;

    if (ngx_modelgw_ledger_account(accounts->ledger, id, 0, 0, 0, 0, &i)
        != NGX_OK)
    {
        return NULL;
    }

    return ngx_http_modelgw_admin_accounts_row(accounts, i);
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_balance(void *data, ngx_str_t *id,
    int64_t balance, uint64_t held)
{
    ngx_http_modelgw_accounts_t *accounts = data;

    ngx_http_modelgw_accounts_row_t  *row;

    row = ngx_http_modelgw_admin_accounts_named(accounts, id);

    if (row) {
        row->balance = balance;
        row->held = held;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_spent(void *data, ngx_str_t *id, int64_t cost,
    uint64_t last)
{
    ngx_http_modelgw_accounts_t *accounts = data;

    ngx_http_modelgw_accounts_row_t  *row;

    row = ngx_http_modelgw_admin_accounts_named(accounts, id);

    if (row) {
        row->spent[accounts->span] = cost;
    }

    return NGX_OK;
}


/* those of the configuration */

static void
ngx_http_modelgw_admin_accounts_keys(ngx_http_modelgw_accounts_t *accounts)
{
    ngx_modelgw_key_t                *key;
    ngx_modelgw_keys_t               *keys;
    ngx_modelgw_keys_pos_t            pos;
    ngx_http_modelgw_accounts_row_t  *row;

    keys = accounts->job->mmcf->keys;

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    while (keys && (key = ngx_modelgw_keys_next(keys, &pos)) != NULL) {

        if (key->expires && (uint64_t) key->expires <= accounts->now) {
            continue;
        }

        row = ngx_http_modelgw_admin_accounts_row(accounts,
                                                  key->account_index);
        if (row) {
            row->keys++;
        }
    }
}


/* those of the ledger, which the configuration does not have */

static ngx_int_t
ngx_http_modelgw_admin_accounts_key(void *data,
    ngx_modelgw_managed_key_t *key)
{
    ngx_http_modelgw_accounts_t *accounts = data;

    ngx_str_t                         id, account;
    ngx_modelgw_keys_t               *keys;
    ngx_http_modelgw_accounts_row_t  *row;

    /* these come last */

    if (key->state == NGX_MODELGW_KEY_REVOKED) {
        return NGX_DONE;
    }

    id.len = key->id.len;
    id.data = key->id.data;

    keys = accounts->job->mmcf->keys;

    if (key->state != NGX_MODELGW_KEY_ACTIVE
        || (key->expires && key->expires <= accounts->now)
        || ngx_modelgw_keys_named(keys, &id)
        || ngx_modelgw_keys_find(keys, key->digest))
    {
        return NGX_OK;
    }

    account.len = key->account.len;
    account.data = key->account.data;

    row = ngx_http_modelgw_admin_accounts_named(accounts, &account);

    if (row) {
        row->keys++;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_noted(void *data, ngx_str_t *id)
{
    ngx_http_modelgw_accounts_t *accounts = data;

    uint32_t  i;

    if (ngx_modelgw_ledger_account(accounts->ledger, id, 0, 0, 0, 0, &i)
        == NGX_OK
        && i < accounts->total)
    {
        accounts->noted[i] = 1;
    }

    return NGX_OK;
}


static int ngx_libc_cdecl
ngx_http_modelgw_admin_accounts_cmp(const void *one, const void *two)
{
    const ngx_http_modelgw_accounts_row_t *a = one;
    const ngx_http_modelgw_accounts_row_t *b = two;

    if (a->number != b->number) {
        return (a->number < b->number) ? -1 : 1;
    }

    return (int) ngx_memn2cmp(a->id.data, b->id.data, a->id.len, b->id.len);
}


static int ngx_libc_cdecl
ngx_http_modelgw_admin_accounts_cmp_index(const void *one, const void *two)
{
    const ngx_http_modelgw_accounts_row_t *a = one;
    const ngx_http_modelgw_accounts_row_t *b = two;

    return (a->index > b->index) - (a->index < b->index);
}


static void
ngx_http_modelgw_admin_accounts_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_accounts_row_t *row)
{
    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &row->id);
    ngx_modelgw_out_text(out, ",\"balance\":");
    ngx_modelgw_amount_out(out, row->balance);
    ngx_modelgw_out_text(out, ",\"held\":");
    ngx_modelgw_amount_out(out, row->held);
    ngx_modelgw_out_text(out, ",\"available\":");
    ngx_modelgw_amount_out(out, row->balance - row->held);

    if (row->closed) {
        ngx_modelgw_out_text(out, ",\"state\":\"closed\"");

    } else {
        ngx_modelgw_out_text(out, ",\"state\":\"open\"");
    }
}


static void
ngx_http_modelgw_admin_accounts_sums(ngx_modelgw_out_t *out,
    ngx_http_modelgw_accounts_row_t *row)
{
    ngx_modelgw_out_text(out, ",\"spent_24h\":");
    ngx_modelgw_amount_out(out, row->spent[0]);
    ngx_modelgw_out_text(out, ",\"spent_30d\":");
    ngx_modelgw_amount_out(out, row->spent[1]);
    ngx_modelgw_out_text(out, ",\"keys\":");
    ngx_modelgw_out_number(out, row->keys);
}


void
ngx_http_modelgw_admin_account_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_change_t *change,
    uint32_t index)
{
    ngx_http_modelgw_accounts_row_t  row;

    ngx_http_modelgw_admin_accounts_at(mmcf->ledger, index, &row);
    ngx_http_modelgw_admin_accounts_copy(mmcf->ledger, &row);

    if (mmcf->cluster) {
        row.balance = change->balance;
        row.held = change->held;
    }

    ngx_http_modelgw_admin_accounts_write(out, &row);
}


ngx_int_t
ngx_http_modelgw_admin_accounts_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, uint32_t *index)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    /* an invalid id may have any bytes, so it is not shown */

    if (!ngx_http_modelgw_conf_id(id)) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "No such account");
    }

    if (ngx_modelgw_ledger_account(mmcf->ledger, id, 0, 0, 0, 0, index)
        == NGX_OK)
    {
        return NGX_OK;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                  "No such account: \"%V\"", id);
}


ngx_int_t
ngx_http_modelgw_admin_accounts_find_job(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job)
{
    return ngx_http_modelgw_admin_accounts_find(r, ctx, id, &job->account);
}
