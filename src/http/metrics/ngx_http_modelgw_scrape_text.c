
/*
 * The text of a scrape: the metrics are a table, of which each row writes its
 * samples, or is one number.
 *
 * Metrics named gen_ai_… have the names and bounds of the OpenTelemetry
 * conventions for generative AI, as exporters spell them, with the owner of a
 * model as the provider.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_limit.h"
#include "ngx_modelgw_metrics.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_metrics.h"


#define NGX_HTTP_MODELGW_SCRAPE_EURO  9          /* decimals of nano-euro */


typedef void (*ngx_http_modelgw_scrape_pt)(ngx_http_modelgw_scrape_t *s);


/* what a metric is about: without it the metric is left out */

typedef enum {
    NGX_HTTP_MODELGW_SCRAPE_ALWAYS = 0,
    NGX_HTTP_MODELGW_SCRAPE_LEDGER,
    NGX_HTTP_MODELGW_SCRAPE_CREDIT,
    NGX_HTTP_MODELGW_SCRAPE_CLUSTER
} ngx_http_modelgw_scrape_need_e;


typedef struct {
    const char                         *name;
    const char                         *type;
    const char                         *help;
    ngx_http_modelgw_scrape_need_e      need;
    ngx_http_modelgw_scrape_pt          write;   /* NULL: one number */
    size_t                              offset;  /* of that */
    ngx_uint_t                          decimals;
} ngx_http_modelgw_scrape_metric_t;


static void ngx_http_modelgw_scrape_labels(ngx_http_modelgw_scrape_t *s,
    ngx_http_modelgw_scrape_model_t *model);
