
/*
 * The thread of the clerk, beside the exchanger, in the same process: what one
 * node does for all in the database.
 *
 * It has a connection of its own, as its steps may be slow, and exchanges do
 * not wait for them; and it works at most half of the time, so that a database
 * with a lot of old calls has time for calls.  The connection is open while the
 * node is the clerk: others ask from time to time whether they are.
 *
 * It works while the exchanger has joined, and ends at once when that is to
 * stop, not waiting for the step in hand: that is one transaction.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_clerk.h"
#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_pq.h"
#include "ngx_http_modelgw_exchanger.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_CLERK_CONNECT  5000     /* ms */
#define NGX_HTTP_MODELGW_CLERK_DONE     3000     /* ms, until there may be more
                                                    to do */
#define NGX_HTTP_MODELGW_CLERK_OTHER    20000    /* ms, while another node is
                                                    the clerk */
#define NGX_HTTP_MODELGW_CLERK_POLL     50       /* ms */


static ngx_int_t ngx_http_modelgw_clerk_step(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_pq_t **pq, ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_pq_error_t *error);
static void ngx_http_modelgw_clerk_lost(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_clerk_t *clerk);
static void ngx_http_modelgw_clerk_say(ngx_http_modelgw_exchanger_t *e,
    u_char *text, size_t len);
static void ngx_http_modelgw_clerk_close(ngx_modelgw_pq_t **pq);
static void ngx_http_modelgw_clerk_sleep(ngx_http_modelgw_exchanger_t *e,
    uint64_t time);


void *
ngx_http_modelgw_clerk_thread(void *data)
{
    ngx_http_modelgw_exchanger_t *e = data;

    uint64_t                start, pause;
    ngx_int_t               rc;
    ngx_uint_t              failed;
    ngx_modelgw_pq_t       *pq;
    ngx_modelgw_clerk_t     clerk;
    ngx_modelgw_pq_error_t  error;

    pq = NULL;
    failed = 0;

    while (!e->stop) {
        start = ngx_http_modelgw_writer_clock();

        rc = ngx_http_modelgw_clerk_step(e, &pq, &clerk, &error);

        switch (rc) {

        case NGX_AGAIN:
            pause = ngx_http_modelgw_writer_clock() - start;
            break;

        case NGX_BUSY:
            pause = NGX_HTTP_MODELGW_CLERK_POLL;
            break;

        case NGX_DECLINED:
            pause = NGX_HTTP_MODELGW_CLERK_OTHER;
            break;

        default: /* NGX_OK, NGX_ERROR */
            pause = NGX_HTTP_MODELGW_CLERK_DONE;
        }

        if (rc == NGX_ERROR && !failed && !e->stop) {
            ngx_http_modelgw_clerk_say(e, error.data, error.len);
        }

        failed = (rc == NGX_ERROR);

        if (rc == NGX_BUSY || rc == NGX_DECLINED
            || (pq && !ngx_modelgw_pq_alive(pq)))
        {
            ngx_http_modelgw_clerk_close(&pq);
        }

        ngx_http_modelgw_clerk_sleep(e, pause);
    }

    ngx_http_modelgw_clerk_close(&pq);

    return NULL;
}


/*
 * As ngx_modelgw_clerk(); NGX_BUSY: the exchanger has not joined; *pq may be
 * NULL after an error.
 */

static ngx_int_t
ngx_http_modelgw_clerk_step(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_pq_t **pq, ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_pq_error_t *error)
{
    ngx_int_t  rc;

    if (!e->joined) {
        return NGX_BUSY;
    }

    ngx_memory_barrier();

    if (*pq == NULL) {
        ngx_memzero(clerk, sizeof(ngx_modelgw_clerk_t));

        *pq = ngx_modelgw_pq_connect(&e->conf, NGX_HTTP_MODELGW_CLERK_CONNECT,
                                     &e->stop, error);
        if (*pq == NULL) {
            return NGX_ERROR;
        }
    }

    clerk->num = e->node->num;
    clerk->cluster = e->x.cluster;
    clerk->keep = e->shared->keep;
    clerk->lost = e->shared->lost;

    rc = ngx_modelgw_clerk(*pq, clerk, error);

    if (rc != NGX_ERROR && clerk->lost_node) {
        ngx_http_modelgw_clerk_lost(e, clerk);
    }

    return rc;
}


static void
ngx_http_modelgw_clerk_lost(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_clerk_t *clerk)
{
    u_char  *p, *q, text[NGX_MODELGW_STORE_ERROR],
            amount[NGX_MODELGW_AMOUNT_LEN];

    q = ngx_modelgw_amount(amount, clerk->taken);

    p = ngx_snprintf(text, sizeof(text), "node %uL is lost, %*s euro that it "
                     "had are taken back", clerk->lost_node, q - amount,
                     amount);

    ngx_http_modelgw_clerk_say(e, text, p - text);
}


static void
ngx_http_modelgw_clerk_say(ngx_http_modelgw_exchanger_t *e, u_char *text,
    size_t len)
{
    ngx_http_modelgw_process_report(e->ledger, e->shared,
                                    NGX_HTTP_MODELGW_LINE_CLUSTER, text, len);
}


static void
ngx_http_modelgw_clerk_close(ngx_modelgw_pq_t **pq)
{
    if (*pq) {
        ngx_modelgw_pq_close(*pq);
        *pq = NULL;
    }
}


static void
ngx_http_modelgw_clerk_sleep(ngx_http_modelgw_exchanger_t *e, uint64_t time)
{
    uint64_t  now, end;

    now = ngx_http_modelgw_writer_clock();
    end = now + time;

    while (now < end && !e->stop) {
        ngx_msleep(ngx_min(end - now, NGX_HTTP_MODELGW_CLERK_POLL));
        now = ngx_http_modelgw_writer_clock();
    }
}
