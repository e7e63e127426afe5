
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
 * the store, for all accounts at once: no index of calls has accounts.  A list
 * is sorted here, by a number and the id, since balances are not in the store:
 * after the number and the id of its last row the next page begins, whatever
 * was opened meanwhile.
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


typedef enum {
    NGX_HTTP_MODELGW_ACCOUNTS_OPENED = 0,
    NGX_HTTP_MODELGW_ACCOUNTS_NAME,
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
    ngx_uint_t                     noted;       /* what is looked for */
    ngx_uint_t                     closed;
} ngx_http_modelgw_accounts_row_t;


typedef struct {
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_accounts_row_t  *rows;     /* in the order of the ledger */
    uint32_t                          n;
    ngx_uint_t                        span;     /* that is read */
    uint64_t                          now;      /* seconds since the Epoch */
} ngx_http_modelgw_accounts_t;


static ngx_int_t ngx_http_modelgw_admin_accounts_after(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_admin_accounts_number(u_char *p,
    u_char *last, int64_t *number);
static ngx_int_t ngx_http_modelgw_admin_accounts_read(
    ngx_http_modelgw_job_t *job, ngx_modelgw_store_t *store,
    ngx_http_modelgw_accounts_t *accounts);
static void ngx_http_modelgw_admin_accounts_copy(ngx_modelgw_ledger_t *ledger,
    uint32_t index, ngx_http_modelgw_accounts_row_t *row);
static ngx_http_modelgw_accounts_row_t *ngx_http_modelgw_admin_accounts_row(
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
static ngx_uint_t ngx_http_modelgw_admin_accounts_select(
    ngx_http_modelgw_accounts_t *accounts,
    ngx_http_modelgw_admin_accounts_t *asked);
static int ngx_libc_cdecl ngx_http_modelgw_admin_accounts_cmp(const void *one,
    const void *two);
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
    ngx_uint_t                        i, n, limit;
    ngx_modelgw_out_t                 out;
    ngx_modelgw_out_piece_t           piece;
    ngx_http_modelgw_accounts_t       accounts;
    ngx_http_modelgw_accounts_row_t  *row;

    if (ngx_http_modelgw_admin_accounts_read(job, store, &accounts)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (job->accounts.q.len
        && ngx_modelgw_store_noted(store, &job->accounts.q,
                                   ngx_http_modelgw_admin_accounts_noted,
                                   &accounts)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    n = ngx_http_modelgw_admin_accounts_select(&accounts, &job->accounts);
    limit = job->accounts.limit ? ngx_min(job->accounts.limit, n) : n;

    ngx_modelgw_out_piece(&out, &piece, job->pool,
                          NGX_HTTP_MODELGW_ACCOUNTS_SIZE);
    ngx_modelgw_out_text(&out, "{\"accounts\":[");

    row = accounts.rows;

    for (i = 0; i < limit; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_admin_accounts_write(&out, &row[i]);
        ngx_http_modelgw_admin_accounts_sums(&out, &row[i]);
        ngx_modelgw_out_text(&out, "}");
    }

    ngx_modelgw_out_text(&out, "]");

    if (limit < n) {
        row = &row[limit - 1];
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
    ngx_http_modelgw_accounts_row_t  *row;

    if (ngx_http_modelgw_admin_accounts_read(job, store, &accounts)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    row = &accounts.rows[job->account];

    if (ngx_modelgw_store_topups(store, &row->id,
                                 NGX_HTTP_MODELGW_ACCOUNTS_TOPUPS, &topups,
                                 job->pool)
        != NGX_OK
        || ngx_modelgw_store_note(store, &row->id, &note, job->pool) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_out_piece(&out, &piece, job->pool,
                          NGX_HTTP_MODELGW_ACCOUNTS_SIZE + topups.len);
    ngx_http_modelgw_admin_accounts_write(&out, row);
    ngx_http_modelgw_admin_accounts_sums(&out, row);

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


static ngx_int_t
ngx_http_modelgw_admin_accounts_read(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store, ngx_http_modelgw_accounts_t *accounts)
{
    uint32_t  i;
    uint64_t  start;

    accounts->mmcf = job->mmcf;
    accounts->now = job->filter.now / 1000;
    accounts->n = ngx_modelgw_ledger_accounts(job->mmcf->ledger);
    accounts->rows = ngx_pcalloc(job->pool, accounts->n
                                  * sizeof(ngx_http_modelgw_accounts_row_t));
    if (accounts->rows == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < accounts->n; i++) {
        ngx_http_modelgw_admin_accounts_copy(job->mmcf->ledger, i,
                                             &accounts->rows[i]);
    }

    if (job->mmcf->cluster && !job->local
        && ngx_modelgw_store_balances(store, NULL,
                                      ngx_http_modelgw_admin_accounts_balance,
                                      accounts)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_HTTP_MODELGW_ACCOUNTS_SPANS; i++) {
        accounts->span = i;
        start = job->filter.now - ngx_http_modelgw_admin_accounts_spans[i];

        if (ngx_modelgw_store_spent(store, NGX_MODELGW_BY_ACCOUNT, NULL, start,
                                    ngx_http_modelgw_admin_accounts_spent,
                                    accounts)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_http_modelgw_admin_accounts_keys(accounts);

    if (job->mmcf->managed == NULL) {
        return NGX_OK;
    }

    return ngx_modelgw_store_keys(store, NULL, accounts->now,
                                  ngx_http_modelgw_admin_accounts_key,
                                  accounts);
}


static void
ngx_http_modelgw_admin_accounts_copy(ngx_modelgw_ledger_t *ledger,
    uint32_t index, ngx_http_modelgw_accounts_row_t *row)
{
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(ledger, index);

    ngx_modelgw_ledger_lock(ledger);

    row->balance = a->balance;
    row->held = a->held;

    ngx_modelgw_ledger_unlock(ledger);

    row->id.len = (size_t) a->name.len;
    row->id.data = a->name.data;
    row->closed = __atomic_load_n(&a->closed, __ATOMIC_ACQUIRE);
}


/* NULL: it was opened since the list began */

static ngx_http_modelgw_accounts_row_t *
ngx_http_modelgw_admin_accounts_row(ngx_http_modelgw_accounts_t *accounts,
    ngx_str_t *id)
{
    uint32_t  i;

    if (ngx_modelgw_ledger_account(accounts->mmcf->ledger, id, 0, 0, 0, 0, &i)
        != NGX_OK
        || i >= accounts->n)
    {
        return NULL;
    }

    return &accounts->rows[i];
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_balance(void *data, ngx_str_t *id,
    int64_t balance, uint64_t held)
{
    ngx_http_modelgw_accounts_t *accounts = data;

    ngx_http_modelgw_accounts_row_t  *row;

    row = ngx_http_modelgw_admin_accounts_row(accounts, id);

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

    row = ngx_http_modelgw_admin_accounts_row(accounts, id);

    if (row) {
        row->spent[accounts->span] = cost;
    }

    return NGX_OK;
}


/* those of the configuration */

static void
ngx_http_modelgw_admin_accounts_keys(ngx_http_modelgw_accounts_t *accounts)
{
    ngx_modelgw_key_t       *key;
    ngx_modelgw_keys_t      *keys;
    ngx_modelgw_keys_pos_t   pos;

    keys = accounts->mmcf->keys;

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    while (keys && (key = ngx_modelgw_keys_next(keys, &pos)) != NULL) {

        if (key->account_index < accounts->n
            && (key->expires == 0
                || (uint64_t) key->expires > accounts->now))
        {
            accounts->rows[key->account_index].keys++;
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

    keys = accounts->mmcf->keys;

    if (key->state != NGX_MODELGW_KEY_ACTIVE
        || (key->expires && key->expires <= accounts->now)
        || ngx_modelgw_keys_named(keys, &id)
        || ngx_modelgw_keys_find(keys, key->digest))
    {
        return NGX_OK;
    }

    account.len = key->account.len;
    account.data = key->account.data;

    row = ngx_http_modelgw_admin_accounts_row(accounts, &account);

    if (row) {
        row->keys++;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_admin_accounts_noted(void *data, ngx_str_t *id)
{
    ngx_http_modelgw_accounts_t *accounts = data;

    ngx_http_modelgw_accounts_row_t  *row;

    row = ngx_http_modelgw_admin_accounts_row(accounts, id);

    if (row) {
        row->noted = 1;
    }

    return NGX_OK;
}


/* Moves the rows of the answer to the front, sorted; returns their number. */

static ngx_uint_t
ngx_http_modelgw_admin_accounts_select(ngx_http_modelgw_accounts_t *accounts,
    ngx_http_modelgw_admin_accounts_t *asked)
{
    uint32_t                          i;
    ngx_str_t                        *q;
    ngx_uint_t                        n;
    ngx_http_modelgw_accounts_row_t  *row, after;

    n = 0;
    q = &asked->q;

    after.number = asked->number;
    after.id = asked->after;

    for (i = 0; i < accounts->n; i++) {
        row = &accounts->rows[i];

        switch (asked->sort) {

        case NGX_HTTP_MODELGW_ACCOUNTS_NAME:
            row->number = 0;
            break;

        case NGX_HTTP_MODELGW_ACCOUNTS_BALANCE:
            row->number = row->balance;
            break;

        case NGX_HTTP_MODELGW_ACCOUNTS_SPENT:
            row->number = -row->spent[NGX_HTTP_MODELGW_ACCOUNTS_SPANS - 1];
            break;

        default: /* NGX_HTTP_MODELGW_ACCOUNTS_OPENED */
            row->number = i;
        }

        if (q->len && !row->noted
            && memmem(row->id.data, row->id.len, q->data, q->len) == NULL)
        {
            continue;
        }

        if (after.id.len
            && ngx_http_modelgw_admin_accounts_cmp(row, &after) <= 0)
        {
            continue;
        }

        accounts->rows[n++] = *row;
    }

    ngx_qsort(accounts->rows, n, sizeof(ngx_http_modelgw_accounts_row_t),
              ngx_http_modelgw_admin_accounts_cmp);

    return n;
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

    ngx_http_modelgw_admin_accounts_copy(mmcf->ledger, index, &row);

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
