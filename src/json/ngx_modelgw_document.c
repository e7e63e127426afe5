
/*
 * yajl behind one wall, and the writer of JSON strings.
 *
 * yajl serves for documents that are read whole and rarely: an upstream's
 * errors.  Three of its habits are tamed here.  It never looks at what its
 * allocator returns, so it gets an arena that is allocated, and checked, before
 * it starts and is large enough for every document of the length (see below).
 * It nests without limit, so depth is counted.  It reads a token that was cut
 * anew from its start, so a document is fed in one call.
 *
 * It is also looser than RFC 3629 (overlong forms and surrogates pass), and
 * makes bytes that are not UTF-8 of a lone surrogate.  What is written to
 * clients goes through the writer, which is strict.
 *
 * Rejected: yajl's tree API, which has no depth limit at all and leaked
 * (CVE-2023-33460).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <yajl/yajl_parse.h>

#include "ngx_modelgw_document.h"


#define NGX_MODELGW_JSON_PATH     256
#define NGX_MODELGW_JSON_NOWHERE  ((size_t) -1)

#define NGX_MODELGW_JSON_ALIGN    16     /* of what malloc() would return */

/*
 * What yajl allocates: its structures and a stack of 128 bytes, under 1 KB; and
 * two buffers, for a string with escapes and for a token that the end of the
 * document cuts.  Each starts with 2 KB and is doubled until it is larger than
 * the token, so all its sizes together are below 4 * len + 4 KB.
 */
#define ngx_modelgw_json_arena_size(len)  (2 * (4 * (len) + 4096) + 8192)


typedef struct {
    u_char                   *pos;
    u_char                   *last;
} ngx_modelgw_json_arena_t;


/*
 * The path of the value that comes next is path[0 .. len); NOWHERE if no slot
 * can have it: inside an array, behind a key that is empty, long or has a '.'.
 * ends[] has the same for each container that is open.
 */
typedef struct {
    ngx_pool_t               *pool;
    ngx_modelgw_json_slot_t  *slots;
    u_char                   *dst;

    ngx_uint_t                depth;
    size_t                    len;
    size_t                    ends[NGX_MODELGW_JSON_MAX_DEPTH + 1];
    u_char                    path[NGX_MODELGW_JSON_PATH];

    unsigned                  failed:1;  /* no memory */
} ngx_modelgw_json_reader_t;


static ngx_int_t ngx_modelgw_json_parse(ngx_modelgw_json_arena_t *arena,
    ngx_modelgw_json_reader_t *r, ngx_str_t *doc);
static int ngx_modelgw_json_null(void *ctx);
static int ngx_modelgw_json_boolean(void *ctx, int value);
static int ngx_modelgw_json_number(void *ctx, const char *p, size_t len);
static int ngx_modelgw_json_string(void *ctx, const unsigned char *p,
    size_t len);
static int ngx_modelgw_json_key(void *ctx, const unsigned char *p, size_t len);
static int ngx_modelgw_json_map(void *ctx);
static int ngx_modelgw_json_array(void *ctx);
static int ngx_modelgw_json_end(void *ctx);
static int ngx_modelgw_json_open(ngx_modelgw_json_reader_t *r);
static int ngx_modelgw_json_value(ngx_modelgw_json_reader_t *r, u_char *p,
    size_t len);
static void *ngx_modelgw_json_malloc(void *ctx, size_t size);
static void *ngx_modelgw_json_realloc(void *ctx, void *p, size_t size);
static void ngx_modelgw_json_free(void *ctx, void *p);
static u_char ngx_modelgw_json_escape(u_char ch);


static yajl_callbacks  ngx_modelgw_json_callbacks = {
    ngx_modelgw_json_null,
    ngx_modelgw_json_boolean,
    NULL,                                /* yajl_number takes its place */
    NULL,                                /* as well */
    ngx_modelgw_json_number,
    ngx_modelgw_json_string,
    ngx_modelgw_json_map,
    ngx_modelgw_json_key,
    ngx_modelgw_json_end,
    ngx_modelgw_json_array,
    ngx_modelgw_json_end
};


