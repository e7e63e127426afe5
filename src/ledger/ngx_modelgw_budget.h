
/*
 * Budgets of keys: amounts for a window of the calendar, in UTC.
 */


#ifndef _NGX_MODELGW_BUDGET_H_INCLUDED_
#define _NGX_MODELGW_BUDGET_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


typedef enum {
    NGX_MODELGW_WINDOW_NONE = 0,
    NGX_MODELGW_WINDOW_DAY,
    NGX_MODELGW_WINDOW_WEEK,             /* from Monday */
    NGX_MODELGW_WINDOW_MONTH,
    NGX_MODELGW_WINDOW_TOTAL,            /* without an end */
    NGX_MODELGW_WINDOWS
} ngx_modelgw_window_e;


typedef struct {
    int64_t               limit;         /* nano-euro; 0: no budget */
    ngx_uint_t            window;        /* ngx_modelgw_window_e */
} ngx_modelgw_budget_t;


/* "", "day", "week", "month", "total" */
extern ngx_str_t  ngx_modelgw_windows[];

/*
 * Reads "50.00/month": euro, more than 0, and a window.
 *     NGX_OK        *budget is set
 *     NGX_DECLINED  text is no budget
 */
ngx_int_t ngx_modelgw_budget_parse(ngx_str_t *text,
    ngx_modelgw_budget_t *budget);

/*
 * The first millisecond of the window with this time, and that after its last
 * one; milliseconds since the Epoch.  "total" is from 0 to (uint64_t) -1.
 */
uint64_t ngx_modelgw_budget_start(ngx_uint_t window, uint64_t time);
uint64_t ngx_modelgw_budget_end(ngx_uint_t window, uint64_t time);


#define NGX_MODELGW_BUDGET_DAY  ((uint64_t) 86400000)  /* milliseconds */


/* The longest that a window may be, milliseconds; not for "total". */

static ngx_inline uint64_t
ngx_modelgw_budget_longest(ngx_uint_t window)
{
    static const uint64_t  longest[NGX_MODELGW_WINDOWS] = {
        [NGX_MODELGW_WINDOW_DAY] = NGX_MODELGW_BUDGET_DAY,
        [NGX_MODELGW_WINDOW_WEEK] = 7 * NGX_MODELGW_BUDGET_DAY,
        [NGX_MODELGW_WINDOW_MONTH] = 31 * NGX_MODELGW_BUDGET_DAY
    };

    return longest[window];
}


#endif /* _NGX_MODELGW_BUDGET_H_INCLUDED_ */
