
/*
 * The worker's tape, for documents that are more than passed on: chat calls
 * that are translated, events of calls for several choices.
 *
 * One serves all calls of a worker, since what is on it is needed for no longer
 * than a function: an allocation of that size for each call has malloc() give
 * memory back to the kernel and take it again.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_modelgw_tape.h"


ngx_modelgw_tape_t *
ngx_http_modelgw_tape(ngx_http_request_t *r)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (mmcf->tape == NULL) {
        mmcf->tape = ngx_palloc(ngx_cycle->pool, sizeof(ngx_modelgw_tape_t));
        if (mmcf->tape == NULL) {
            return NULL;
        }

        ngx_modelgw_tape_init(mmcf->tape, ngx_cycle->pool, mmcf->skip);
    }

    ngx_modelgw_tape_reset(mmcf->tape);

    return mmcf->tape;
}


ngx_int_t
ngx_http_modelgw_tape_index(ngx_http_request_t *r, ngx_str_t *doc,
    ngx_modelgw_tape_t **tape)
{
    ngx_int_t  rc;

    *tape = ngx_http_modelgw_tape(r);
    if (*tape == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_tape_feed(*tape, doc->data, doc->len);

    return (rc == NGX_OK) ? ngx_modelgw_tape_done(*tape, doc->data) : rc;
}
