
/*
 * The answer codecs, over two pipes, for scripts.
 *
 * arguments:  "response" or "stream", then any of
 *                 reasoning=off|content|full  include_usage=0|1  created=N
 *                 model=ID  max=N  chunk=N (bytes fed at a time; default: all)
 *             for the responses API:
 *                 responses=messages|chat  encrypted=1  show=1  json=1
 *                 tool=KIND:UPSTREAM:NAMESPACE:NAME (kinds are numbers)
 * in:         the upstream's bytes
 * out:        what the client gets
 * err:        one line: "ok", "done", "abort", "declined" or "error"; and the
 *             usage: input, cache read, cache write, of that for 1 h, output,
 *             reasoning
 *
 * The exit status is 0 for the first two, else 1.
 */


#include "stub.h"
#include "answer.h"


static const char *
result(ngx_int_t rc)
{
    switch (rc) {
    case NGX_OK:
        return "ok";
    case NGX_DONE:
        return "done";
    case NGX_ABORT:
        return "abort";
    case NGX_DECLINED:
        return "declined";
    default:
        return "error";
    }
}


static u_char *
read_all(size_t *len)
{
    size_t   size, n;
    u_char  *p;

    p = NULL;
    size = 0;
    *len = 0;

    do {
        if (*len == size) {
            size += size + 65536;
            p = realloc(p, size);
            if (p == NULL) {
                exit(3);
            }
        }

        n = fread(p + *len, 1, size - *len, stdin);
        *len += n;

    } while (n);

    return p;
}


static ngx_uint_t
reasoning(const char *word)
{
    if (ngx_strcmp(word, "off") == 0) {
        return NGX_MODELGW_REASONING_OFF;
    }

    return ngx_strcmp(word, "full") == 0 ? NGX_MODELGW_REASONING_FULL
                                         : NGX_MODELGW_REASONING_CONTENT;
}


static ngx_inline char *
option(char *arg, const char *name)
{
    size_t  n;

    n = ngx_strlen(name);

    return ngx_strncmp(arg, name, n) == 0 ? arg + n : NULL;
}


static void
responses(answer_t *a, int argc, char **argv, size_t max)
{
    int          i;
    char        *value, *word[4];
    ngx_uint_t   n;

    for (i = 2; i < argc; i++) {
        if ((value = option(argv[i], "responses=")) != NULL) {
            answer_responses(a, ngx_strcmp(value, "chat") == 0
                                ? NGX_MODELGW_CHAT : NGX_MODELGW_MESSAGES, max);
        }
    }

    for (i = 2; i < argc; i++) {
        if ((value = option(argv[i], "encrypted=")) != NULL) {
            a->call.encrypted = atoi(value);

        } else if ((value = option(argv[i], "show=")) != NULL) {
            a->call.show = atoi(value);

        } else if ((value = option(argv[i], "json=")) != NULL) {
            a->call.json = atoi(value);

        } else if ((value = option(argv[i], "tool=")) != NULL) {

            for (n = 0; n < 4; n++) {
                word[n] = strsep(&value, ":");
            }

            answer_tool(a, atoi(word[0]), word[1], word[2], word[3]);
        }
    }
}


int
main(int argc, char **argv)
{
    int          i;
    char        *value, model[1024];
    u_char      *doc;
    size_t       len, chunk, max;
    answer_t     a;
    ngx_int_t    rc;
    ngx_pool_t  *pool;

    pool = stub_pool_create();
    doc = read_all(&len);

    if (pool == NULL || argc < 2) {
        return 3;
    }

    chunk = ngx_max(len, 1);
    max = NGX_MODELGW_SSE_MAX_EVENT;

    for (i = 2; i < argc; i++) {
        if ((value = option(argv[i], "chunk=")) != NULL) {
            chunk = ngx_max(atoi(value), 1);

        } else if ((value = option(argv[i], "max=")) != NULL) {
            max = atoi(value);
        }
    }

    answer_init(&a, pool, NGX_MODELGW_REASONING_CONTENT, 0, max);

    for (i = 2; i < argc; i++) {
        if ((value = option(argv[i], "reasoning=")) != NULL) {
            a.c.reasoning = reasoning(value);

        } else if ((value = option(argv[i], "include_usage=")) != NULL) {
            a.c.include_usage = atoi(value);

        } else if ((value = option(argv[i], "created=")) != NULL) {
            a.c.created = atoi(value);

        } else if ((value = option(argv[i], "model=")) != NULL) {
            a.c.model.data = (u_char *) model;
            a.c.model.len = snprintf(model, sizeof(model), "\"%s\"", value);
        }
    }

    responses(&a, argc, argv, max);

    if (ngx_strcmp(argv[1], "stream") == 0) {
        rc = answer_stream(&a, doc, len, chunk);

    } else {
        rc = answer_message(&a, doc, len);
    }

    if (a.len) {
        fwrite(a.text, 1, a.len, stdout);
    }

    fprintf(stderr, "%s %ld %ld %ld %ld %ld %ld\n", result(rc),
            (long) a.usage.input, (long) a.usage.cache_read,
            (long) a.usage.cache_write, (long) a.usage.cache_write_1h,
            (long) a.usage.output, (long) a.usage.reasoning);

    answer_free(&a);
    free(doc);
    ngx_destroy_pool(pool);

    return (rc == NGX_OK || rc == NGX_DONE) ? 0 : 1;
}
