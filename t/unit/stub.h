
/*
 * Stubs for the rest of nginx where floor 0 runs alone: unit tests, fuzzers,
 * benchmarks.  It defines functions, so a program includes it once.
 */


#ifndef _STUB_H_INCLUDED_
#define _STUB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


static ngx_log_t       stub_log;
static ngx_cycle_t     stub_cycle = { .log = &stub_log };

volatile ngx_cycle_t  *ngx_cycle = &stub_cycle;


#if (NGX_HAVE_VARIADIC_MACROS)

void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
}

#else

void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, va_list args)
{
}

#endif


void
ngx_shmtx_lock(ngx_shmtx_t *mtx)
{
}


void
ngx_shmtx_unlock(ngx_shmtx_t *mtx)
{
}


void
ngx_debug_point(void)
{
    abort();
}


static ngx_inline ngx_pool_t *
stub_pool_create(void)
{
    ngx_pagesize = getpagesize();
    ngx_cacheline_size = NGX_CPU_CACHE_LINE;

    return ngx_create_pool(NGX_DEFAULT_POOL_SIZE, &stub_log);
}


#endif /* _STUB_H_INCLUDED_ */
