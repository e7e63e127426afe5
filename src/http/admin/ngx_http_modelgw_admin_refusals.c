
/*
 * GET /refusals: how many requests were refused, by key and by code, since
 * nginx was started.
 *
 * These are the counters of the metrics, added up as for a scrape, without a
 * lock.  Keys are the rows of their table, not those of the configuration, so
 * that a key is listed after it was revoked or removed, too.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_metrics.h"
#include "ngx_modelgw_out.h"

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_REFUSALS_SIZE  4096    /* bytes allocated at first */
#define NGX_HTTP_MODELGW_REFUSALS_ROWS  16      /* the same of rows */

/* index 0 of a request's result and code: it was not refused */

#define NGX_HTTP_MODELGW_REFUSALS_FIRST  1


typedef struct {
    uint64_t      n;                     /* requests that were refused */
    ngx_uint_t    place;                 /* in the order of the tables */
    ngx_str_t     name;                  /* of the key, or of the group */
    uint64_t      results[NGX_MODELGW_METRICS_RESULTS];  /* of a key */
    ngx_uint_t    endpoint;              /* of a group */
    ngx_uint_t    code;                  /* the same */
} ngx_http_modelgw_refusals_row_t;


static ngx_int_t ngx_http_modelgw_refusals_keys(ngx_modelgw_metrics_t *m,
    ngx_array_t *keys, ngx_pool_t *pool);
static ngx_int_t ngx_http_modelgw_refusals_groups(ngx_modelgw_metrics_t *m,
    ngx_array_t *codes, ngx_pool_t *pool);
static ngx_int_t ngx_http_modelgw_refusals_group(ngx_array_t *codes,
    ngx_str_t *name, ngx_modelgw_metrics_group_t *group);
static void ngx_http_modelgw_refusals_name(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, uint32_t index, ngx_str_t *name);
static void ngx_http_modelgw_refusals_sort(ngx_array_t *rows);
static int ngx_libc_cdecl ngx_http_modelgw_refusals_cmp(const void *one,
    const void *two);
static void ngx_http_modelgw_refusals_key(ngx_modelgw_out_t *out,
    ngx_http_modelgw_refusals_row_t *key);
static void ngx_http_modelgw_refusals_code(ngx_modelgw_out_t *out,
    ngx_http_modelgw_refusals_row_t *code);


ngx_int_t
ngx_http_modelgw_admin_refusals_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job)
{
    if (job->mmcf->metrics) {
        return NGX_OK;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                  "Refusals are counted if a location with "
                                  "\"modelgw_metrics\" is configured");
}


