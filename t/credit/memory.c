
/*
 * Allocations that fail, for tests: it is linked with the module's objects, and
 * the linker puts the functions here between the module and nginx's.
 *
 * A test says which one fails in the file MODELGW_MEMORY: a number of eight
 * bytes, 0 for none, and a second one, of the allocations so far.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <sys/mman.h>


typedef struct {
    uint64_t  failing;
    uint64_t  n;
} memory_t;


static ngx_uint_t memory_fails(void);


static memory_t  *memory;


static void __attribute__((constructor))
memory_init(void)
{
    int    fd;
    char  *name;

    name = getenv("MODELGW_MEMORY");
    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDWR);
    if (fd == -1) {
        abort();
    }

    memory = mmap(NULL, sizeof(memory_t), PROT_READ|PROT_WRITE, MAP_SHARED, fd,
                  0);
    if (memory == MAP_FAILED) {
        abort();
    }

    close(fd);
}


static ngx_uint_t
memory_fails(void)
{
    return memory && ++memory->n == memory->failing;
}


#define memory_wrap(name, parameters, arguments)                              \
                                                                              \
    void *__real_##name parameters;                                           \
    void *__wrap_##name parameters;                                           \
                                                                              \
    void *                                                                    \
    __wrap_##name parameters                                                  \
    {                                                                         \
        return memory_fails() ? NULL : __real_##name arguments;               \
    }


memory_wrap(ngx_alloc, (size_t size, ngx_log_t *log), (size, log))
memory_wrap(ngx_calloc, (size_t size, ngx_log_t *log), (size, log))
memory_wrap(ngx_palloc, (ngx_pool_t *pool, size_t size), (pool, size))
memory_wrap(ngx_pnalloc, (ngx_pool_t *pool, size_t size), (pool, size))
memory_wrap(ngx_pcalloc, (ngx_pool_t *pool, size_t size), (pool, size))
memory_wrap(ngx_pstrdup, (ngx_pool_t *pool, ngx_str_t *s), (pool, s))
memory_wrap(ngx_create_temp_buf, (ngx_pool_t *pool, size_t size), (pool, size))
memory_wrap(ngx_alloc_chain_link, (ngx_pool_t *pool), (pool))
memory_wrap(ngx_array_push, (ngx_array_t *a), (a))
memory_wrap(ngx_array_push_n, (ngx_array_t *a, ngx_uint_t n), (a, n))
memory_wrap(ngx_list_push, (ngx_list_t *l), (l))
memory_wrap(ngx_pool_cleanup_add, (ngx_pool_t *pool, size_t size), (pool, size))
memory_wrap(ngx_http_cleanup_add, (ngx_http_request_t *r, size_t size),
            (r, size))
