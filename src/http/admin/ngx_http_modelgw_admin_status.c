
/*
 * GET /status: what an operator wants to know first.  All of it is in memory,
 * so that it is answered while the disk hangs.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_STATUS_SIZE  1024   /* bytes allocated at first */


static void ngx_http_modelgw_admin_status_memory(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_admin_status_ledger(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, uint64_t oldest);
static ngx_int_t ngx_http_modelgw_admin_status_cluster(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_pool_t *pool);
static ngx_uint_t ngx_http_modelgw_admin_status_calls(
    ngx_modelgw_ledger_t *ledger, uint64_t *oldest);
static void ngx_http_modelgw_admin_status_group(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group);
static void ngx_http_modelgw_admin_status_member(ngx_modelgw_out_t *out,
    const char *name);
static void ngx_http_modelgw_admin_status_number(ngx_modelgw_out_t *out,
    const char *name, int64_t n);
static void ngx_http_modelgw_admin_status_time(ngx_modelgw_out_t *out,
    const char *name, uint64_t ms);


ngx_int_t
ngx_http_modelgw_admin_status(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t                      i;
    ngx_modelgw_out_t               out;
    ngx_modelgw_out_piece_t         piece;
    ngx_http_modelgw_group_t      **group;
    ngx_http_modelgw_main_conf_t   *mmcf;

    mmcf = job->mmcf;

    ngx_modelgw_out_piece(&out, &piece, job->pool,
                          NGX_HTTP_MODELGW_STATUS_SIZE);

    if (ngx_http_modelgw_health_refuses(mmcf)) {
        job->status = NGX_HTTP_SERVICE_UNAVAILABLE;
        ngx_modelgw_out_text(&out, "{\"ok\":false");

    } else {
        ngx_modelgw_out_text(&out, "{\"ok\":true");
    }

    ngx_modelgw_out_text(&out, ",\"version\":\"" NGX_HTTP_MODELGW_VERSION
                               "\",\"nginx\":\"" NGINX_VERSION "\"");

    ngx_http_modelgw_admin_status_time(&out, "started",
                                       ngx_http_modelgw_health_started()
                                       * (uint64_t) 1000);
    ngx_http_modelgw_admin_status_time(&out, "config_time",
                                       mmcf->config_time * (uint64_t) 1000);

    ngx_http_modelgw_admin_status_memory(&out, mmcf);

    if (mmcf->cluster
        && ngx_http_modelgw_admin_status_cluster(&out, mmcf, job->pool)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_out_text(&out, ",\"groups\":[");

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_admin_status_group(&out, group[i]);
    }

    ngx_modelgw_out_text(&out, "]}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


static void
ngx_http_modelgw_admin_status_memory(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    uint32_t                    running, leaving;
    uint64_t                    oldest;
    ngx_uint_t                  calls;
    ngx_modelgw_ledger_room_t   used, max;

    if (mmcf->ledger == NULL) {
        ngx_modelgw_out_text(out, ",\"workers\":null,\"ledger\":null,"
                                  "\"zone\":null,\"in_flight\":0");
        return;
    }

    ngx_modelgw_ledger_workers(mmcf->ledger, &running, &leaving);
    ngx_modelgw_ledger_used(mmcf->ledger, &used, &max);
    calls = ngx_http_modelgw_admin_status_calls(mmcf->ledger, &oldest);

    ngx_modelgw_out_text(out, ",\"workers\":{\"running\":");
    ngx_modelgw_out_number(out, running);
    ngx_http_modelgw_admin_status_number(out, "leaving", leaving);
    ngx_modelgw_out_text(out, "},\"ledger\":");

    if (ngx_modelgw_ledger_credit(mmcf->ledger)) {
        ngx_http_modelgw_admin_status_ledger(out, mmcf, oldest);

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, ",\"zone\":{\"accounts\":");
    ngx_modelgw_out_number(out, used.accounts);
    ngx_http_modelgw_admin_status_number(out, "accounts_max", max.accounts);
    ngx_http_modelgw_admin_status_number(out, "keys", used.keys);
    ngx_http_modelgw_admin_status_number(out, "keys_max", max.keys);
    ngx_http_modelgw_admin_status_number(out, "calls", used.calls);
    ngx_http_modelgw_admin_status_number(out, "calls_max", max.calls);
    ngx_modelgw_out_text(out, "}");

    ngx_http_modelgw_admin_status_number(out, "in_flight", calls);
}


static void
ngx_http_modelgw_admin_status_ledger(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, uint64_t oldest)
{
    ngx_http_modelgw_shared_t  *shared;

    shared = mmcf->shared;

    ngx_modelgw_out_text(out, "{\"writable\":");

    if (ngx_modelgw_ledger_writable(mmcf->ledger)) {
        ngx_modelgw_out_text(out, "true");

    } else {
        ngx_modelgw_out_text(out, "false");
    }

    ngx_http_modelgw_admin_status_member(out, "path");
    ngx_modelgw_out_string(out, &mmcf->ledger_path);
    ngx_http_modelgw_admin_status_number(out, "size", shared->size);
    ngx_http_modelgw_admin_status_number(out, "queue",
                                ngx_modelgw_ledger_done_count(mmcf->ledger));
    ngx_http_modelgw_admin_status_time(out, "oldest_open", oldest);
    ngx_http_modelgw_admin_status_number(out, "last_flush_ms",
                                         shared->flushed);
    ngx_modelgw_out_text(out, "}");
}


static ngx_int_t
ngx_http_modelgw_admin_status_cluster(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_pool_t *pool)
{
    u_char                    *p, amount[NGX_MODELGW_AMOUNT_LEN];
    uint64_t                   pos, end;
    ngx_str_t                  reason;
    const char                *state;
    ngx_modelgw_lease_node_t  *node;

    static const char  *states[] = {
        [NGX_MODELGW_NODE_NEW] = "new",
        [NGX_MODELGW_NODE_MEMBER] = "member",
        [NGX_MODELGW_NODE_AWAY] = "away",
        [NGX_MODELGW_NODE_OFFLINE] = "offline",
        [NGX_MODELGW_NODE_LEFT] = "left",
        [NGX_MODELGW_NODE_REFUSED] = "refused"
    };

    if (ngx_http_modelgw_node_reason(mmcf, &reason, pool) != NGX_OK) {
        return NGX_ERROR;
    }

    node = ngx_modelgw_node(mmcf->ledger);
    state = states[node->state];
    pos = node->pos;
    end = node->end;

    ngx_modelgw_out_text(out, ",\"cluster\":{\"state\":\"");
    ngx_modelgw_out(out, (u_char *) state, ngx_strlen(state));
    ngx_modelgw_out_text(out, "\"");

    ngx_http_modelgw_admin_status_member(out, "reason");

    if (reason.len) {
        ngx_modelgw_out_string(out, &reason);

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_http_modelgw_admin_status_number(out, "node", node->num);
    ngx_http_modelgw_admin_status_number(out, "live", node->live);
    ngx_http_modelgw_admin_status_number(out, "behind",
                                         end > pos ? end - pos : 0);
    ngx_http_modelgw_admin_status_number(out, "waiting", node->waiting);

    ngx_http_modelgw_admin_status_member(out, "lent");
    p = ngx_modelgw_amount(amount,
                           ngx_http_modelgw_node_lent(mmcf->ledger));
    ngx_modelgw_out_text(out, "\"");
    ngx_modelgw_out(out, amount, p - amount);
    ngx_modelgw_out_text(out, "\"");

    ngx_http_modelgw_admin_status_member(out, "last_exchange_ms");

    if (node->exchanged) {
        ngx_modelgw_out_number(out, ngx_http_modelgw_node_passed(node));

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, "}");

    return NGX_OK;
}


/*
 * Returns the number of calls in flight; *oldest is when the first of them was
 * admitted, 0 if that is not known.  What changes meanwhile may be missed.
 */

static ngx_uint_t
ngx_http_modelgw_admin_status_calls(ngx_modelgw_ledger_t *ledger,
    uint64_t *oldest)
{
    uint64_t             state, started;
    ngx_uint_t           i, n;
    ngx_modelgw_call_t  *call;

    n = 0;
    *oldest = 0;

    for (i = 0; (call = ngx_modelgw_ledger_call_at(ledger, i)) != NULL; i++) {

        state = __atomic_load_n(&call->state, __ATOMIC_ACQUIRE);

        if (state == NGX_MODELGW_CALL_FREE || state == NGX_MODELGW_CALL_DONE) {
            continue;
        }

        n++;

        started = __atomic_load_n(&call->started, __ATOMIC_RELAXED);

        if (started && (*oldest == 0 || started < *oldest)) {
            *oldest = started;
        }
    }

    return n;
}


static void
ngx_http_modelgw_admin_status_group(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group)
{
    u_char                     *p, text[NGX_INT_T_LEN];
    ngx_uint_t                  calls, errors;
    ngx_http_modelgw_health_t  *health;

    health = ngx_http_modelgw_health_of(group);

    ngx_modelgw_out_text(out, "{\"name\":");
    ngx_modelgw_out_string(out, &group->name);

    ngx_http_modelgw_admin_status_time(out, "last_ok",
                                       health ? health->last_ok * 1000 : 0);
    ngx_http_modelgw_admin_status_time(out, "last_error",
                                       health ? health->last_error * 1000 : 0);

    ngx_http_modelgw_admin_status_member(out, "error_ratio_5m");

    calls = 0;
    errors = 0;

    if (health) {
        ngx_http_modelgw_health_sum(health, &calls, &errors);
    }

    if (calls) {
        p = ngx_sprintf(text, "%ui.%03ui", errors / calls,
                        errors * 1000 / calls % 1000);
        ngx_modelgw_out(out, text, p - text);

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_http_modelgw_admin_status_member(ngx_modelgw_out_t *out, const char *name)
{
    ngx_modelgw_out_text(out, ",\"");
    ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));
    ngx_modelgw_out_text(out, "\":");
}


static void
ngx_http_modelgw_admin_status_number(ngx_modelgw_out_t *out, const char *name,
    int64_t n)
{
    ngx_http_modelgw_admin_status_member(out, name);
    ngx_modelgw_out_number(out, n);
}


/* 0: null */

static void
ngx_http_modelgw_admin_status_time(ngx_modelgw_out_t *out, const char *name,
    uint64_t ms)
{
    ngx_http_modelgw_admin_status_member(out, name);

    if (ms) {
        ngx_modelgw_out_time(out, ms);

    } else {
        ngx_modelgw_out_text(out, "null");
    }
}
