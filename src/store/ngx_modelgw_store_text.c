
/*
 * JSON of operators' answers, written into memory that grows.
 *
 * ngx_modelgw_out.h is not used: operators' answers are wanted in one piece,
 * and names from the file need not be UTF-8 (a model id may have been cut).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_document.h"
#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_TEXT  4096     /* bytes to begin with */
#define NGX_MODELGW_STORE_RFC   sizeof("\"-2147483648-11-22T06:47:00.123Z\"")


static u_char *ngx_modelgw_store_room(ngx_modelgw_store_text_t *t,
    size_t size);


static const char  *ngx_modelgw_store_tokens[NGX_MODELGW_STORE_TOKENS] = {
    ",\"input_tokens\":", ",\"cache_read_tokens\":",
    ",\"cache_write_tokens\":", ",\"cache_write_1h_tokens\":",
    ",\"output_tokens\":", ",\"reasoning_tokens\":"
};


void
ngx_modelgw_store_text(ngx_modelgw_store_text_t *t, ngx_pool_t *pool)
{
    ngx_memzero(t, sizeof(ngx_modelgw_store_text_t));

    t->pool = pool;
}


/* NULL: there is no memory; the caller then writes nothing */

static u_char *
ngx_modelgw_store_room(ngx_modelgw_store_text_t *t, size_t size)
{
    u_char  *p;
    size_t   len, room;

    if (t->failed) {
        return NULL;
    }

    if (size <= (size_t) (t->end - t->last)) {
        return t->last;
    }

    len = t->last - t->start;
    room = ngx_max(2 * (size_t) (t->end - t->start), NGX_MODELGW_STORE_TEXT);
    room = ngx_max(room, len + size);

    p = ngx_pnalloc(t->pool, room);
    if (p == NULL) {
        t->failed = 1;
        return NULL;
    }

    if (t->start) {
        ngx_memcpy(p, t->start, len);
        (void) ngx_pfree(t->pool, t->start);
    }

    t->start = p;
    t->last = p + len;
    t->end = p + room;

    return t->last;
}


void
ngx_modelgw_store_put(ngx_modelgw_store_text_t *t, const char *text)
{
    u_char  *p;
    size_t   len;

    len = ngx_strlen(text);

    p = ngx_modelgw_store_room(t, len);

    if (p) {
        t->last = ngx_cpymem(p, text, len);
    }
}


void
ngx_modelgw_store_put_number(ngx_modelgw_store_text_t *t, const char *before,
    int64_t n)
{
    u_char  *p;

    ngx_modelgw_store_put(t, before);

    p = ngx_modelgw_store_room(t, NGX_INT64_LEN);

    if (p) {
        t->last = ngx_sprintf(p, "%L", n);
    }
}


void
ngx_modelgw_store_put_string(ngx_modelgw_store_text_t *t, const char *before,
    ngx_str_t *s)
{
    u_char  *p;

    ngx_modelgw_store_put(t, before);

    p = ngx_modelgw_store_room(t, ngx_modelgw_json_str_len(s));

    if (p) {
        t->last = ngx_modelgw_json_str(p, s);
    }
}


void
ngx_modelgw_store_put_time(ngx_modelgw_store_text_t *t, const char *before,
    int64_t time)
{
    u_char     *p;
    time_t      sec;
    struct tm   tm;

    ngx_modelgw_store_put(t, before);

    sec = time / 1000;
    ngx_memzero(&tm, sizeof(struct tm));
    (void) gmtime_r(&sec, &tm);

    p = ngx_modelgw_store_room(t, NGX_MODELGW_STORE_RFC);

    if (p) {
        t->last = ngx_sprintf(p, "\"%4d-%02d-%02dT%02d:%02d:%02d.%03dZ\"",
                              tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                              tm.tm_hour, tm.tm_min, tm.tm_sec,
                              (int) (time % 1000));
    }
}


void
ngx_modelgw_store_put_day(ngx_modelgw_store_text_t *t, const char *before,
    int64_t day)
{
    u_char     *p;
    time_t      sec;
    struct tm   tm;

    ngx_modelgw_store_put(t, before);

    sec = day * NGX_MODELGW_STORE_DAY;
    ngx_memzero(&tm, sizeof(struct tm));
    (void) gmtime_r(&sec, &tm);

    p = ngx_modelgw_store_room(t, NGX_MODELGW_STORE_RFC);

    if (p) {
        t->last = ngx_sprintf(p, "\"%4d-%02d-%02d\"", tm.tm_year + 1900,
                              tm.tm_mon + 1, tm.tm_mday);
    }
}


void
ngx_modelgw_store_put_amount(ngx_modelgw_store_text_t *t, const char *before,
    int64_t amount)
{
    u_char  *p;

    ngx_modelgw_store_put(t, before);

    p = ngx_modelgw_store_room(t, NGX_MODELGW_AMOUNT_LEN + 2);

    if (p) {
        *p++ = '"';
        p = ngx_modelgw_amount(p, amount);
        *p++ = '"';

        t->last = p;
    }
}


void
ngx_modelgw_store_put_tokens(ngx_modelgw_store_text_t *t, int64_t *tokens)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_STORE_TOKENS; i++) {
        ngx_modelgw_store_put_number(t, ngx_modelgw_store_tokens[i],
                                     tokens[i]);
    }
}


ngx_int_t
ngx_modelgw_store_put_done(ngx_modelgw_store_text_t *t, const char *end,
    ngx_str_t *out)
{
    ngx_modelgw_store_put(t, end);

    if (t->failed) {
        return NGX_ERROR;
    }

    out->data = t->start;
    out->len = t->last - t->start;

    return NGX_OK;
}
