
/*
 * The scanner and the splice, over two pipes, for
 * t/unit/json/test_scan_properties.py.
 *
 * in:   "<chunk> <check> <length>\n" and so many bytes of a document
 * out:  one line: "ok", "json" or "field"; the fault's text in hex, or "-";
 *       for each watch "type:from:to:elements:length:text in hex"; "marks" and
 *       ":" with the count of each; and, if the document has a model, in hex
 *       what it becomes with the model replaced, over bufs of <chunk> bytes,
 *       every second one in a file
 */


#include "stub.h"

#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_splice.h"


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    { ngx_string("max_tokens"),
      NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    { ngx_string("stream_options"), NGX_MODELGW_SCAN_OBJECT
      |NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("stream_options.include_usage"), NGX_MODELGW_SCAN_BOOL },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.tokens"), NGX_MODELGW_SCAN_COUNT }
};

#define NWATCHES  (sizeof(watches) / sizeof(watches[0]))

static ngx_str_t  denied[] = {
    ngx_string("models"), ngx_string("fallbacks"), ngx_string("apiBase")
};


static ngx_modelgw_scan_mark_t  marks[] = {
    { ngx_string("url"), ngx_null_string },
    { ngx_string("url"), ngx_string("data:") },
    { ngx_string("type"), ngx_string("image") },
    { ngx_string("type"), ngx_string("img\xc3\xa9\n") },
    { ngx_string("x"), ngx_null_string },
    { ngx_string("model"), ngx_string("m") },
    { ngx_string("tokens"), ngx_null_string },
    { ngx_string("stream_options"), ngx_null_string },
    { ngx_string("tasks_kissed"), ngx_null_string }
};

#define NMARKS  (sizeof(marks) / sizeof(marks[0]))


static ngx_file_t  file;


static void *
need(void *p)
{
    if (p == NULL) {
        exit(3);
    }

    return p;
}


static void
hex(u_char *p, size_t len)
{
    size_t  i;

    if (len == 0) {
        printf("-");
    }

    for (i = 0; i < len; i++) {
        printf("%02x", p[i]);
    }
}


static void
print_values(ngx_modelgw_scan_t *s)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *v;

    for (i = 0; i < NWATCHES; i++) {
        v = ngx_modelgw_scan_value(s, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            printf(" 0:0:0:0:0:-");
            continue;
        }

        printf(" %d:%ld:%ld:%d:%d:", (int) v->type, (long) v->from,
               (long) v->to, (int) v->elements, (int) v->len);
        hex(v->text, v->len > NGX_MODELGW_SCAN_TEXT ? 0 : v->len);
    }
}


static void
print_marks(ngx_modelgw_scan_t *s)
{
    ngx_uint_t  i;

    printf(" marks");

    for (i = 0; i < NMARKS; i++) {
        printf(":%d", (int) ngx_modelgw_scan_mark(s, i));
    }
}


static ngx_chain_t *
make_chain(ngx_pool_t *pool, u_char *doc, size_t len, size_t chunk)
{
    size_t         at, n;
    ngx_buf_t     *b;
    ngx_chain_t   *chain, **last;

    last = &chain;

    for (at = 0; at < len; at += n) {
        n = ngx_min(chunk, len - at);
        b = need(ngx_calloc_buf(pool));

        if (at / chunk % 2) {
            b->in_file = 1;
            b->file = &file;
            b->file_pos = at;
            b->file_last = at + n;

        } else {
            b->memory = 1;
            b->pos = doc + at;
            b->last = doc + at + n;
        }

        *last = need(ngx_alloc_chain_link(pool));
        (*last)->buf = b;
        last = &(*last)->next;
    }

    *last = NULL;

    return chain;
}


static void
print_chain(ngx_chain_t *cl)
{
    u_char      *p;
    size_t       n;
    ngx_buf_t   *b;

    for ( /* void */ ; cl; cl = cl->next) {
        b = cl->buf;
        n = ngx_buf_size(b);

        if (!b->in_file) {
            hex(b->pos, n);
            continue;
        }

        p = need(malloc(n));

        if (pread(file.fd, p, n, b->file_pos) != (ssize_t) n) {
            exit(3);
        }

        hex(p, n);
        free(p);
    }
}


static void
print_spliced(ngx_pool_t *pool, ngx_modelgw_scan_t *s, u_char *doc, size_t len,
    size_t chunk)
{
    off_t                      grown;
    ngx_chain_t               *out;
    ngx_modelgw_cut_t          cut;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(s, 0);

    cut.from = v->from;
    cut.to = v->to;
    ngx_str_set(&cut.text, "\"spliced\"");

    if (ftruncate(file.fd, 0) != 0
        || pwrite(file.fd, doc, len, 0) != (ssize_t) len
        || ngx_modelgw_splice(pool, make_chain(pool, doc, len, chunk), &cut, 1,
                              &out, &grown)
           != NGX_OK
        || grown != (off_t) cut.text.len - (v->to - v->from))
    {
        exit(3);
    }

    printf(" ");
    print_chain(out);
}


static void
answer(ngx_modelgw_scan_conf_t *conf, u_char *doc, size_t len, size_t chunk)
{
    u_char              *piece, text[NGX_MODELGW_SCAN_FAULT_LEN];
    size_t               at, n;
    ngx_int_t            rc;
    ngx_str_t            fault;
    ngx_pool_t          *pool;
    ngx_modelgw_scan_t  *s;

    pool = need(stub_pool_create());
    s = need(ngx_modelgw_scan_create(pool, conf));
    rc = NGX_OK;

    for (at = 0; at < len && rc == NGX_OK; at += n) {
        n = ngx_min(chunk, len - at);

        piece = need(malloc(n));
        ngx_memcpy(piece, doc + at, n);
        rc = ngx_modelgw_scan_feed(s, piece, n);
        free(piece);
    }

    fault.data = text;
    fault.len = 0;

    if (rc == NGX_OK) {
        rc = ngx_modelgw_scan_done(s);
    }

    if (rc == NGX_OK) {
        printf("ok ");

    } else if (ngx_modelgw_scan_fault(s, &fault) == NGX_MODELGW_SCAN_JSON) {
        printf("json ");

    } else {
        printf("field ");
    }

    hex(fault.data, fault.len);
    print_values(s);
    print_marks(s);

    if (rc == NGX_OK
        && ngx_modelgw_scan_value(s, 0)->type != NGX_MODELGW_SCAN_ABSENT)
    {
        print_spliced(pool, s, doc, len, chunk);
    }

    printf("\n");
    fflush(stdout);

    ngx_destroy_pool(pool);
}


int
main(void)
{
    int                          check;
    FILE                        *f;
    u_char                      *doc;
    size_t                       len, chunk;
    ngx_uint_t                   n;
    ngx_modelgw_scan_conf_t      conf;
    ngx_modelgw_skip_variant_t  *variants;

    f = need(tmpfile());
    file.fd = fileno(f);

    variants = ngx_modelgw_skip_variants(&n);

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.watches = watches;
    conf.nwatches = NWATCHES;
    conf.denied = denied;
    conf.ndenied = sizeof(denied) / sizeof(denied[0]);
    conf.skip = variants[0].skip;
    conf.marks = marks;
    conf.nmarks = NMARKS;

    while (scanf("%zu %d %zu", &chunk, &check, &len) == 3) {
        doc = need(malloc(len + 1));

        if (getchar() != '\n' || fread(doc, 1, len, stdin) != len) {
            return 3;
        }

        conf.check = check & 1;
        answer(&conf, doc, len, ngx_max(chunk, 1));
        free(doc);
    }

    return 0;
}
