
/*
 * Windows of the calendar begin at midnight, UTC, so that each has whole hours
 * and days, by which the store keeps its sums.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_cost.h"


/* the Epoch was a Thursday */

#define NGX_MODELGW_BUDGET_WEEKDAY   3

/* more than a month, and less than two */

#define NGX_MODELGW_BUDGET_NEXT      32


static uint64_t ngx_modelgw_budget_month(uint64_t day);


ngx_str_t  ngx_modelgw_windows[] = {
    ngx_null_string,
    ngx_string("day"),
    ngx_string("week"),
    ngx_string("month"),
    ngx_string("total")
};


ngx_int_t
ngx_modelgw_budget_parse(ngx_str_t *text, ngx_modelgw_budget_t *budget)
{
    u_char      *p, *last;
    int64_t      limit;
    ngx_str_t    amount, *name;
    ngx_uint_t   i;

    last = text->data + text->len;

    p = ngx_strlchr(text->data, last, '/');
    if (p == NULL) {
        return NGX_DECLINED;
    }

    amount.data = text->data;
    amount.len = p - text->data;

    if (ngx_modelgw_amount_parse(&amount, &limit) != NGX_OK || limit == 0) {
        return NGX_DECLINED;
    }

    p++;

    for (i = NGX_MODELGW_WINDOW_DAY; i < NGX_MODELGW_WINDOWS; i++) {
        name = &ngx_modelgw_windows[i];

        if (name->len == (size_t) (last - p)
            && ngx_memcmp(name->data, p, name->len) == 0)
        {
            budget->limit = limit;
            budget->window = i;

            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


uint64_t
ngx_modelgw_budget_start(ngx_uint_t window, uint64_t time)
{
    uint64_t  day;

    day = time / NGX_MODELGW_BUDGET_DAY;

    switch (window) {

    case NGX_MODELGW_WINDOW_DAY:
        break;

    case NGX_MODELGW_WINDOW_WEEK:
        day -= ngx_min((day + NGX_MODELGW_BUDGET_WEEKDAY) % 7, day);
        break;

    case NGX_MODELGW_WINDOW_MONTH:
        day = ngx_modelgw_budget_month(day);
        break;

    default:
        day = 0;
    }

    return day * NGX_MODELGW_BUDGET_DAY;
}


uint64_t
ngx_modelgw_budget_end(ngx_uint_t window, uint64_t time)
{
    uint64_t  day;

    day = time / NGX_MODELGW_BUDGET_DAY;

    switch (window) {

    case NGX_MODELGW_WINDOW_DAY:
        day++;
        break;

    case NGX_MODELGW_WINDOW_WEEK:
        day += 7 - (day + NGX_MODELGW_BUDGET_WEEKDAY) % 7;
        break;

    case NGX_MODELGW_WINDOW_MONTH:
        day = ngx_modelgw_budget_month(ngx_modelgw_budget_month(day)
                                       + NGX_MODELGW_BUDGET_NEXT);
        break;

    default:
        return (uint64_t) -1;
    }

    return day * NGX_MODELGW_BUDGET_DAY;
}


/* the first day of the month of a day; days since the Epoch */

static uint64_t
ngx_modelgw_budget_month(uint64_t day)
{
    time_t     sec;
    struct tm  tm;

    sec = day * (NGX_MODELGW_BUDGET_DAY / 1000);

    ngx_memzero(&tm, sizeof(struct tm));
    tm.tm_mday = 1;

    (void) gmtime_r(&sec, &tm);

    return day - (tm.tm_mday - 1);
}
