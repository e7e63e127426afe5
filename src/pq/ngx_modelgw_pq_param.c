
/*
 * Parameters of statements in binary: a number is 8 bytes in network order, an
 * array has a header and its elements, each with its length before it
 * (array_send() in PostgreSQL's src/backend/utils/adt/arrayfuncs.c).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_pq_private.h"


/* dimensions, flags, type of the elements, their number, lower bound */
#define NGX_MODELGW_PQ_HEADER      20

#define NGX_MODELGW_PQ_ARRAY_MAX   (256 * 1024 * 1024)


static ngx_inline u_char *ngx_modelgw_pq_reserve(ngx_modelgw_pq_array_t *a,
    size_t len);
static u_char *ngx_modelgw_pq_grow(ngx_modelgw_pq_array_t *a, size_t len);
static ngx_inline ngx_uint_t ngx_modelgw_pq_ascii(const u_char *p, size_t len);
static void ngx_modelgw_pq_clean(u_char *p, u_char *last);


void
ngx_modelgw_pq_param_int(ngx_modelgw_pq_param_t *param, u_char *buf, int64_t n)
{
    (void) ngx_modelgw_pq_put(buf, n, sizeof(int64_t));

    param->type = NGX_MODELGW_PQ_INT8;
    param->len = sizeof(int64_t);
    param->data = buf;
}


void
ngx_modelgw_pq_param_text(ngx_modelgw_pq_param_t *param, u_char *data,
    size_t len)
{
    param->type = NGX_MODELGW_PQ_TEXT;
    param->len = len;
    param->data = data ? data : (u_char *) "";
}


void
ngx_modelgw_pq_array_begin(ngx_modelgw_pq_array_t *a, uint32_t type)
{
    a->pos = a->start;
    a->type = type;
    a->n = 0;
    a->failed = 0;

    (void) ngx_modelgw_pq_reserve(a, NGX_MODELGW_PQ_HEADER);
}


void
ngx_modelgw_pq_array_int(ngx_modelgw_pq_array_t *a, int64_t n)
{
    size_t   len;
    u_char  *p;

    len = (a->type == NGX_MODELGW_PQ_BOOL) ? 1
          : (a->type == NGX_MODELGW_PQ_INT4) ? sizeof(int32_t)
          : sizeof(int64_t);

    p = ngx_modelgw_pq_reserve(a, sizeof(int32_t) + len);
    if (p == NULL) {
        return;
    }

    p = ngx_modelgw_pq_put(p, len, sizeof(int32_t));
    (void) ngx_modelgw_pq_put(p, n, len);

    a->n++;
}


void
ngx_modelgw_pq_array_text(ngx_modelgw_pq_array_t *a, u_char *data, size_t len)
{
    u_char    *p;
    uint32_t   size;

    p = ngx_modelgw_pq_reserve(a, sizeof(size) + len);
    if (p == NULL) {
        return;
    }

    a->n++;

    size = htonl(len);
    p = ngx_cpymem(p, &size, sizeof(size));

    if (len == 0) {
        return;
    }

    ngx_memcpy(p, data, len);

    if (a->type == NGX_MODELGW_PQ_TEXT && !ngx_modelgw_pq_ascii(p, len)) {
        ngx_modelgw_pq_clean(p, p + len);
    }
}


void
ngx_modelgw_pq_array_column(ngx_modelgw_pq_array_t *a,
    const ngx_modelgw_pq_column_t *column, void *rows, size_t size,
    ngx_uint_t n)
{
    u_char     *p, *row;
    uint32_t    len;
    uint64_t    number;
    ngx_str_t  *text;

    row = (u_char *) rows + column->offset;

    if (column->type == NGX_MODELGW_PQ_TEXT) {

        for ( /* void */ ; n; n--) {
            text = (ngx_str_t *) row;
            ngx_modelgw_pq_array_text(a, text->data, text->len);
            row += size;
        }

        return;
    }

    p = ngx_modelgw_pq_reserve(a, n * (sizeof(len) + sizeof(number)));
    if (p == NULL) {
        return;
    }

    a->n += n;
    len = htonl(sizeof(number));

    for ( /* void */ ; n; n--) {
        number = htobe64(*(int64_t *) row);

        p = ngx_cpymem(p, &len, sizeof(len));
        p = ngx_cpymem(p, &number, sizeof(number));
        row += size;
    }
}


void
ngx_modelgw_pq_array_repeat(ngx_modelgw_pq_array_t *a, ngx_uint_t times)
{
    size_t     len;
    u_char    *p;
    uint32_t   n;

    if (a->failed) {
        return;
    }

    n = a->n;
    len = a->pos - a->start - NGX_MODELGW_PQ_HEADER;

    while (times--) {
        p = ngx_modelgw_pq_reserve(a, len);
        if (p == NULL) {
            return;
        }

        ngx_memcpy(p, a->start + NGX_MODELGW_PQ_HEADER, len);
        a->n += n;
    }
}


u_char *
ngx_modelgw_pq_array_next(ngx_modelgw_pq_array_t *a, u_char *p,
    ngx_str_t *element)
{
    uint32_t  size;

    if (a->n == 0 || a->failed) {
        return NULL;
    }

    if (p == NULL) {
        p = a->start + NGX_MODELGW_PQ_HEADER;
    }

    if (p == a->pos) {
        return NULL;
    }

    ngx_memcpy(&size, p, sizeof(size));

    element->len = ntohl(size);
    element->data = p + sizeof(size);

    return element->data + element->len;
}