static void ngx_http_modelgw_scrape_duration(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_first(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_per_token(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_usage(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_requests(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_calls_total(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_tokens(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_cost(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_responses(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_retries(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_key_labels(ngx_http_modelgw_scrape_t *s,
    ngx_modelgw_key_t *key);
static void ngx_http_modelgw_scrape_key_requests(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_key_tokens(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_key_cost(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_key_limits(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_key_budgets(
    ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_limit(ngx_http_modelgw_scrape_t *s,
    ngx_modelgw_limit_t *limit, uint32_t max, const char *name);
static void ngx_http_modelgw_scrape_ratio(ngx_http_modelgw_scrape_t *s,
    uint64_t used, uint64_t max);
static void ngx_http_modelgw_scrape_word(ngx_http_modelgw_scrape_t *s,
    ngx_uint_t i, const char *name, const char *word);
static void ngx_http_modelgw_scrape_account(ngx_http_modelgw_scrape_t *s,
    ngx_uint_t available);
static void ngx_http_modelgw_scrape_balances(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_available(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_states(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_in_flight(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_flush(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_zone(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_workers(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_exchange(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_since(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_waits(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_omitted(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_build(ngx_http_modelgw_scrape_t *s);


static const char  *ngx_http_modelgw_scrape_types[] = {
    "input", "cache_read", "cache_write", "cache_write_1h", "output",
    "reasoning"
};


#define ngx_http_modelgw_scrape_samples(name, type, help, need, write)        \
    { name, type, help, NGX_HTTP_MODELGW_SCRAPE_##need, write, 0, 0 }

#define ngx_http_modelgw_scrape_number(name, type, help, need, field, n)      \
    { name, type, help, NGX_HTTP_MODELGW_SCRAPE_##need, NULL,                 \
      offsetof(ngx_http_modelgw_scrape_t, field), n }


static ngx_http_modelgw_scrape_metric_t  ngx_http_modelgw_scrape_metrics[] = {

    ngx_http_modelgw_scrape_samples(
        "gen_ai_server_request_duration_seconds", "histogram",
        "Time of a call that was sent, from its first byte to its end.",
        ALWAYS, ngx_http_modelgw_scrape_duration),

    ngx_http_modelgw_scrape_samples(
        "gen_ai_server_time_to_first_token_seconds", "histogram",
        "Time of a stream to its first event.",
        ALWAYS, ngx_http_modelgw_scrape_first),

    ngx_http_modelgw_scrape_samples(
        "gen_ai_server_time_per_output_token_seconds", "histogram",
        "Time of a stream per token of output after the first.",
        ALWAYS, ngx_http_modelgw_scrape_per_token),

    ngx_http_modelgw_scrape_samples(
        "gen_ai_client_token_usage", "histogram",
        "Tokens of a call, cached ones included.",
        ALWAYS, ngx_http_modelgw_scrape_usage),

    ngx_http_modelgw_scrape_samples(
        "modelgw_requests_total", "counter",
        "Requests of gateway locations, by error code.",
        ALWAYS, ngx_http_modelgw_scrape_requests),

    ngx_http_modelgw_scrape_samples(
        "modelgw_calls_total", "counter",
        "Calls that were sent to an upstream, by how they ended.",
        ALWAYS, ngx_http_modelgw_scrape_calls_total),

    ngx_http_modelgw_scrape_samples(
        "modelgw_tokens_total", "counter",
        "Tokens as charged; reasoning is a part of output.",
        ALWAYS, ngx_http_modelgw_scrape_tokens),

    ngx_http_modelgw_scrape_samples(
        "modelgw_cost_euro_total", "counter",
        "Cost of calls.",
        ALWAYS, ngx_http_modelgw_scrape_cost),

    ngx_http_modelgw_scrape_samples(
        "modelgw_upstream_responses_total", "counter",
        "What upstreams answered, each try.",
        ALWAYS, ngx_http_modelgw_scrape_responses),

    ngx_http_modelgw_scrape_samples(
        "modelgw_upstream_retries_total", "counter",
        "Tries after the first one of a request.",
        ALWAYS, ngx_http_modelgw_scrape_retries),

    ngx_http_modelgw_scrape_samples(
        "modelgw_key_requests_total", "counter",
        "Requests of a key, by result.",
        ALWAYS, ngx_http_modelgw_scrape_key_requests),

    ngx_http_modelgw_scrape_samples(
        "modelgw_key_tokens_total", "counter",
        "Tokens of a key, cached ones included.",
        ALWAYS, ngx_http_modelgw_scrape_key_tokens),

    ngx_http_modelgw_scrape_samples(
        "modelgw_key_cost_euro_total", "counter",
        "Cost of a key's calls.",
        ALWAYS, ngx_http_modelgw_scrape_key_cost),

    ngx_http_modelgw_scrape_samples(
        "modelgw_key_limit_used_ratio", "gauge",
        "How much of a limit of a key is used.",
        LEDGER, ngx_http_modelgw_scrape_key_limits),

    ngx_http_modelgw_scrape_samples(
        "modelgw_key_budget_used_ratio", "gauge",
        "How much of the budget of a key is spent or held.",
        CREDIT, ngx_http_modelgw_scrape_key_budgets),

    ngx_http_modelgw_scrape_samples(
        "modelgw_account_balance_euro", "gauge",
        "Balance of an account: top-ups less charges.",
        CREDIT, ngx_http_modelgw_scrape_balances),

    ngx_http_modelgw_scrape_samples(
        "modelgw_account_available_euro", "gauge",
        "Balance of an account less what is held for calls in flight.",
        CREDIT, ngx_http_modelgw_scrape_available),

    ngx_http_modelgw_scrape_samples(
        "modelgw_accounts", "gauge",
        "Accounts, by whether their balance is above 0.",
        CREDIT, ngx_http_modelgw_scrape_states),

    ngx_http_modelgw_scrape_number(
        "modelgw_balance_euro", "gauge",
        "Sum of all balances.",
        CREDIT, balance, NGX_HTTP_MODELGW_SCRAPE_EURO),

    ngx_http_modelgw_scrape_number(
        "modelgw_held_euro", "gauge",
        "Sum of what is held for calls in flight.",
        CREDIT, held, NGX_HTTP_MODELGW_SCRAPE_EURO),

    ngx_http_modelgw_scrape_samples(
        "modelgw_calls_in_flight", "gauge",
        "Calls that have a slot and have not ended.",
        LEDGER, ngx_http_modelgw_scrape_in_flight),

    ngx_http_modelgw_scrape_number(
        "modelgw_ledger_writable", "gauge",
        "Whether the ledger can be written; if not, no call is admitted.",
        CREDIT, writable, 0),

    ngx_http_modelgw_scrape_number(
        "modelgw_ledger_queue_calls", "gauge",
        "Calls that are settled and not durable yet.",
        CREDIT, queue, 0),

    ngx_http_modelgw_scrape_samples(
        "modelgw_ledger_flush_seconds", "histogram",
        "Time to write a batch to the ledger.",
        CREDIT, ngx_http_modelgw_scrape_flush),

    ngx_http_modelgw_scrape_number(
        "modelgw_ledger_failures_total", "counter",
        "Batches that could not be written.",
        CREDIT, failures, 0),

    ngx_http_modelgw_scrape_number(
        "modelgw_calls_of_the_dead_total", "counter",
        "Calls that were settled for a worker that was killed.",
        LEDGER, dead, 0),

    ngx_http_modelgw_scrape_number(
        "modelgw_cluster_up", "gauge",
        "Whether this node reaches the cluster and is a member of it.",
        CLUSTER, up, 0),

    ngx_http_modelgw_scrape_samples(
        "modelgw_cluster_exchange_seconds", "histogram",
        "Time of an exchange with the database.",
        CLUSTER, ngx_http_modelgw_scrape_exchange),

    ngx_http_modelgw_scrape_number(
        "modelgw_cluster_failures_total", "counter",
        "Exchanges that have failed.",
        CLUSTER, exchange_failures, 0),

    ngx_http_modelgw_scrape_samples(
        "modelgw_cluster_seconds_since_exchange", "gauge",
        "Time since the last exchange began.",
        CLUSTER, ngx_http_modelgw_scrape_since),

    ngx_http_modelgw_scrape_number(
        "modelgw_cluster_behind_calls", "gauge",
        "Calls that the database does not have yet.",
        CLUSTER, behind, 0),

    ngx_http_modelgw_scrape_number(
        "modelgw_cluster_lent_euro", "gauge",
        "What is left of what was lent to this node.",
        CLUSTER, lent, NGX_HTTP_MODELGW_SCRAPE_EURO),

    ngx_http_modelgw_scrape_number(
        "modelgw_cluster_waiting", "gauge",
        "Calls that wait for credit.",
        CLUSTER, waiting_claims, 0),

    ngx_http_modelgw_scrape_samples(
        "modelgw_cluster_waits_total", "counter",
        "Calls that have waited for credit, by how it ended.",
        CLUSTER, ngx_http_modelgw_scrape_waits),

    ngx_http_modelgw_scrape_number(
        "modelgw_cluster_recalls_total", "counter",
        "Recalls of credit that this node has answered.",
        CLUSTER, recalls, 0),

    ngx_http_modelgw_scrape_number(
        "modelgw_cluster_fenced_total", "counter",
        "Times that the cluster has gone on without this node.",
        CLUSTER, fenced, 0),

    ngx_http_modelgw_scrape_samples(
        "modelgw_zone_used_ratio", "gauge",
        "How much of the room in shared memory is used.",
        ALWAYS, ngx_http_modelgw_scrape_zone),

    ngx_http_modelgw_scrape_samples(
        "modelgw_metrics_omitted", "gauge",
        "Whether a label is left out since it would have too many values.",
        ALWAYS, ngx_http_modelgw_scrape_omitted),

    ngx_http_modelgw_scrape_number(
        "modelgw_config_time_seconds", "gauge",
        "When the configuration took effect.",
        ALWAYS, config_time, 0),

    ngx_http_modelgw_scrape_number(
        "modelgw_config_keys", "gauge",
        "Keys in the configuration.",
        ALWAYS, config_keys, 0),

    ngx_http_modelgw_scrape_samples(
        "modelgw_workers", "gauge",
        "Workers of this configuration, and those that leave.",
        LEDGER, ngx_http_modelgw_scrape_workers),

    ngx_http_modelgw_scrape_samples(
        "modelgw_build_info", "gauge",
        "Versions, in labels.",
        ALWAYS, ngx_http_modelgw_scrape_build),

    ngx_http_modelgw_scrape_number(
        "process_start_time_seconds", "gauge",
        "When the counters began.",
        ALWAYS, started, 0),

#if (NGX_STAT_STUB)

    ngx_http_modelgw_scrape_number(
        "nginx_connections_active", "gauge", "Client connections.",
        ALWAYS, active, 0),

    ngx_http_modelgw_scrape_number(
        "nginx_connections_reading", "gauge",
        "Connections whose request is read.",
        ALWAYS, reading, 0),

    ngx_http_modelgw_scrape_number(
        "nginx_connections_writing", "gauge",
        "Connections whose request is processed or answered.",
        ALWAYS, writing, 0),

    ngx_http_modelgw_scrape_number(
        "nginx_connections_waiting", "gauge",
        "Connections that wait for a request.",
        ALWAYS, waiting, 0),

    ngx_http_modelgw_scrape_number(
        "nginx_connections_accepted_total", "counter", "Accepted connections.",
        ALWAYS, accepted, 0),

    ngx_http_modelgw_scrape_number(
        "nginx_connections_handled_total", "counter", "Handled connections.",
        ALWAYS, handled, 0),

    ngx_http_modelgw_scrape_number(
        "nginx_http_requests_total", "counter", "Requests of all locations.",
        ALWAYS, requests, 0),

#endif

    { NULL, NULL, NULL, 0, NULL, 0, 0 }
};


void
ngx_http_modelgw_scrape_write(ngx_http_modelgw_scrape_t *s)
{
    ngx_http_modelgw_scrape_metric_t  *metric;

    for (metric = ngx_http_modelgw_scrape_metrics; metric->name; metric++) {

        if (metric->need != NGX_HTTP_MODELGW_SCRAPE_ALWAYS
            && s->ledger == NULL)
        {
            continue;
        }

        if (metric->need == NGX_HTTP_MODELGW_SCRAPE_CREDIT
            && !ngx_modelgw_ledger_credit(s->ledger))
        {
            continue;
        }

        if (metric->need == NGX_HTTP_MODELGW_SCRAPE_CLUSTER
            && s->node == NULL)
        {
            continue;
        }

        ngx_modelgw_metrics_metric(&s->text, metric->name, metric->type,
                                   metric->help);

        if (metric->write) {
            metric->write(s);
            continue;
        }

        ngx_modelgw_metrics_sample(&s->text,
                                   *(int64_t *) ((u_char *) s + metric->offset),
                                   metric->decimals);
    }
}


static void
ngx_http_modelgw_scrape_labels(ngx_http_modelgw_scrape_t *s,
    ngx_http_modelgw_scrape_model_t *model)
{
    ngx_http_modelgw_scrape_word(s, 0, "gen_ai_operation_name", "chat");
    ngx_modelgw_metrics_label(&s->text, 1, "gen_ai_provider_name",
                              &model->owner);
    ngx_modelgw_metrics_label(&s->text, 2, "gen_ai_request_model", &model->id);
}


static void
ngx_http_modelgw_scrape_duration(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t                        i;
    ngx_http_modelgw_scrape_model_t  *model;

    for (i = 0; i < s->owned.n; i++) {
        model = &s->owned.elts[i];

        ngx_http_modelgw_scrape_labels(s, model);
        ngx_modelgw_metrics_histogram(&s->text,
                                      NGX_MODELGW_METRICS_HIST_DURATION,
                                      model->row.duration[0]);

        ngx_http_modelgw_scrape_word(s, 3, "error_type", "_OTHER");
        ngx_modelgw_metrics_histogram(&s->text,
                                      NGX_MODELGW_METRICS_HIST_DURATION,
                                      model->row.duration[1]);
    }
}


static void
ngx_http_modelgw_scrape_first(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < s->owned.n; i++) {
        ngx_http_modelgw_scrape_labels(s, &s->owned.elts[i]);
        ngx_modelgw_metrics_histogram(&s->text, NGX_MODELGW_METRICS_HIST_FIRST,
                                      s->owned.elts[i].row.first);
    }
}


static void
ngx_http_modelgw_scrape_per_token(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < s->owned.n; i++) {
        ngx_http_modelgw_scrape_labels(s, &s->owned.elts[i]);
        ngx_modelgw_metrics_histogram(&s->text,
                                      NGX_MODELGW_METRICS_HIST_PER_TOKEN,
                                      s->owned.elts[i].row.per_token);
    }
}


static void
ngx_http_modelgw_scrape_usage(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i, k;

    for (i = 0; i < s->owned.n; i++) {
        for (k = 0; k < 2; k++) {
            ngx_http_modelgw_scrape_labels(s, &s->owned.elts[i]);
            ngx_http_modelgw_scrape_word(s, 3, "gen_ai_token_type",
                                         k ? "output" : "input");

            ngx_modelgw_metrics_histogram(&s->text,
                                          NGX_MODELGW_METRICS_HIST_USAGE,
                                          s->owned.elts[i].row.usage[k]);
        }
    }
}


static void
ngx_http_modelgw_scrape_requests(ngx_http_modelgw_scrape_t *s)
{
    ngx_str_t                        *endpoint, *code;
    ngx_uint_t                        i, e, c;
    ngx_http_modelgw_scrape_group_t  *group;

    for (i = 0; i < s->ngroups; i++) {
        group = &s->groups[i];

        for (e = 0; e < NGX_MODELGW_METRICS_ENDPOINTS; e++) {
            endpoint = &ngx_http_modelgw_count_endpoints[e];

            ngx_modelgw_metrics_label(&s->text, 0, "endpoint", endpoint);
            ngx_modelgw_metrics_label(&s->text, 1, "group", &group->name);

            for (c = 0; c < NGX_MODELGW_METRICS_CODES; c++) {
                code = &ngx_http_modelgw_count_codes[c];

                ngx_modelgw_metrics_label(&s->text, 2, "code", code);
                ngx_modelgw_metrics_counter(&s->text,
                                            group->row.requests[e][c], 0);
            }
        }
    }
}


static void
ngx_http_modelgw_scrape_calls_total(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t                        i, outcome, end;
    ngx_http_modelgw_scrape_model_t  *model;

    for (i = 0; i < s->models.n; i++) {
        model = &s->models.elts[i];

        ngx_modelgw_metrics_label(&s->text, 0, "group", &model->group);
        ngx_modelgw_metrics_label(&s->text, 1, "model", &model->id);

        for (outcome = 0; outcome < NGX_MODELGW_METRICS_OUTCOMES; outcome++) {
            ngx_http_modelgw_scrape_word(s, 2, "outcome",
                                         ngx_modelgw_outcome_name(outcome));

            for (end = 0; end < NGX_MODELGW_METRICS_ENDS; end++) {
                ngx_http_modelgw_scrape_word(s, 3, "end",
                                            ngx_modelgw_end_name(end));
                ngx_modelgw_metrics_counter(&s->text,
                                            model->row.calls[outcome][end], 0);
            }
        }
    }
}


static void
ngx_http_modelgw_scrape_tokens(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t                        i, type;
    ngx_http_modelgw_scrape_model_t  *model;

    for (i = 0; i < s->models.n; i++) {
        model = &s->models.elts[i];

        ngx_modelgw_metrics_label(&s->text, 0, "group", &model->group);
        ngx_modelgw_metrics_label(&s->text, 1, "model", &model->id);

        for (type = 0; type < NGX_MODELGW_METRICS_TOKENS; type++) {
            ngx_http_modelgw_scrape_word(s, 2, "type",
                                         ngx_http_modelgw_scrape_types[type]);
            ngx_modelgw_metrics_counter(&s->text, model->row.tokens[type], 0);
        }
    }
}


static void
ngx_http_modelgw_scrape_cost(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t                        i;
    ngx_http_modelgw_scrape_model_t  *model;

    for (i = 0; i < s->models.n; i++) {
        model = &s->models.elts[i];

        ngx_modelgw_metrics_label(&s->text, 0, "group", &model->group);
        ngx_modelgw_metrics_label(&s->text, 1, "model", &model->id);
        ngx_modelgw_metrics_counter(&s->text, model->row.cost,
                                    NGX_HTTP_MODELGW_SCRAPE_EURO);
    }
}


static void
ngx_http_modelgw_scrape_responses(ngx_http_modelgw_scrape_t *s)
{
    ngx_str_t   *status;
    ngx_uint_t   i, k;

    for (i = 0; i < s->ngroups; i++) {
        ngx_modelgw_metrics_label(&s->text, 0, "group", &s->groups[i].name);

        for (k = 0; k < NGX_MODELGW_METRICS_STATUSES; k++) {
            status = &ngx_http_modelgw_count_statuses[k];

            ngx_modelgw_metrics_label(&s->text, 1, "status", status);
            ngx_modelgw_metrics_counter(&s->text, s->groups[i].row.responses[k],
                                        0);
        }
    }
}


static void
ngx_http_modelgw_scrape_retries(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t                        i;
    ngx_http_modelgw_scrape_group_t  *group;

    for (i = 0; i < s->ngroups; i++) {
        group = &s->groups[i];

        if (group->configured || group->row.retries) {
            ngx_modelgw_metrics_label(&s->text, 0, "group", &group->name);
            ngx_modelgw_metrics_sample(&s->text, group->row.retries, 0);
        }
    }
}


static void
ngx_http_modelgw_scrape_key_labels(ngx_http_modelgw_scrape_t *s,
    ngx_modelgw_key_t *key)
{
    ngx_modelgw_metrics_label(&s->text, 0, "key", &key->id);
    ngx_modelgw_metrics_label(&s->text, 1, "account", &key->account);
}


static void
ngx_http_modelgw_scrape_key_requests(ngx_http_modelgw_scrape_t *s)
{
    ngx_str_t   *result;
    ngx_uint_t   i, k;

    for (i = 0; i < s->nkeys; i++) {
        ngx_http_modelgw_scrape_key_labels(s, s->keys[i].key);

        for (k = 0; k < NGX_MODELGW_METRICS_RESULTS; k++) {
            result = &ngx_http_modelgw_count_results[k];

            ngx_modelgw_metrics_label(&s->text, 2, "result", result);
            ngx_modelgw_metrics_counter(&s->text, s->keys[i].row.requests[k],
                                        0);
        }
    }
}


static void
ngx_http_modelgw_scrape_key_tokens(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i, k;

    for (i = 0; i < s->nkeys; i++) {
        ngx_http_modelgw_scrape_key_labels(s, s->keys[i].key);

        for (k = 0; k < 2; k++) {
            ngx_http_modelgw_scrape_word(s, 2, "type", k ? "output" : "input");
            ngx_modelgw_metrics_counter(&s->text, s->keys[i].row.tokens[k], 0);
        }
    }
}


static void
ngx_http_modelgw_scrape_key_cost(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < s->nkeys; i++) {
        ngx_http_modelgw_scrape_key_labels(s, s->keys[i].key);
        ngx_modelgw_metrics_counter(&s->text, s->keys[i].row.cost,
                                    NGX_HTTP_MODELGW_SCRAPE_EURO);
    }
}


static void
ngx_http_modelgw_scrape_key_limits(ngx_http_modelgw_scrape_t *s)
{
    uint32_t                   concurrency;
    ngx_uint_t                 i;
    ngx_modelgw_key_t         *key;
    ngx_modelgw_ledger_key_t  *k;
    ngx_http_modelgw_group_t  *group;

    for (i = 0; i < s->nkeys; i++) {
        key = s->keys[i].key;
        group = key->group;

        if (!s->keys[i].limited) {
            continue;
        }

        k = &s->keys[i].limits;

        ngx_modelgw_metrics_label(&s->text, 0, "key", &key->id);

        ngx_http_modelgw_scrape_limit(s, &k->rpm,
                                      key->rpm ? key->rpm : group->rpm, "rpm");
        ngx_http_modelgw_scrape_limit(s, &k->tpm,
                                      key->tpm ? key->tpm : group->tpm, "tpm");

        concurrency = key->concurrency ? key->concurrency : group->concurrency;

        ngx_http_modelgw_scrape_word(s, 1, "limit", "concurrency");
        ngx_http_modelgw_scrape_ratio(s, k->calls, concurrency);
    }
}


static void
ngx_http_modelgw_scrape_key_budgets(ngx_http_modelgw_scrape_t *s)
{
    int64_t                    used;
    uint64_t                   ends;
    ngx_uint_t                 i;
    ngx_modelgw_key_t         *key;
    ngx_modelgw_budget_t       budget;
    ngx_modelgw_ledger_key_t  *k;

    for (i = 0; i < s->nkeys; i++) {
        key = s->keys[i].key;

        k = &s->keys[i].limits;

        if (!s->keys[i].limited) {
            continue;
        }

        ngx_http_modelgw_keys_budget(key, &budget);

        if (budget.limit == 0 || k->window != budget.window) {
            continue;
        }

        used = ngx_modelgw_ledger_budget_used_locked(k,
                                            (uint64_t) time(NULL) * 1000,
                                            &ends);

        ngx_modelgw_metrics_label(&s->text, 0, "key", &key->id);
        ngx_modelgw_metrics_label(&s->text, 1, "window",
                                  &ngx_modelgw_windows[budget.window]);

        ngx_http_modelgw_scrape_ratio(s, used, budget.limit);
    }
}


static void
ngx_http_modelgw_scrape_limit(ngx_http_modelgw_scrape_t *s,
    ngx_modelgw_limit_t *limit, uint32_t max, const char *name)
{
    ngx_modelgw_limit_state_t  state;

    if (max) {
        ngx_modelgw_limit_state(limit, max, ngx_modelgw_ledger_clock(), &state);

        ngx_http_modelgw_scrape_word(s, 1, "limit", name);
        ngx_http_modelgw_scrape_ratio(s, max - state.remaining, max);
    }
}


/* with 4 decimals; nothing, if there is no maximum */

static void
ngx_http_modelgw_scrape_ratio(ngx_http_modelgw_scrape_t *s, uint64_t used,
    uint64_t max)
{
    if (max) {
        ngx_modelgw_metrics_sample(&s->text, (unsigned __int128) used * 10000
                                             / max, 4);
    }
}


static void
ngx_http_modelgw_scrape_word(ngx_http_modelgw_scrape_t *s, ngx_uint_t i,
    const char *name, const char *word)
{
    ngx_str_t  value;

    value.len = ngx_strlen(word);
    value.data = (u_char *) word;

    ngx_modelgw_metrics_label(&s->text, i, name, &value);
}


static void
ngx_http_modelgw_scrape_account(ngx_http_modelgw_scrape_t *s,
    ngx_uint_t available)
{
    int64_t                        value;
    ngx_str_t                      name;
    ngx_uint_t                     i;
    ngx_modelgw_ledger_account_t  *a;

    for (i = 0; i < s->naccounts; i++) {
        a = ngx_modelgw_ledger_account_at(s->ledger, i);

        name.len = a->name.len;
        name.data = a->name.data;

        value = __atomic_load_n(&a->balance, __ATOMIC_RELAXED);

        if (available) {
            value -= __atomic_load_n(&a->held, __ATOMIC_RELAXED);
        }

        ngx_modelgw_metrics_label(&s->text, 0, "account", &name);
        ngx_modelgw_metrics_sample(&s->text, value,
                                   NGX_HTTP_MODELGW_SCRAPE_EURO);
    }
}


static void
ngx_http_modelgw_scrape_balances(ngx_http_modelgw_scrape_t *s)
{
    ngx_http_modelgw_scrape_account(s, 0);
}


static void
ngx_http_modelgw_scrape_available(ngx_http_modelgw_scrape_t *s)
{
    ngx_http_modelgw_scrape_account(s, 1);
}


static void
ngx_http_modelgw_scrape_states(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < 2; i++) {
        ngx_http_modelgw_scrape_word(s, 0, "state", i ? "empty" : "positive");
        ngx_modelgw_metrics_sample(&s->text, s->accounts[i], 0);
    }
}


static void
ngx_http_modelgw_scrape_in_flight(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t                        i;
    ngx_http_modelgw_scrape_group_t  *group;

    for (i = 0; i < s->ngroups; i++) {
        group = &s->groups[i];

        if (group->configured || group->calls) {
            ngx_modelgw_metrics_label(&s->text, 0, "group", &group->name);
            ngx_modelgw_metrics_sample(&s->text, group->calls, 0);
        }
    }
}


static void
ngx_http_modelgw_scrape_flush(ngx_http_modelgw_scrape_t *s)
{
    ngx_modelgw_metrics_histogram(&s->text, NGX_MODELGW_METRICS_HIST_FLUSH,
                                  s->row.flush);
}


static void
ngx_http_modelgw_scrape_zone(ngx_http_modelgw_scrape_t *s)
{
    if (s->ledger) {

        if (ngx_modelgw_ledger_credit(s->ledger)) {
            ngx_http_modelgw_scrape_word(s, 0, "room", "accounts");
            ngx_http_modelgw_scrape_ratio(s, s->used.accounts, s->max.accounts);
        }

        ngx_http_modelgw_scrape_word(s, 0, "room", "keys");
        ngx_http_modelgw_scrape_ratio(s, s->used.keys, s->max.keys);

        ngx_http_modelgw_scrape_word(s, 0, "room", "calls");
        ngx_http_modelgw_scrape_ratio(s, s->used.calls, s->max.calls);
    }

    ngx_http_modelgw_scrape_word(s, 0, "room", "managed_keys");
    ngx_http_modelgw_scrape_ratio(s, s->managed, s->managed_max);

    ngx_http_modelgw_scrape_word(s, 0, "room", "models");
    ngx_http_modelgw_scrape_ratio(s, s->nrows,
                          ngx_modelgw_metrics_max(s->metrics,
                                                  NGX_MODELGW_METRICS_MODELS));
}


static void
ngx_http_modelgw_scrape_workers(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < 2; i++) {
        ngx_http_modelgw_scrape_word(s, 0, "state", i ? "leaving" : "running");
        ngx_modelgw_metrics_sample(&s->text, s->workers[i], 0);
    }
}


static void
ngx_http_modelgw_scrape_exchange(ngx_http_modelgw_scrape_t *s)
{
    uint64_t  cells[NGX_MODELGW_EXCHANGE_BUCKETS + 1];

    ngx_memcpy(cells, s->node->exchanges,
               NGX_MODELGW_EXCHANGE_BUCKETS * sizeof(uint64_t));

    cells[NGX_MODELGW_EXCHANGE_BUCKETS] = s->node->exchange_usec;

    ngx_modelgw_metrics_histogram(&s->text, NGX_MODELGW_METRICS_HIST_EXCHANGE,
                                  cells);
}


/* absent before the first one */

static void
ngx_http_modelgw_scrape_since(ngx_http_modelgw_scrape_t *s)
{
    if (s->node->exchanged) {
        ngx_modelgw_metrics_sample(&s->text, s->passed, 3);
    }
}


static void
ngx_http_modelgw_scrape_waits(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i;

    static const char  *results[] = { "lent", "402", "503" };

    for (i = 0; i < NGX_HTTP_MODELGW_SCRAPE_WAITS; i++) {
        ngx_http_modelgw_scrape_word(s, 0, "result", results[i]);
        ngx_modelgw_metrics_sample(&s->text, (int64_t) s->waits[i], 0);
    }
}


static void
ngx_http_modelgw_scrape_omitted(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < 2; i++) {
        ngx_http_modelgw_scrape_word(s, 0, "label", i ? "account" : "key");
        ngx_modelgw_metrics_sample(&s->text, s->omitted[i], 0);
    }
}


static void
ngx_http_modelgw_scrape_build(ngx_http_modelgw_scrape_t *s)
{
    ngx_http_modelgw_scrape_word(s, 0, "version", NGX_HTTP_MODELGW_VERSION);
    ngx_http_modelgw_scrape_word(s, 1, "nginx_version", NGINX_VERSION);
    ngx_modelgw_metrics_sample(&s->text, 1, 0);
}
