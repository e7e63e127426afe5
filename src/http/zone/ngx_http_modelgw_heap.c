
/*
 * The heap of a worker.
 *
 * A large body is in memory while its call lasts.  glibc gives the end of the
 * heap back to the kernel as soon as 128 KB of it are free, so the next body
 * pays for each page again, which costs more than its scan.  So what is freed
 * is kept, up to NGX_HTTP_MODELGW_HEAP_TRIM bytes, and given back when there
 * was much of it at two looks in a row.
 *
 * Rejected: memory of our own for bodies (nginx allocates its buffers itself,
 * from pools).
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#if defined(__GLIBC__)
#include <malloc.h>

#if __GLIBC_PREREQ(2, 33)
#define NGX_HTTP_MODELGW_HEAP  1
#endif
#endif

#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_HEAP_TRIM  (256 * 1024 * 1024)
#define NGX_HTTP_MODELGW_HEAP_MMAP  (32 * 1024 * 1024)
#define NGX_HTTP_MODELGW_HEAP_PAD   (1024 * 1024)
#define NGX_HTTP_MODELGW_HEAP_KEPT  (64 * 1024 * 1024)  /* at two looks */
#define NGX_HTTP_MODELGW_HEAP_LOOK  10000               /* ms */


#if (NGX_HTTP_MODELGW_HEAP)

static void ngx_http_modelgw_heap_timer(ngx_event_t *ev);
static size_t ngx_http_modelgw_heap_free(void);


static ngx_event_t  ngx_http_modelgw_heap_event;

static size_t       ngx_http_modelgw_heap_most;  /* to be kept */
static ngx_uint_t   ngx_http_modelgw_heap_seen;  /* more, at a look */


void
ngx_http_modelgw_heap_init(void)
{
    (void) mallopt(M_TRIM_THRESHOLD, NGX_HTTP_MODELGW_HEAP_TRIM);
    (void) mallopt(M_MMAP_THRESHOLD, NGX_HTTP_MODELGW_HEAP_MMAP);
    (void) mallopt(M_TOP_PAD, NGX_HTTP_MODELGW_HEAP_PAD);

    ngx_http_modelgw_heap_most = NGX_HTTP_MODELGW_HEAP_KEPT;

    ngx_http_modelgw_process_add_timer(&ngx_http_modelgw_heap_event,
                                       ngx_http_modelgw_heap_timer,
                                       NGX_HTTP_MODELGW_HEAP_LOOK);
}


static void
ngx_http_modelgw_heap_timer(ngx_event_t *ev)
{
    size_t  size;

    size = ngx_http_modelgw_heap_free();

    if (size <= NGX_HTTP_MODELGW_HEAP_KEPT) {
        ngx_http_modelgw_heap_most = NGX_HTTP_MODELGW_HEAP_KEPT;
    }

    if (size <= ngx_http_modelgw_heap_most) {
        ngx_http_modelgw_heap_seen = 0;

    } else if (!ngx_http_modelgw_heap_seen) {
        ngx_http_modelgw_heap_seen = 1;

    } else {
        (void) malloc_trim(0);

        /* pieces of pages between what is in use cannot be given back */

        ngx_http_modelgw_heap_most = NGX_HTTP_MODELGW_HEAP_KEPT
                                     + ngx_http_modelgw_heap_free();
        ngx_http_modelgw_heap_seen = 0;
    }

    ev->log = ngx_cycle->log;

    ngx_add_timer(ev, NGX_HTTP_MODELGW_HEAP_LOOK);
}


/* bytes that are free, and in memory; 0 if that is not known */

static size_t
ngx_http_modelgw_heap_free(void)
{
    int                n;
    FILE              *file;
    size_t             own;
    unsigned long      resident, shared;
    struct mallinfo2   info;

    file = fopen("/proc/self/statm", "re");
    if (file == NULL) {
        return 0;
    }

    n = fscanf(file, "%*u %lu %lu", &resident, &shared);

    (void) fclose(file);

    if (n != 2 || resident < shared) {
        return 0;
    }

    info = mallinfo2();
    own = (resident - shared) * ngx_pagesize;

    return (own > info.uordblks + info.hblkhd)
           ? own - info.uordblks - info.hblkhd : 0;
}

#else

void
ngx_http_modelgw_heap_init(void)
{
}

#endif
