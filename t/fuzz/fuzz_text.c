
/*
 * libFuzzer: the counter of answer text.  The input is one event's data.  It
 * may be anything; the count never exceeds its length, and for JSON it is the
 * sum of yajl's strings by a second implementation of the rule.
 */


#include "unit.h"

#include <yajl/yajl_parse.h>

#include "ngx_modelgw_text.h"
#include "ngx_modelgw_usage.h"


#define MAX_DEPTH  128


/* the enclosing containers; the last key in each */

typedef struct {
    size_t   n;
    size_t   last;
    int      depth;
    int      finished;
    char     in_delta[MAX_DEPTH];
    char     object[MAX_DEPTH];
    char     key[MAX_DEPTH][16];
} state_t;


int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);


static void
check(int ok)
{
    if (!ok) {
        abort();
    }
}


static int
is_delta(state_t *s)
{
    return s->in_delta[s->depth]
           || (s->object[s->depth] && strcmp(s->key[s->depth], "delta") == 0);
}


static int
on_open(state_t *s, int object)
{
    int  inside;

    inside = is_delta(s);

    if (s->depth == MAX_DEPTH - 1) {
        return 0;
    }

    s->depth++;
    s->in_delta[s->depth] = inside;
    s->object[s->depth] = object;
    s->key[s->depth][0] = '\0';

    return 1;
}


static int
on_map(void *ctx)
{
    return on_open(ctx, 1);
}


static int
on_array(void *ctx)
{
    return on_open(ctx, 0);
}


static int
on_close(void *ctx)
{
    ((state_t *) ctx)->depth--;

    return 1;
}


static int
on_key(void *ctx, const unsigned char *p, size_t len)
{
    state_t  *s;

    s = ctx;

    if (len > 15 || memchr(p, '\0', len)) {
        len = 0;
    }

    memcpy(s->key[s->depth], p, len);
    s->key[s->depth][len] = '\0';

    return 1;
}


static int
on_string(void *ctx, const unsigned char *p, size_t len)
{
    const char   *key;
    state_t      *s;
    ngx_uint_t    i;

    static const char  *names[] = {
        "type", "role", "id", "name", "index", "finish_reason", "stop_reason",
        "object", "model"
    };

    s = ctx;
    key = s->object[s->depth] ? s->key[s->depth] : "";

    if (!is_delta(s)) {
        s->finished += (strcmp(key, "finish_reason") == 0);
        return 1;
    }

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(key, names[i]) == 0) {
            return 1;
        }
    }

    s->n += len;
    s->last = len;

    return 1;
}


static void
compare(const uint8_t *p, size_t len, ngx_modelgw_text_t *text)
{
    int                    ok;
    state_t               *s;
    yajl_handle            h;
    static yajl_callbacks  calls = {
        .yajl_string = on_string, .yajl_map_key = on_key,
        .yajl_start_map = on_map, .yajl_end_map = on_close,
        .yajl_start_array = on_array, .yajl_end_array = on_close
    };

    s = calloc(1, sizeof(state_t));
    check(s != NULL);

    h = yajl_alloc(&calls, NULL, s);
    check(h != NULL);

    ok = yajl_parse(h, p, len) == yajl_status_ok
         && yajl_complete_parse(h) == yajl_status_ok;

    yajl_free(h);

    if (ok) {
        check(text->n == s->n);
        check(text->finished == (ngx_uint_t) s->finished);

        if (text->last.data) {
            check(ngx_modelgw_text_len(&text->last) == s->last);
        }
    }

    free(s);
}


int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
    u_char              *copy;
    ngx_modelgw_text_t   text;

    copy = malloc(len ? len : 1);
    check(copy != NULL);

    memcpy(copy, p, len);

    ngx_modelgw_text(&text, copy, len);

    check(text.n <= len);
    check(ngx_modelgw_text_answer(NGX_MODELGW_CHAT, copy, len) <= len);
    check(ngx_modelgw_text_answer(NGX_MODELGW_MESSAGES, copy, len) <= len);

    if (text.last.data) {
        check(text.last.data >= copy);
        check(text.last.data + text.last.len <= copy + len);
    }

    /* yajl decodes surrogates differently; names are compared as written */

    if (memmem(p, len, "\\u", 2) == NULL) {
        compare(p, len, &text);
    }

    free(copy);

    return 0;
}