/* array_send(): an array without elements has no dimension */

ngx_int_t
ngx_modelgw_pq_array_end(ngx_modelgw_pq_array_t *a,
    ngx_modelgw_pq_param_t *param)
{
    u_char      *p;
    ngx_uint_t   i;

    static const uint32_t  types[][2] = {
        { NGX_MODELGW_PQ_BOOL, NGX_MODELGW_PQ_BOOL_ARRAY },
        { NGX_MODELGW_PQ_BYTEA, NGX_MODELGW_PQ_BYTEA_ARRAY },
        { NGX_MODELGW_PQ_INT4, NGX_MODELGW_PQ_INT4_ARRAY },
        { NGX_MODELGW_PQ_INT8, NGX_MODELGW_PQ_INT8_ARRAY },
        { NGX_MODELGW_PQ_TEXT, NGX_MODELGW_PQ_TEXT_ARRAY }
    };

    if (a->failed) {
        return NGX_ERROR;
    }

    p = ngx_modelgw_pq_put(a->start, a->n ? 1 : 0, sizeof(int32_t));
    p = ngx_modelgw_pq_put(p, 0, sizeof(int32_t));
    p = ngx_modelgw_pq_put(p, a->type, sizeof(int32_t));
    p = ngx_modelgw_pq_put(p, a->n, sizeof(int32_t));
    (void) ngx_modelgw_pq_put(p, 1, sizeof(int32_t));

    for (i = 0; types[i][0] != a->type; i++) { /* void */ }

    param->type = types[i][1];
    param->len = a->n ? (size_t) (a->pos - a->start) : 3 * sizeof(int32_t);
    param->data = a->start;

    return NGX_OK;
}


void
ngx_modelgw_pq_array_free(ngx_modelgw_pq_array_t *a)
{
    free(a->start);
    ngx_memzero(a, sizeof(ngx_modelgw_pq_array_t));
}


/* NULL: there is no memory, or the array is too large, now or before */

static ngx_inline u_char *
ngx_modelgw_pq_reserve(ngx_modelgw_pq_array_t *a, size_t len)
{
    u_char  *p;

    if (a->failed || (size_t) (a->end - a->pos) < len) {
        return ngx_modelgw_pq_grow(a, len);
    }

    p = a->pos;
    a->pos += len;

    return p;
}


static u_char *
ngx_modelgw_pq_grow(ngx_modelgw_pq_array_t *a, size_t len)
{
    size_t   used, size;
    u_char  *p;

    if (a->failed) {
        return NULL;
    }

    used = a->pos - a->start;
    size = ngx_max(2 * (size_t) (a->end - a->start), used + len);
    size = ngx_max(size, 1024);

    p = (size > NGX_MODELGW_PQ_ARRAY_MAX) ? NULL : realloc(a->start, size);
    if (p == NULL) {
        a->failed = 1;
        return NULL;
    }

    a->start = p;
    a->pos = p + used + len;
    a->end = p + size;

    return p + used;
}


/* Whether all of it is ASCII, without NUL. */

static ngx_inline ngx_uint_t
ngx_modelgw_pq_ascii(const u_char *p, size_t len)
{
    uint64_t  word, bits;

    bits = 0;

    for ( /* void */ ; len >= sizeof(word); len -= sizeof(word)) {
        ngx_memcpy(&word, p, sizeof(word));
        bits |= word | (word - 0x0101010101010101);
        p += sizeof(word);
    }

    word = 0x0101010101010101;
    ngx_memcpy(&word, p, len);
    bits |= word | (word - 0x0101010101010101);

    return (bits & 0x8080808080808080) == 0;
}


/* Replaces what no text of the server may have. */

static void
ngx_modelgw_pq_clean(u_char *p, u_char *last)
{
    size_t  n;

    while (p < last) {
        n = ngx_modelgw_pq_utf8(p, last);

        if (n == 0) {
            *p = '?';
            n = 1;
        }

        p += n;
    }
}


/* RFC 3629 */

size_t
ngx_modelgw_pq_utf8(const u_char *p, const u_char *last)
{
    size_t  i, n;
    u_char  low, high;

    if (*p < 0x80) {
        return *p != '\0';
    }

    n = (*p < 0xe0) ? 2 : (*p < 0xf0) ? 3 : 4;

    if (*p < 0xc2 || *p > 0xf4 || (size_t) (last - p) < n) {
        return 0;
    }

    low = (*p == 0xe0) ? 0xa0 : (*p == 0xf0) ? 0x90 : 0x80;
    high = (*p == 0xed) ? 0x9f : (*p == 0xf4) ? 0x8f : 0xbf;

    for (i = 1; i < n; i++) {
        if (p[i] < low || p[i] > high) {
            return 0;
        }

        low = 0x80;
        high = 0xbf;
    }

    return n;
}


/* Writes the last bytes of a number in network order. */

u_char *
ngx_modelgw_pq_put(u_char *p, uint64_t n, size_t len)
{
    while (len) {
        *p++ = (u_char) (n >> 8 * --len);
    }

    return p;
}
