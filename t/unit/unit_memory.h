
/*
 * Allocations that fail.  A pool of the unit tests has each allocation from
 * malloc(), so that each can fail.  What is written may need a larger piece of
 * memory at any time, so each write can fail, too.  The linker puts the
 * functions here in the place of the real ones, see unit.mk.
 */


#ifndef _UNIT_MEMORY_H_INCLUDED_
#define _UNIT_MEMORY_H_INCLUDED_


#include "unit.h"

#include "ngx_modelgw_out.h"


/* NGX_ERROR: no memory, also for what was written */

typedef ngx_int_t (*unit_memory_pt)(void *data, ngx_pool_t *pool);


static ngx_uint_t  unit_memory_n;        /* allocations and writes so far */
static ngx_uint_t  unit_memory_failing;  /* the one that fails; 0: none */


void *__real_ngx_alloc(size_t size, ngx_log_t *log);
void *__wrap_ngx_alloc(size_t size, ngx_log_t *log);
void *__real_ngx_memalign(size_t alignment, size_t size, ngx_log_t *log);
void *__wrap_ngx_memalign(size_t alignment, size_t size, ngx_log_t *log);
void __real_ngx_modelgw_out(ngx_modelgw_out_t *out, u_char *p, size_t len);
void __wrap_ngx_modelgw_out(ngx_modelgw_out_t *out, u_char *p, size_t len);
void __real_ngx_modelgw_out_borrowed(ngx_modelgw_out_t *out, u_char *p,
    size_t len);
void __wrap_ngx_modelgw_out_borrowed(ngx_modelgw_out_t *out, u_char *p,
    size_t len);
void __real_ngx_modelgw_out_escaped(ngx_modelgw_out_t *out, u_char *p,
    size_t len);
void __wrap_ngx_modelgw_out_escaped(ngx_modelgw_out_t *out, u_char *p,
    size_t len);


void *
__wrap_ngx_alloc(size_t size, ngx_log_t *log)
{
    return (++unit_memory_n == unit_memory_failing)
           ? NULL : __real_ngx_alloc(size, log);
}


void *
__wrap_ngx_memalign(size_t alignment, size_t size, ngx_log_t *log)
{
    return (++unit_memory_n == unit_memory_failing)
           ? NULL : __real_ngx_memalign(alignment, size, log);
}


static ngx_inline void
unit_memory_write(ngx_modelgw_out_t *out, size_t len)
{
    if (len && !out->failed && ++unit_memory_n == unit_memory_failing) {
        out->failed = 1;
    }
}


void
__wrap_ngx_modelgw_out(ngx_modelgw_out_t *out, u_char *p, size_t len)
{
    unit_memory_write(out, len);
    __real_ngx_modelgw_out(out, p, len);
}


void
__wrap_ngx_modelgw_out_borrowed(ngx_modelgw_out_t *out, u_char *p, size_t len)
{
    unit_memory_write(out, len);
    __real_ngx_modelgw_out_borrowed(out, p, len);
}


void
__wrap_ngx_modelgw_out_escaped(ngx_modelgw_out_t *out, u_char *p, size_t len)
{
    unit_memory_write(out, len);
    __real_ngx_modelgw_out_escaped(out, p, len);
}


/*
 * Calls the function once, then once more for each allocation and write that
 * this made, which fails: it must return NGX_ERROR, never a refusal, nor
 * success with something missing.  Returns how many there are.
 */

static ngx_inline ngx_uint_t
unit_memory(unit_memory_pt f, void *data, const char *name)
{
    ngx_int_t    rc;
    ngx_uint_t   n, last;
    ngx_pool_t  *pool;

    last = 0;

    for (n = 0; n <= last; n++) {
        pool = unit_pool_create();

        unit_memory_n = 0;
        unit_memory_failing = n;

        rc = f(data, pool);

        unit_memory_failing = 0;

        if (n == 0) {
            last = unit_memory_n;
        }

        if ((rc == NGX_ERROR) != (n > 0)) {
            fail_msg("%s: %ld without memory, %lu of %lu", name, (long) rc,
                     (unsigned long) n, (unsigned long) last);
        }

        ngx_destroy_pool(pool);
    }

    return last;
}


/* bytes; answers allocate 8192 first */

#define UNIT_MEMORY_LONG  9000


static ngx_inline ngx_uint_t
unit_memory_text(const u_char *p, const u_char *last, size_t *len)
{
    ngx_uint_t  i;

    static const char  *names[] = {
        "\"text\"", "\"thinking\"", "\"signature\"", "\"data\"",
        "\"input\"", "\"output\"", "\"content\"", "\"refusal\"",
        "\"reasoning_content\"", "\"reasoning\"", "\"arguments\"",
        "\"partial_json\"", "\"parameters\"", "\"description\""
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *len = ngx_strlen(names[i]);

        if ((size_t) (last - p) > *len
            && ngx_memcmp(p, names[i], *len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* puts white space at the start of texts and objects; *body is of unit_dup() */

static ngx_inline void
unit_memory_lengthen(u_char **body, size_t *size)
{
    size_t         len;
    u_char        *longer, *dst;
    ngx_uint_t     n;
    const u_char  *p, *last;

    last = *body + *size;

    for (p = *body, n = 0; p < last; p++) {
        n += unit_memory_text(p, last, &len);
    }

    longer = malloc(*size + n * UNIT_MEMORY_LONG + 1);
    assert_non_null(longer);

    p = *body;
    dst = longer;

    while (p < last) {

        if (!unit_memory_text(p, last, &len)) {
            *dst++ = *p++;
            continue;
        }

        dst = ngx_cpymem(dst, p, len);
        p += len;

        while (p < last && (*p == ':' || *p == ' ')) {
            *dst++ = *p++;
        }

        if (p < last && (*p == '"' || *p == '{')) {
            *dst++ = *p++;
            ngx_memset(dst, ' ', UNIT_MEMORY_LONG);
            dst += UNIT_MEMORY_LONG;
        }
    }

    unit_free(*body);

    *size = dst - longer;
    *body = unit_dup(longer, *size);

    free(longer);
}


#endif /* _UNIT_MEMORY_H_INCLUDED_ */