ngx_int_t
ngx_http_modelgw_admin_refusals(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t                        i;
    ngx_array_t                       keys, codes;
    ngx_modelgw_out_t                 out;
    ngx_modelgw_metrics_t            *m;
    ngx_modelgw_out_piece_t           piece;
    ngx_http_modelgw_refusals_row_t  *row;

    m = job->mmcf->metrics;

    if (ngx_http_modelgw_refusals_keys(m, &keys, job->pool) != NGX_OK
        || ngx_http_modelgw_refusals_groups(m, &codes, job->pool) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_out_piece(&out, &piece, job->pool,
                          NGX_HTTP_MODELGW_REFUSALS_SIZE);

    ngx_modelgw_out_text(&out, "{\"since\":");
    ngx_modelgw_out_time(&out, ngx_modelgw_metrics_started(m) * 1000);
    ngx_modelgw_out_text(&out, ",\"keys\":[");

    row = keys.elts;

    for (i = 0; i < keys.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_refusals_key(&out, &row[i]);
    }

    ngx_modelgw_out_text(&out, "],\"codes\":[");

    row = codes.elts;

    for (i = 0; i < codes.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_refusals_code(&out, &row[i]);
    }

    ngx_modelgw_out_text(&out, "]}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


/* Sets *keys to those with a refusal, of most of them first. */

static ngx_int_t
ngx_http_modelgw_refusals_keys(ngx_modelgw_metrics_t *m, ngx_array_t *keys,
    ngx_pool_t *pool)
{
    uint64_t                          n;
    uint32_t                          i, nrows;
    ngx_uint_t                        result;
    ngx_modelgw_metrics_key_t         row;
    ngx_http_modelgw_refusals_row_t  *key;

    if (ngx_array_init(keys, pool, NGX_HTTP_MODELGW_REFUSALS_ROWS,
                       sizeof(ngx_http_modelgw_refusals_row_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    nrows = ngx_modelgw_metrics_rows(m, NGX_MODELGW_METRICS_KEYS);

    for (i = 0; i < nrows; i++) {

        ngx_memzero(&row, sizeof(ngx_modelgw_metrics_key_t));
        ngx_modelgw_metrics_sum(m, NGX_MODELGW_METRICS_KEYS, i, &row);

        n = 0;

        for (result = NGX_HTTP_MODELGW_REFUSALS_FIRST;
             result < NGX_MODELGW_METRICS_RESULTS;
             result++)
        {
            n += row.requests[result];
        }

        if (n == 0) {
            continue;
        }

        key = ngx_array_push(keys);
        if (key == NULL) {
            return NGX_ERROR;
        }

        key->n = n;
        key->place = keys->nelts;
        ngx_memcpy(key->results, row.requests, sizeof(key->results));
        ngx_http_modelgw_refusals_name(m, NGX_MODELGW_METRICS_KEYS, i,
                                       &key->name);
    }

    ngx_http_modelgw_refusals_sort(keys);

    return NGX_OK;
}


/* The same of the codes of all groups and endpoints. */

static ngx_int_t
ngx_http_modelgw_refusals_groups(ngx_modelgw_metrics_t *m, ngx_array_t *codes,
    ngx_pool_t *pool)
{
    uint32_t                      i, nrows;
    ngx_str_t                     name;
    ngx_modelgw_metrics_group_t   group;

    if (ngx_array_init(codes, pool, NGX_HTTP_MODELGW_REFUSALS_ROWS,
                       sizeof(ngx_http_modelgw_refusals_row_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    nrows = ngx_modelgw_metrics_rows(m, NGX_MODELGW_METRICS_GROUPS);

    for (i = 0; i < nrows; i++) {

        ngx_memzero(&group, sizeof(ngx_modelgw_metrics_group_t));
        ngx_modelgw_metrics_sum(m, NGX_MODELGW_METRICS_GROUPS, i, &group);

        ngx_http_modelgw_refusals_name(m, NGX_MODELGW_METRICS_GROUPS, i, &name);

        if (ngx_http_modelgw_refusals_group(codes, &name, &group) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_modelgw_refusals_sort(codes);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_refusals_group(ngx_array_t *codes, ngx_str_t *name,
    ngx_modelgw_metrics_group_t *group)
{
    ngx_uint_t                        e, c;
    ngx_http_modelgw_refusals_row_t  *code;

    for (e = 0; e < NGX_MODELGW_METRICS_ENDPOINTS; e++) {

        for (c = NGX_HTTP_MODELGW_REFUSALS_FIRST;
             c < NGX_MODELGW_METRICS_CODES;
             c++)
        {
            if (group->requests[e][c] == 0) {
                continue;
            }

            code = ngx_array_push(codes);
            if (code == NULL) {
                return NGX_ERROR;
            }

            code->n = group->requests[e][c];
            code->place = codes->nelts;
            code->name = *name;
            code->endpoint = e;
            code->code = c;
        }
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_refusals_name(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, uint32_t index, ngx_str_t *name)
{
    if (index == NGX_MODELGW_METRICS_OTHER) {
        ngx_str_set(name, "other");
        return;
    }

    ngx_modelgw_metrics_name(m, table, index, name);
}


static void
ngx_http_modelgw_refusals_sort(ngx_array_t *rows)
{
    ngx_qsort(rows->elts, rows->nelts, sizeof(ngx_http_modelgw_refusals_row_t),
              ngx_http_modelgw_refusals_cmp);
}


static int ngx_libc_cdecl
ngx_http_modelgw_refusals_cmp(const void *one, const void *two)
{
    const ngx_http_modelgw_refusals_row_t  *a, *b;

    a = one;
    b = two;

    if (a->n != b->n) {
        return (a->n < b->n) ? 1 : -1;
    }

    return (a->place < b->place) ? -1 : 1;
}


static void
ngx_http_modelgw_refusals_key(ngx_modelgw_out_t *out,
    ngx_http_modelgw_refusals_row_t *key)
{
    ngx_str_t   *result;
    ngx_uint_t   i;

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &key->name);

    for (i = NGX_HTTP_MODELGW_REFUSALS_FIRST;
         i < NGX_MODELGW_METRICS_RESULTS;
         i++)
    {
        result = &ngx_http_modelgw_count_results[i];

        ngx_modelgw_out_text(out, ",\"");
        ngx_modelgw_out(out, result->data, result->len);
        ngx_modelgw_out_text(out, "\":");
        ngx_modelgw_out_number(out, key->results[i]);
    }

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_http_modelgw_refusals_code(ngx_modelgw_out_t *out,
    ngx_http_modelgw_refusals_row_t *code)
{
    ngx_modelgw_out_text(out, "{\"group\":");
    ngx_modelgw_out_string(out, &code->name);
    ngx_modelgw_out_text(out, ",\"endpoint\":");
    ngx_modelgw_out_string(out,
                           &ngx_http_modelgw_count_endpoints[code->endpoint]);
    ngx_modelgw_out_text(out, ",\"code\":");
    ngx_modelgw_out_string(out, &ngx_http_modelgw_count_codes[code->code]);
    ngx_modelgw_out_text(out, ",\"requests\":");
    ngx_modelgw_out_number(out, code->n);
    ngx_modelgw_out_text(out, "}");
}
