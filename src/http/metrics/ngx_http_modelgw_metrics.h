
/*
 * Metrics for Prometheus: the location, and what its files share.
 */


#ifndef _NGX_HTTP_MODELGW_METRICS_H_INCLUDED_
#define _NGX_HTTP_MODELGW_METRICS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"


/* metrics.c */

/*
 * modelgw_metrics [keys=N] [accounts=N]: NGX_CONF_OK, NGX_CONF_ERROR (logged)
 * or a text that nginx logs.
 */
char *ngx_http_modelgw_set_metrics(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * Checks the location in cf->ctx after it has been merged.
 *     NGX_CONF_OK, NGX_CONF_ERROR (logged)
 */
char *ngx_http_modelgw_metrics_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf);


/* scrape.c: how many keys and accounts have series at most: job->data */

typedef struct {
    ngx_uint_t           keys;
    ngx_uint_t           accounts;
} ngx_http_modelgw_scrape_limits_t;

/* The handler of the job, of the type ngx_http_modelgw_job_pt. */
ngx_int_t ngx_http_modelgw_scrape(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);


/* scrape_text.c */

#define NGX_HTTP_MODELGW_SCRAPE_WAITS  3

typedef struct {
    ngx_str_t                     name;
    ngx_uint_t                    configured;
    int64_t                       calls;         /* in flight */
    ngx_modelgw_metrics_group_t   row;
} ngx_http_modelgw_scrape_group_t;


typedef struct {
    ngx_str_t                     group;
    ngx_str_t                     id;
    ngx_str_t                     owner;
    ngx_modelgw_metrics_model_t   row;
} ngx_http_modelgw_scrape_model_t;


typedef struct {
    ngx_uint_t                          n;
    ngx_http_modelgw_scrape_model_t    *elts;
} ngx_http_modelgw_scrape_models_t;


typedef struct {
    ngx_modelgw_key_t            *key;
    ngx_uint_t                    limited;       /* limits are set */
    ngx_modelgw_ledger_key_t      limits;
    ngx_modelgw_metrics_key_t     row;
} ngx_http_modelgw_scrape_key_t;


typedef struct {
    ngx_pool_t                         *pool;
    ngx_modelgw_metrics_t              *metrics;
    ngx_modelgw_ledger_t               *ledger;  /* NULL: no keys */
    ngx_http_modelgw_main_conf_t       *mmcf;
    ngx_http_modelgw_scrape_limits_t   *limits;
    ngx_modelgw_metrics_text_t          text;

    ngx_uint_t                          ngroups;
    ngx_http_modelgw_scrape_group_t    *groups;  /* by their index */
    ngx_uint_t                          nrows;
    ngx_http_modelgw_scrape_model_t    *rows;    /* of models, by their index */
    ngx_http_modelgw_scrape_models_t    models;  /* by group and id */
    ngx_http_modelgw_scrape_models_t    owned;   /* by owner and id */
    ngx_uint_t                          nkeys;
    ngx_http_modelgw_scrape_key_t      *keys;    /* those that have series */
    ngx_uint_t                          naccounts; /* the same */

    ngx_modelgw_metrics_ledger_t        row;
    ngx_modelgw_ledger_room_t           used;
    ngx_modelgw_ledger_room_t           max;

    int64_t                             omitted[2]; /* keys, accounts */
    int64_t                             accounts[2]; /* positive, empty */
    int64_t                             balance;
    int64_t                             held;
    int64_t                             writable;
    int64_t                             queue;
    int64_t                             failures;
    int64_t                             dead;
    int64_t                             workers[2]; /* running, leaving */
    int64_t                             config_time;
    int64_t                             config_keys;
    uint64_t                            managed; /* keys in use */
    uint64_t                            managed_max;
    int64_t                             started;

    ngx_modelgw_lease_node_t           *node;    /* NULL: no cluster */
    int64_t                             up;
    int64_t                             passed;  /* ms, since an exchange */
    int64_t                             behind;
    uint64_t                            waits[NGX_HTTP_MODELGW_SCRAPE_WAITS];
                                                 /* lent, 402, 503 */
    int64_t                             lent;
    int64_t                             waiting_claims;
    int64_t                             recalls;
    int64_t                             fenced;
    int64_t                             exchange_failures;
#if (NGX_STAT_STUB)
    int64_t                             active;
    int64_t                             reading;
    int64_t                             writing;
    int64_t                             waiting;
    int64_t                             accepted;
    int64_t                             handled;
    int64_t                             requests;
#endif
} ngx_http_modelgw_scrape_t;


/* Writes the text of all metrics to s->text.out. */
void ngx_http_modelgw_scrape_write(ngx_http_modelgw_scrape_t *s);


#endif /* _NGX_HTTP_MODELGW_METRICS_H_INCLUDED_ */
