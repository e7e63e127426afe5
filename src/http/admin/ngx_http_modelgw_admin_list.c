
/*
 * Lists: the audit log, and what the configuration has; what all lists share.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_LIST_ROWS  100         /* by default */
#define NGX_HTTP_MODELGW_LIST_MAX   1000
#define NGX_HTTP_MODELGW_LIST_SIZE  4096        /* bytes allocated at first */

/* a model's price is in pico-euro per token */

#define NGX_HTTP_MODELGW_LIST_MEGA  1000        /* nano-euro for a million */


static ngx_int_t ngx_http_modelgw_list_name(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_place(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static void ngx_http_modelgw_list_group(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group);
static void ngx_http_modelgw_list_protocols(ngx_modelgw_out_t *out,
    ngx_uint_t protocol);
static void ngx_http_modelgw_list_models(ngx_modelgw_out_t *out,
    ngx_modelgw_key_t *holder, ngx_http_modelgw_group_t *group,
    ngx_array_t *models, ngx_uint_t *n);
static void ngx_http_modelgw_list_model(ngx_modelgw_out_t *out,
    ngx_modelgw_key_t *holder, ngx_http_modelgw_group_t *group,
    ngx_http_modelgw_model_t *model);
static void ngx_http_modelgw_list_option(ngx_modelgw_out_t *out,
    ngx_http_modelgw_option_t *option, ngx_uint_t value);


ngx_http_modelgw_option_t  ngx_http_modelgw_admin_action_params[] = {

    { ngx_string("actor"), ngx_http_modelgw_list_name,
      ngx_http_modelgw_job_offset(actions.actor),
      "1 to 64 bytes", NULL },

    { ngx_string("target"), ngx_http_modelgw_list_name,
      ngx_http_modelgw_job_offset(actions.target),
      "1 to 64 bytes", NULL },

    { ngx_string("limit"), ngx_http_modelgw_admin_list_limit,
      ngx_http_modelgw_job_offset(actions.limit),
      "a number from 1 to 1000", NULL },

    { ngx_string("after"), ngx_http_modelgw_list_place,
      0,
      "the \"next\" of an answer", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


ngx_int_t
ngx_http_modelgw_admin_list_actions(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    if (job->actions.limit == 0) {
        job->actions.limit = NGX_HTTP_MODELGW_LIST_ROWS;
    }

    return ngx_modelgw_store_actions(store, &job->actions, &job->body,
                                     job->pool);
}


static ngx_int_t
ngx_http_modelgw_list_name(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    ngx_str_t *name = field;

    if (value->len == 0 || value->len > NGX_MODELGW_LEDGER_NAME) {
        return NGX_DECLINED;
    }

    *name = *value;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_list_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *limit = field;

    n = ngx_atoi(value->data, value->len);

    if (n < 1 || n > NGX_HTTP_MODELGW_LIST_MAX) {
        return NGX_DECLINED;
    }

    *limit = n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_list_place(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    off_t      n, node;
    u_char    *p, *last;

    ngx_http_modelgw_job_t *job = field;

    last = value->data + value->len;
    node = 0;

    /* in a cluster "ID-NODE" */

    p = ngx_strlchr(value->data, last, '-');

    if (p) {
        node = ngx_atoof(p + 1, last - (p + 1));
        last = p;
    }

    n = ngx_atoof(value->data, last - value->data);

    if (n < 1 || node < 0 || (p && job->mmcf->cluster == NULL)) {
        return NGX_DECLINED;
    }

    job->actions.after = n;
    job->actions.node = node;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_list_text(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_str_t *text = field;

    if (value->len == 0 || value->len > NGX_MODELGW_LEDGER_NOTE) {
        return NGX_DECLINED;
    }

    *text = *value;

    return NGX_OK;
}


void
ngx_http_modelgw_admin_list_names(ngx_modelgw_out_t *out, ngx_array_t *names)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    if (names == NULL) {
        ngx_modelgw_out_text(out, "null");
        return;
    }

    name = names->elts;

    ngx_modelgw_out_text(out, "[");

    for (i = 0; i < names->nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_out_string(out, &name[i]);
    }

    ngx_modelgw_out_text(out, "]");
}


void
ngx_http_modelgw_admin_list_number(ngx_modelgw_out_t *out, const char *name,
    uint32_t limit, uint64_t n)
{
    ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));

    if (limit) {
        ngx_modelgw_out_number(out, n);

    } else {
        ngx_modelgw_out_text(out, "null");
    }
}


ngx_int_t
ngx_http_modelgw_admin_list_groups(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t                  i;
    ngx_modelgw_out_t           out;
    ngx_modelgw_out_piece_t     piece;
    ngx_http_modelgw_group_t  **group;

    group = job->mmcf->groups.elts;

    ngx_modelgw_out_piece(&out, &piece, job->pool, NGX_HTTP_MODELGW_LIST_SIZE);
    ngx_modelgw_out_text(&out, "{\"groups\":[");

    for (i = 0; i < job->mmcf->groups.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_list_group(&out, group[i]);
    }

    ngx_modelgw_out_text(&out, "]}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


static void
ngx_http_modelgw_list_group(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group)
{
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    ngx_modelgw_out_text(out, "{\"name\":");
    ngx_modelgw_out_string(out, &group->name);
    ngx_modelgw_out_text(out, ",\"upstream\":");
    ngx_modelgw_out_string(out, &group->upstream);
    ngx_http_modelgw_list_protocols(out, group->protocol);
    ngx_modelgw_out_text(out, ",\"families\":");
    ngx_http_modelgw_admin_list_names(out, &group->families);
    ngx_http_modelgw_admin_list_number(out, ",\"rpm\":", group->rpm,
                                       group->rpm);
    ngx_http_modelgw_admin_list_number(out, ",\"tpm\":", group->tpm,
                                       group->tpm);
    ngx_http_modelgw_admin_list_number(out, ",\"concurrency\":",
                                       group->concurrency, group->concurrency);
    ngx_modelgw_out_text(out, ",\"models\":[");

    model = group->models.elts;

    for (i = 0; i < group->models.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_out_string(out, &model[i].id);
    }

    ngx_modelgw_out_text(out, "]}");
}


/* of the APIs that clients may call, as some are translated */

static void
ngx_http_modelgw_list_protocols(ngx_modelgw_out_t *out,
    ngx_uint_t protocol)
{
    ngx_uint_t   i, n;
    const char  *name;

    n = 0;

    ngx_modelgw_out_text(out, ",\"protocols\":[");

    for (i = 0; i < NGX_MODELGW_PROTOCOLS; i++) {

        name = ngx_http_modelgw_verdict_offers(protocol, i);

        if (name) {
            if (n++) {
                ngx_modelgw_out_text(out, ",");
            }

            ngx_modelgw_out_text(out, "\"");
            ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));
            ngx_modelgw_out_text(out, "\"");
        }
    }

    ngx_modelgw_out_text(out, "]");
}


ngx_int_t
ngx_http_modelgw_admin_list_models(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t                  i, n;
    ngx_modelgw_out_t           out;
    ngx_modelgw_out_piece_t     piece;
    ngx_http_modelgw_group_t  **group;

    n = 0;
    group = job->mmcf->groups.elts;

    ngx_modelgw_out_piece(&out, &piece, job->pool, NGX_HTTP_MODELGW_LIST_SIZE);
    ngx_modelgw_out_text(&out, "{\"models\":[");

    for (i = 0; i < job->mmcf->groups.nelts; i++) {
        ngx_http_modelgw_list_models(&out, job->holder, group[i],
                                     &group[i]->models, &n);
        ngx_http_modelgw_list_models(&out, job->holder, group[i],
                                     &group[i]->patterns, &n);
    }

    ngx_modelgw_out_text(&out, "]}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


/* holder: lists what the key may call; NULL: all */

static void
ngx_http_modelgw_list_models(ngx_modelgw_out_t *out, ngx_modelgw_key_t *holder,
    ngx_http_modelgw_group_t *group, ngx_array_t *models, ngx_uint_t *n)
{
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    model = models->elts;

    for (i = 0; i < models->nelts; i++) {

        if (holder
            && (holder->group != group
                || !ngx_http_modelgw_model_enabled(holder, &model[i].id)))
        {
            continue;
        }

        if ((*n)++) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_http_modelgw_list_model(out, holder, group, &model[i]);
    }
}


/* what it can do, and its bounds, are those options that are words or counts */

static void
ngx_http_modelgw_list_model(ngx_modelgw_out_t *out, ngx_modelgw_key_t *holder,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model)
{
    u_char                     *p;
    uint64_t                   *price;
    ngx_uint_t                 *value;
    ngx_http_modelgw_option_t  *option;

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &model->id);
    ngx_modelgw_out_text(out, ",\"group\":");
    ngx_modelgw_out_string(out, &group->name);
    ngx_http_modelgw_list_protocols(out, model->embedding
                                         ? NGX_MODELGW_EMBEDDINGS
                                         : group->protocol
                                           & ~NGX_MODELGW_EMBEDDINGS);
    ngx_modelgw_out_text(out, ",\"upstream_id\":");

    if (holder) {
        ngx_modelgw_out_text(out, "null");

    } else {
        ngx_modelgw_out_string(out, &model->upstream_id);
    }

    for (option = ngx_http_modelgw_model_options; option->name.len; option++) {
        p = (u_char *) model + option->offset;

        if (option->name.data[option->name.len - 1] != '=') {
            continue;
        }

        ngx_modelgw_out_text(out, ",\"");
        ngx_modelgw_out(out, option->name.data, option->name.len - 1);
        ngx_modelgw_out_text(out, "\":");

        if (option->words || option->set == ngx_http_modelgw_option_count) {
            value = (ngx_uint_t *) p;
            ngx_http_modelgw_list_option(out, option, *value);

        } else if (model->priced) {
            price = (uint64_t *) p;
            ngx_modelgw_amount_out(out, *price * NGX_HTTP_MODELGW_LIST_MEGA);

        } else {
            ngx_modelgw_out_text(out, "null");
        }
    }

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_http_modelgw_list_option(ngx_modelgw_out_t *out,
    ngx_http_modelgw_option_t *option, ngx_uint_t value)
{
    ngx_uint_t        n;
    ngx_conf_enum_t  *word;

    if (option->words == NULL) {
        ngx_http_modelgw_admin_list_number(out, "", value, value);
        return;
    }

    if (option->set == ngx_http_modelgw_option_word) {

        for (word = option->words; word->name.len; word++) {
            if (word->value == value) {
                ngx_modelgw_out_string(out, &word->name);
                return;
            }
        }
    }

    n = 0;
    ngx_modelgw_out_text(out, "[");

    for (word = option->words; word->name.len; word++) {

        if (word->value & value) {

            if (n++) {
                ngx_modelgw_out_text(out, ",");
            }

            ngx_modelgw_out_string(out, &word->name);
        }
    }

    ngx_modelgw_out_text(out, "]");
}
