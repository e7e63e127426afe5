
/*
 * Documents that are read whole and rarely, with yajl: errors of upstreams.
 *
 * yajl is used in this file only, because it needs care.  It never checks what
 * its allocator returns, so it gets an arena that is allocated, and checked,
 * before it starts and is large enough for every document of the length (see
 * below).  It nests without limit, so depth is counted.  It reads a token that
 * was cut again from its start, so a document is fed in one call.
 *
 * It also accepts what RFC 3629 does not (overlong forms and surrogates), and
 * unescapes a lone surrogate to bytes that are not UTF-8.  Text for clients is
 * written by ngx_modelgw_out_string(), which is strict.
 *
 * Rejected: yajl's tree API, which does not limit the depth and has leaked
 * (CVE-2023-33460).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <yajl/yajl_parse.h>

#include "ngx_modelgw_document.h"


#define NGX_MODELGW_DOCUMENT_PATH     256    /* bytes */
#define NGX_MODELGW_DOCUMENT_NOWHERE  ((size_t) -1)

#define NGX_MODELGW_DOCUMENT_ALIGN    16     /* as malloc() does */

/*
 * yajl allocates its structures and a stack of 128 bytes, less than 1 KB; and
 * two buffers, for a string with escapes and for a token that is cut by the end
 * of the document.  Each begins with 2 KB and is doubled until it is larger
 * than the token, so its sizes are less than 4 * len + 4 KB in all.
 */
#define ngx_modelgw_document_arena_size(len)  (2 * (4 * (len) + 4096) + 8192)


typedef struct {
    u_char  *pos;
    u_char  *last;
} ngx_modelgw_document_arena_t;


/*
 * The path of the next value is path[0 .. len).  len is NOWHERE if no slot can
 * have that path: inside of an array, or under a key that is empty, long or has
 * a '.'.  ends[] is the len of each open container.
 */
typedef struct {
    ngx_pool_t                   *pool;
    ngx_modelgw_document_slot_t  *slots;
    u_char                       *dst;

    ngx_uint_t                    depth;
    size_t                        len;
    size_t                        ends[NGX_MODELGW_DOCUMENT_MAX_DEPTH + 1];
    u_char                        path[NGX_MODELGW_DOCUMENT_PATH];

    unsigned                      failed:1;  /* no memory */
} ngx_modelgw_document_reader_t;


static ngx_int_t ngx_modelgw_document_parse(ngx_modelgw_document_arena_t *arena,
    ngx_modelgw_document_reader_t *r, ngx_str_t *doc);
static int ngx_modelgw_document_null(void *ctx);
static int ngx_modelgw_document_boolean(void *ctx, int value);
static int ngx_modelgw_document_number(void *ctx, const char *p, size_t len);
static int ngx_modelgw_document_string(void *ctx, const unsigned char *p,
    size_t len);
static int ngx_modelgw_document_key(void *ctx, const unsigned char *p,
    size_t len);
static int ngx_modelgw_document_map(void *ctx);
static int ngx_modelgw_document_array(void *ctx);
static int ngx_modelgw_document_end(void *ctx);
static int ngx_modelgw_document_open(ngx_modelgw_document_reader_t *r);
static int ngx_modelgw_document_value(ngx_modelgw_document_reader_t *r,
    u_char *p, size_t len);
static void *ngx_modelgw_document_malloc(void *ctx, size_t size);
static void *ngx_modelgw_document_realloc(void *ctx, void *p, size_t size);
static void ngx_modelgw_document_free(void *ctx, void *p);


static yajl_callbacks  ngx_modelgw_document_callbacks = {
    ngx_modelgw_document_null,
    ngx_modelgw_document_boolean,
    NULL,                                /* integers and doubles come to */
    NULL,                                /* the callback of numbers */
    ngx_modelgw_document_number,
    ngx_modelgw_document_string,
    ngx_modelgw_document_map,
    ngx_modelgw_document_key,
    ngx_modelgw_document_end,
    ngx_modelgw_document_array,
    ngx_modelgw_document_end
};


