
/*
 * Client headers that did not pass because they are not listed.  Once a minute
 * each worker logs their names and counts at "info", so that an operator can
 * see what to add by pass_header.  Values are not logged: they may be secrets.
 *
 * The table is fixed, as is the length of the line: names that do not fit, and
 * those that pass_header does not accept, are counted together.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_UNLISTED           24
#define NGX_HTTP_MODELGW_UNLISTED_INTERVAL  60000    /* milliseconds */


typedef struct {
    ngx_str_t     name;                  /* in lower case */
    ngx_uint_t    count;
    u_char        text[NGX_HTTP_MODELGW_HEADER_LEN];
} ngx_http_modelgw_unlisted_t;


static void ngx_http_modelgw_unlisted_handler(ngx_event_t *ev);


static ngx_http_modelgw_unlisted_t
    ngx_http_modelgw_unlisted[NGX_HTTP_MODELGW_UNLISTED];

static ngx_uint_t   ngx_http_modelgw_unlisted_n;
static ngx_uint_t   ngx_http_modelgw_unlisted_others;
static ngx_event_t  ngx_http_modelgw_unlisted_event;


void
ngx_http_modelgw_unlisted_count(ngx_str_t *name)
{
    ngx_http_modelgw_unlisted_t  *u, *last;

    if (ngx_cycle->log->log_level < NGX_LOG_INFO) {
        return;
    }

    if (!ngx_http_modelgw_unlisted_event.timer_set) {
        ngx_http_modelgw_process_add_timer(&ngx_http_modelgw_unlisted_event,
                                        ngx_http_modelgw_unlisted_handler,
                                        NGX_HTTP_MODELGW_UNLISTED_INTERVAL);
    }

    last = ngx_http_modelgw_unlisted + ngx_http_modelgw_unlisted_n;

    for (u = ngx_http_modelgw_unlisted; u < last; u++) {
        if (ngx_http_modelgw_names_same(&u->name, name)) {
            u->count++;
            return;
        }
    }

    if (ngx_http_modelgw_unlisted_n == NGX_HTTP_MODELGW_UNLISTED
        || !ngx_http_modelgw_conf_word(name, "_-", NGX_HTTP_MODELGW_HEADER_LEN))
    {
        ngx_http_modelgw_unlisted_others++;
        return;
    }

    ngx_strlow(u->text, name->data, name->len);

    u->name.len = name->len;
    u->name.data = u->text;
    u->count = 1;

    ngx_http_modelgw_unlisted_n++;
}


static void
ngx_http_modelgw_unlisted_handler(ngx_event_t *ev)
{
    ngx_http_modelgw_unlisted_log(ngx_cycle->log);
}


void
ngx_http_modelgw_unlisted_log(ngx_log_t *log)
{
    u_char                       *p, *end, text[NGX_MAX_ERROR_STR];
    const char                   *comma;
    ngx_http_modelgw_unlisted_t  *u, *last;

    p = text;
    end = text + NGX_MAX_ERROR_STR;
    comma = "";

    last = ngx_http_modelgw_unlisted + ngx_http_modelgw_unlisted_n;

    for (u = ngx_http_modelgw_unlisted; u < last; u++) {
        p = ngx_slprintf(p, end, "%s\"%V\" %ui", comma, &u->name, u->count);
        comma = ", ";
    }

    if (ngx_http_modelgw_unlisted_others) {
        p = ngx_slprintf(p, end, "%sothers %ui", comma,
                         ngx_http_modelgw_unlisted_others);
    }

    if (p > text) {
        ngx_log_error(NGX_LOG_INFO, log, 0,
                      "client headers not passed to upstreams in the last "
                      "minute: %*s", (size_t) (p - text), text);
    }

    ngx_http_modelgw_unlisted_n = 0;
    ngx_http_modelgw_unlisted_others = 0;
}