ngx_int_t
ngx_modelgw_json_read(ngx_pool_t *pool, ngx_str_t *doc,
    ngx_modelgw_json_slot_t *slots, void *dst)
{
    size_t                      size;
    u_char                     *p;
    ngx_int_t                   rc;
    ngx_modelgw_json_arena_t    arena;
    ngx_modelgw_json_reader_t   r;

    if (doc->len > NGX_MODELGW_JSON_MAX_DOC) {
        return NGX_DECLINED;
    }

    size = ngx_modelgw_json_arena_size(doc->len);

    p = ngx_palloc(pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    arena.pos = ngx_align_ptr(p, NGX_MODELGW_JSON_ALIGN);
    arena.last = p + size;

    ngx_memzero(&r, sizeof(ngx_modelgw_json_reader_t));

    r.pool = pool;
    r.slots = slots;
    r.dst = dst;

    rc = ngx_modelgw_json_parse(&arena, &r, doc);

    (void) ngx_pfree(pool, p);

    return rc;
}


static ngx_int_t
ngx_modelgw_json_parse(ngx_modelgw_json_arena_t *arena,
    ngx_modelgw_json_reader_t *r, ngx_str_t *doc)
{
    yajl_handle       h;
    yajl_status       status;
    yajl_alloc_funcs  funcs;

    funcs.malloc = ngx_modelgw_json_malloc;
    funcs.realloc = ngx_modelgw_json_realloc;
    funcs.free = ngx_modelgw_json_free;
    funcs.ctx = arena;

    h = yajl_alloc(&ngx_modelgw_json_callbacks, &funcs, r);
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


/* The callbacks return 0 to stop; a root that is no object stops, too. */

static int
ngx_modelgw_json_null(void *ctx)
{
    ngx_modelgw_json_reader_t  *r = ctx;

    return r->depth != 0;
}


static int
ngx_modelgw_json_boolean(void *ctx, int value)
{
    if (value) {
        return ngx_modelgw_json_value(ctx, (u_char *) "true", 4);
    }

    return ngx_modelgw_json_value(ctx, (u_char *) "false", 5);
}


static int
ngx_modelgw_json_number(void *ctx, const char *p, size_t len)
{
    return ngx_modelgw_json_value(ctx, (u_char *) p, len);
}


static int
ngx_modelgw_json_string(void *ctx, const unsigned char *p, size_t len)
{
    return ngx_modelgw_json_value(ctx, (u_char *) p, len);
}


static int
ngx_modelgw_json_key(void *ctx, const unsigned char *p, size_t len)
{
    ngx_modelgw_json_reader_t  *r = ctx;

    u_char  *last;

    r->len = r->ends[r->depth];

    if (r->len == NGX_MODELGW_JSON_NOWHERE) {
        return 1;
    }

    if (len == 0
        || len + 1 > NGX_MODELGW_JSON_PATH - r->len
        || memchr(p, '.', len) != NULL)
    {
        r->len = NGX_MODELGW_JSON_NOWHERE;
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
ngx_modelgw_json_map(void *ctx)
{
    return ngx_modelgw_json_open(ctx);
}


static int
ngx_modelgw_json_array(void *ctx)
{
    ngx_modelgw_json_reader_t  *r = ctx;

    if (r->depth == 0) {
        return 0;
    }

    r->len = NGX_MODELGW_JSON_NOWHERE;

    return ngx_modelgw_json_open(r);
}


static int
ngx_modelgw_json_end(void *ctx)
{
    ngx_modelgw_json_reader_t  *r = ctx;

    r->depth--;

    return 1;
}


static int
ngx_modelgw_json_open(ngx_modelgw_json_reader_t *r)
{
    if (r->depth == NGX_MODELGW_JSON_MAX_DEPTH) {
        return 0;
    }

    r->depth++;
    r->ends[r->depth] = r->len;

    return 1;
}


static int
ngx_modelgw_json_value(ngx_modelgw_json_reader_t *r, u_char *p, size_t len)
{
    u_char                   *copy;
    ngx_str_t                *value;
    ngx_modelgw_json_slot_t  *slot;

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


/* A block of the arena has its size before it; nothing is ever given back. */

static void *
ngx_modelgw_json_malloc(void *ctx, size_t size)
{
    ngx_modelgw_json_arena_t  *arena = ctx;

    u_char  *p;

    size = ngx_align(size, NGX_MODELGW_JSON_ALIGN) + NGX_MODELGW_JSON_ALIGN;

    if (size > (size_t) (arena->last - arena->pos)) {
        return NULL;
    }

    p = arena->pos;
    arena->pos += size;

    *(size_t *) p = size - NGX_MODELGW_JSON_ALIGN;

    return p + NGX_MODELGW_JSON_ALIGN;
}


static void *
ngx_modelgw_json_realloc(void *ctx, void *p, size_t size)
{
    void    *new;
    size_t   old;

    new = ngx_modelgw_json_malloc(ctx, size);

    if (new && p) {
        old = *(size_t *) ((u_char *) p - NGX_MODELGW_JSON_ALIGN);
        ngx_memcpy(new, p, ngx_min(old, size));
    }

    return new;
}


static void
ngx_modelgw_json_free(void *ctx, void *p)
{
}


size_t
ngx_modelgw_json_str_len(ngx_str_t *s)
{
    size_t   len, n;
    u_char  *p, *last;

    len = sizeof("\"\"") - 1;
    last = s->data + s->len;

    for (p = s->data; p < last; p += n) {

        n = 1;

        if (*p >= 0x80) {
            n = ngx_modelgw_json_utf8(p, last);
            len += n ? n : sizeof("\xef\xbf\xbd") - 1;
            n = n ? n : 1;

        } else if (ngx_modelgw_json_escape(*p)) {
            len += sizeof("\\n") - 1;

        } else if (*p < 0x20) {
            len += sizeof("\\u0000") - 1;

        } else {
            len++;
        }
    }

    return len;
}


u_char *
ngx_modelgw_json_str(u_char *p, ngx_str_t *s)
{
    size_t   n;
    u_char  *q, *last, ch;

    last = s->data + s->len;

    *p++ = '"';

    for (q = s->data; q < last; q += n) {

        n = 1;

        if (*q >= 0x80) {
            n = ngx_modelgw_json_utf8(q, last);

            if (n) {
                p = ngx_cpymem(p, q, n);
                continue;
            }

            p = ngx_cpymem(p, "\xef\xbf\xbd", 3);
            n = 1;
            continue;
        }

        ch = ngx_modelgw_json_escape(*q);

        if (ch) {
            *p++ = '\\';
            *p++ = ch;

        } else if (*q < 0x20) {
            p = ngx_sprintf(p, "\\u%04xd", (ngx_uint_t) *q);

        } else {
            *p++ = *q;
        }
    }

    *p++ = '"';

    return p;
}


/* RFC 3629, section 4: the table of well-formed sequences */

size_t
ngx_modelgw_json_utf8(u_char *p, u_char *last)
{
    size_t       i;
    ngx_uint_t   n;

    static struct {
        u_char   first;                  /* up to this first byte ... */
        u_char   low;                    /* ... the second is in low .. high */
        u_char   high;
        u_char   len;
    } rows[] = {
        { 0xc1, 0x00, 0x00, 0 },
        { 0xdf, 0x80, 0xbf, 2 },
        { 0xe0, 0xa0, 0xbf, 3 },
        { 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0x80, 0x9f, 3 },
        { 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0x90, 0xbf, 4 },
        { 0xf3, 0x80, 0xbf, 4 },
        { 0xf4, 0x80, 0x8f, 4 },
        { 0xff, 0x00, 0x00, 0 }
    };

    for (n = 0; *p > rows[n].first; n++) { /* void */ }

    if (rows[n].len == 0
        || rows[n].len > last - p
        || p[1] < rows[n].low
        || p[1] > rows[n].high)
    {
        return 0;
    }

    for (i = 2; i < rows[n].len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }

    return rows[n].len;
}


/* The letter of the short escape (RFC 8259, section 7), 0 if it has none. */

static u_char
ngx_modelgw_json_escape(u_char ch)
{
    static u_char  letters[] = "\0\0\0\0\0\0\0\0btn\0fr";

    if (ch == '"' || ch == '\\') {
        return ch;
    }

    return (ch < sizeof(letters) - 1) ? letters[ch] : 0;
}