ngx_int_t
ngx_modelgw_document_read(ngx_pool_t *pool, ngx_str_t *doc,
    ngx_modelgw_document_slot_t *slots, void *dst)
{
    size_t                          size;
    u_char                         *p;
    ngx_int_t                       rc;
    ngx_modelgw_document_arena_t    arena;
    ngx_modelgw_document_reader_t   r;

    if (doc->len > NGX_MODELGW_DOCUMENT_MAX_SIZE) {
        return NGX_DECLINED;
    }

    size = ngx_modelgw_document_arena_size(doc->len);

    p = ngx_palloc(pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    arena.pos = ngx_align_ptr(p, NGX_MODELGW_DOCUMENT_ALIGN);
    arena.last = p + size;

    ngx_memzero(&r, sizeof(ngx_modelgw_document_reader_t));

    r.pool = pool;
    r.slots = slots;
    r.dst = dst;

    rc = ngx_modelgw_document_parse(&arena, &r, doc);

    (void) ngx_pfree(pool, p);

    return rc;
}


static ngx_int_t
ngx_modelgw_document_parse(ngx_modelgw_document_arena_t *arena,
    ngx_modelgw_document_reader_t *r, ngx_str_t *doc)
{
    yajl_handle       h;
    yajl_status       status;
    yajl_alloc_funcs  funcs;

    funcs.malloc = ngx_modelgw_document_malloc;
    funcs.realloc = ngx_modelgw_document_realloc;
    funcs.free = ngx_modelgw_document_free;
    funcs.ctx = arena;

    h = yajl_alloc(&ngx_modelgw_document_callbacks, &funcs, r);
    if (h == NULL) {
        return NGX_ERROR;
    }

    status = yajl_parse(h, doc->data, doc->len);

    if (status == yajl_status_ok) {
        status = yajl_complete_parse(h);
    }

    yajl_free(h);

    if (r->failed) {
        return NGX_ERROR;
    }

    return (status == yajl_status_ok) ? NGX_OK : NGX_DECLINED;
}


/* callbacks return 0 to stop: also if the root is no object */

static int
ngx_modelgw_document_null(void *ctx)
{
    ngx_modelgw_document_reader_t  *r = ctx;

    return r->depth != 0;
}


static int
ngx_modelgw_document_boolean(void *ctx, int value)
{
    if (value) {
        return ngx_modelgw_document_value(ctx, (u_char *) "true", 4);
    }

    return ngx_modelgw_document_value(ctx, (u_char *) "false", 5);
}


static int
ngx_modelgw_document_number(void *ctx, const char *p, size_t len)
{
    return ngx_modelgw_document_value(ctx, (u_char *) p, len);
}


static int
ngx_modelgw_document_string(void *ctx, const unsigned char *p, size_t len)
{
    return ngx_modelgw_document_value(ctx, (u_char *) p, len);
}


static int
ngx_modelgw_document_key(void *ctx, const unsigned char *p, size_t len)
{
    ngx_modelgw_document_reader_t  *r = ctx;

    u_char  *last;

    r->len = r->ends[r->depth];

    if (r->len == NGX_MODELGW_DOCUMENT_NOWHERE) {
        return 1;
    }

    if (len == 0
        || len + 1 > NGX_MODELGW_DOCUMENT_PATH - r->len
        || memchr(p, '.', len) != NULL)
    {
        r->len = NGX_MODELGW_DOCUMENT_NOWHERE;
        return 1;
    }

    last = r->path + r->len;

    if (r->len) {
        *last++ = '.';
    }

    last = ngx_cpymem(last, p, len);
    r->len = last - r->path;

    return 1;
}


static int
ngx_modelgw_document_map(void *ctx)
{
    return ngx_modelgw_document_open(ctx);
}


static int
ngx_modelgw_document_array(void *ctx)
{
    ngx_modelgw_document_reader_t  *r = ctx;

    if (r->depth == 0) {
        return 0;
    }

    r->len = NGX_MODELGW_DOCUMENT_NOWHERE;

    return ngx_modelgw_document_open(r);
}


static int
ngx_modelgw_document_end(void *ctx)
{
    ngx_modelgw_document_reader_t  *r = ctx;

    r->depth--;

    return 1;
}


static int
ngx_modelgw_document_open(ngx_modelgw_document_reader_t *r)
{
    if (r->depth == NGX_MODELGW_DOCUMENT_MAX_DEPTH) {
        return 0;
    }

    r->depth++;
    r->ends[r->depth] = r->len;

    return 1;
}


static int
ngx_modelgw_document_value(ngx_modelgw_document_reader_t *r, u_char *p,
    size_t len)
{
    u_char                       *copy;
    ngx_str_t                    *value;
    ngx_modelgw_document_slot_t  *slot;

    if (r->depth == 0) {
        return 0;
    }

    for (slot = r->slots; slot->path.len; slot++) {

        if (slot->path.len != r->len
            || ngx_memcmp(slot->path.data, r->path, r->len) != 0)
        {
            continue;
        }

        copy = ngx_pnalloc(r->pool, len + 1);
        if (copy == NULL) {
            r->failed = 1;
            return 0;
        }

        ngx_memcpy(copy, p, len);

        value = (ngx_str_t *) (r->dst + slot->offset);
        value->len = len;
        value->data = copy;
    }

    return 1;
}


/* a block of the arena has its size before it, and is not freed */

static void *
ngx_modelgw_document_malloc(void *ctx, size_t size)
{
    ngx_modelgw_document_arena_t  *arena = ctx;

    u_char  *p;

    size = ngx_align(size, NGX_MODELGW_DOCUMENT_ALIGN)
           + NGX_MODELGW_DOCUMENT_ALIGN;

    if (size > (size_t) (arena->last - arena->pos)) {
        return NULL;
    }

    p = arena->pos;
    arena->pos += size;

    *(size_t *) p = size - NGX_MODELGW_DOCUMENT_ALIGN;

    return p + NGX_MODELGW_DOCUMENT_ALIGN;
}


static void *
ngx_modelgw_document_realloc(void *ctx, void *p, size_t size)
{
    void    *new;
    size_t   old;

    new = ngx_modelgw_document_malloc(ctx, size);

    if (new && p) {
        old = *(size_t *) ((u_char *) p - NGX_MODELGW_DOCUMENT_ALIGN);
        ngx_memcpy(new, p, ngx_min(old, size));
    }

    return new;
}


static void
ngx_modelgw_document_free(void *ctx, void *p)
{
}
