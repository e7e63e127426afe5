
/*
 * The splice: every cut of a short document, over chains that are split at
 * every place, in memory, in a file, in both; compared with string operations.
 * And the same after so many bytes that the beginning is copied up to some
 * cuts only, or up to none.
 */


#include "unit.h"

#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_splice.h"


#define DOC   "0123456789abcdefghij"
#define SIZE  (sizeof(DOC) - 1)
#define LONG  2000


typedef enum {
    IN_MEMORY = 0,
    IN_FILE,
    IN_BOTH,
    MIXED,
    KINDS
} kind_e;


static ngx_file_t  file;


static int
open_file(void **state)
{
    FILE  *f;

    f = tmpfile();
    assert_non_null(f);

    file.fd = fileno(f);
    file.log = &stub_log;

    return 0;
}


/* in the file, three bytes are before the document and three after it */

static void
write_file(const char *doc, size_t len)
{
    assert_int_equal(ftruncate(file.fd, 0), 0);
    assert_int_equal(pwrite(file.fd, "<<<", 3, 0), 3);
    assert_int_equal(pwrite(file.fd, doc, len, 3), len);
    assert_int_equal(pwrite(file.fd, ">>>", 3, 3 + len), 3);
}


static ngx_chain_t *
link_buf(ngx_pool_t *pool, const char *doc, size_t from, size_t to,
    kind_e kind)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(pool);
    assert_non_null(b);

    cl = ngx_alloc_chain_link(pool);
    assert_non_null(cl);

    cl->buf = b;
    cl->next = NULL;

    if (kind == MIXED) {
        kind = (from % 2) ? IN_FILE : IN_MEMORY;
    }

    if (kind != IN_FILE) {
        b->temporary = 1;
        b->pos = (u_char *) doc + from;
        b->last = (u_char *) doc + to;
        b->start = b->pos;
        b->end = b->last;
    }

    if (kind != IN_MEMORY) {
        b->in_file = 1;
        b->file = &file;
        b->file_pos = 3 + from;
        b->file_last = 3 + to;
    }

    b->last_buf = (to == SIZE);

    return cl;
}


/* the document in bufs of size bytes, the first one of "first" bytes */

static ngx_chain_t *
make_chain(ngx_pool_t *pool, const char *doc, size_t len, size_t first,
    size_t size, kind_e kind)
{
    size_t         at, n;
    ngx_chain_t   *chain, **last;

    last = &chain;
    n = first;

    for (at = 0; at < len; at += n, n = size) {
        n = ngx_min(n, len - at);
        *last = link_buf(pool, doc, at, at + n, kind);
        last = &(*last)->next;
    }

    *last = NULL;

    return chain;
}


static size_t
read_chain(ngx_chain_t *cl, u_char *out)
{
    u_char     *p;
    ngx_buf_t  *b;

    p = out;

    for ( /* void */ ; cl; cl = cl->next) {
        b = cl->buf;

        assert_false(ngx_buf_special(b));
        assert_true(ngx_buf_size(b) > 0);
        assert_false(b->last_buf || b->flush || b->sync);

        if (ngx_buf_in_memory(b)) {
            p = ngx_cpymem(p, b->pos, b->last - b->pos);
            continue;
        }

        assert_int_equal(pread(b->file->fd, p, b->file_last - b->file_pos,
                               b->file_pos),
                         b->file_last - b->file_pos);
        p += b->file_last - b->file_pos;
    }

    *p = '\0';

    return p - out;
}


/* the expected result, by string operations */

static void
cut_string(const char *doc, size_t len, ngx_modelgw_cut_t *cuts, ngx_uint_t n,
    u_char *out)
{
    size_t      at;
    ngx_uint_t  i;

    at = 0;

    for (i = 0; i < n; i++) {
        out = ngx_cpymem(out, doc + at, cuts[i].from - at);

        if (cuts[i].text.len) {
            out = ngx_cpymem(out, cuts[i].text.data, cuts[i].text.len);
        }

        at = cuts[i].to;
    }

    out = ngx_cpymem(out, doc + at, len - at);
    *out = '\0';
}


/* after so many bytes in memory */

static void
check_after(ngx_pool_t *pool, size_t before, ngx_chain_t *in, const char *doc,
    ngx_modelgw_cut_t *cuts, ngx_uint_t n)
{
    off_t              grown;
    u_char             got[4096], want[4096];
    size_t             len;
    ngx_uint_t         i;
    ngx_chain_t       *cl, *out;
    ngx_modelgw_cut_t  moved[5];
    static char        bytes[LONG];

    memset(bytes, '#', before);
    memset(want, '#', before);
    cut_string(doc, strlen(doc), cuts, n, want + before);

    for (i = 0; i < n; i++) {
        moved[i] = cuts[i];
        moved[i].from += before;
        moved[i].to += before;
    }

    cl = in;

    if (before) {
        cl = link_buf(pool, bytes, 0, before, IN_MEMORY);
        cl->next = in;
    }

    assert_int_equal(ngx_modelgw_splice(pool, cl, moved, n, &out, &grown),
                     NGX_OK);

    len = read_chain(out, got);
    unit_assert_str(got, len, (char *) want);
    assert_int_equal(grown, (off_t) len - (off_t) (before + strlen(doc)));
}


static void
check(ngx_pool_t *pool, ngx_chain_t *in, const char *doc,
    ngx_modelgw_cut_t *cuts, ngx_uint_t n)
{
    check_after(pool, 0, in, doc, cuts, n);
    check_after(pool, 256 - 12, in, doc, cuts, n);
    check_after(pool, LONG, in, doc, cuts, n);
}


static void
test_every_cut(void **state)
{
    size_t             first, size, from, to;
    kind_e             kind;
    ngx_pool_t        *pool;
    ngx_uint_t         t;
    ngx_chain_t       *in;
    ngx_modelgw_cut_t  cut;
    static ngx_str_t   texts[] = { ngx_string("X"), ngx_null_string,
                                   ngx_string("\"a longer text\"") };

    write_file(DOC, SIZE);

    for (kind = 0; kind < KINDS; kind++) {
        for (first = 1; first <= SIZE; first++) {

            pool = unit_pool_create();
            size = (first % 3) ? SIZE : 1 + first / 3;
            in = make_chain(pool, DOC, SIZE, first, size, kind);

            for (from = 0; from <= SIZE; from++) {
                for (to = from; to <= SIZE; to++) {
                    for (t = 0; t < 3; t++) {
                        cut.from = from;
                        cut.to = to;
                        cut.text = texts[t];

                        check(pool, in, DOC, &cut, 1);
                    }
                }
            }

            ngx_destroy_pool(pool);
        }
    }
}


static void
test_several_cuts(void **state)
{
    size_t             first, size;
    kind_e             kind;
    ngx_uint_t         i;
    ngx_chain_t       *in;

    static struct {
        ngx_uint_t         n;
        ngx_modelgw_cut_t  cuts[5];
    } cases[] = {
        { 0, { { 0, 0, ngx_null_string } } },
        { 2, { { 0, 0, ngx_string("<") },
               { SIZE, SIZE, ngx_string(">") } } },
        { 2, { { 3, 5, ngx_string("X") }, { 5, 7, ngx_string("Y") } } },
        { 3, { { 4, 4, ngx_string("1") }, { 4, 4, ngx_string("2") },
               { 4, 6, ngx_string("3") } } },
        { 3, { { 2, 2, ngx_null_string }, { 2, 9, ngx_null_string },
               { 9, 9, ngx_string("Z") } } },
        { 2, { { 0, SIZE, ngx_null_string },
               { SIZE, SIZE, ngx_string("all") } } },
        { 5, { { 0, 1, ngx_string("A") }, { 2, 3, ngx_string("BB") },
               { 7, 15, ngx_string("C") }, { 16, 16, ngx_string("DDDD") },
               { 19, 20, ngx_null_string } } },
        { 3, { { SIZE - 1, SIZE, ngx_string("x") },
               { SIZE, SIZE, ngx_string("y") },
               { SIZE, SIZE, ngx_string("z") } } }
    };

    write_file(DOC, SIZE);

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (kind = 0; kind < KINDS; kind++) {
            for (first = 1; first <= SIZE; first++) {
                for (size = 1; size <= SIZE; size += 3) {
                    in = make_chain(*state, DOC, SIZE, first, size, kind);
                    check(*state, in, DOC, cases[i].cuts, cases[i].n);
                }
            }
        }
    }
}


static void
test_refused(void **state)
{
    off_t         grown;
    ngx_uint_t    i;
    ngx_chain_t  *in, *out;

    static struct {
        ngx_uint_t         n;
        ngx_modelgw_cut_t  cuts[2];
    } cases[] = {
        { 1, { { SIZE, SIZE + 1, ngx_string("x") } } },
        { 1, { { SIZE + 1, SIZE + 1, ngx_string("x") } } },
        { 1, { { 3, SIZE + 1, ngx_null_string } } },
        { 1, { { -1, 2, ngx_null_string } } },
        { 1, { { 5, 4, ngx_null_string } } },
        { 2, { { 2, 6, ngx_null_string }, { 5, 7, ngx_null_string } } },
        { 2, { { 7, 8, ngx_null_string }, { 2, 3, ngx_null_string } } }
    };

    in = make_chain(*state, DOC, SIZE, 7, 6, IN_MEMORY);

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(ngx_modelgw_splice(*state, in, cases[i].cuts,
                                            cases[i].n, &out, &grown),
                         NGX_ERROR);
    }
}


/* in is not changed; out refers to it, except for the beginning */

static void
test_in_is_kept(void **state)
{
    off_t              grown;
    ngx_buf_t          before[3], *b;
    ngx_uint_t         i;
    ngx_chain_t       *in, *out, *cl;
    ngx_modelgw_cut_t  cut = { 4, 13, ngx_string("text") };

    write_file(DOC, SIZE);
    in = make_chain(*state, DOC, SIZE, 7, 7, MIXED);

    for (cl = in, i = 0; cl; cl = cl->next, i++) {
        before[i] = *cl->buf;
    }

    assert_int_equal(i, 3);
    assert_int_equal(ngx_modelgw_splice(*state, in, &cut, 1, &out, &grown),
                     NGX_OK);
    assert_int_equal(grown, -5);

    for (cl = in, i = 0; cl; cl = cl->next, i++) {
        assert_memory_equal(&before[i], cl->buf, sizeof(ngx_buf_t));
    }

    b = out->buf;
    unit_assert_str(b->pos, b->last - b->pos, "0123text");
    assert_true(b->temporary);

    b = out->next->buf;
    assert_true(b->in_file && !ngx_buf_in_memory(b));
    assert_ptr_equal(b->file, &file);
    assert_int_equal(b->file_pos, 3 + 13);
    assert_int_equal(b->file_last, 3 + 14);

    b = out->next->next->buf;
    assert_ptr_equal(b->pos, before[2].pos);
    assert_true(b->temporary);
    assert_null(out->next->next->next);
}


/* empty bufs are skipped; an empty document is valid, too */

static void
test_empty_bufs(void **state)
{
    off_t              grown;
    ngx_chain_t       *in, *out;
    ngx_modelgw_cut_t  cut = { 2, 4, ngx_string("X") };

    in = link_buf(*state, DOC, 0, 0, IN_MEMORY);
    in->buf->flush = 1;
    in->next = link_buf(*state, DOC, 0, 3, IN_MEMORY);
    in->next->next = link_buf(*state, DOC, 3, 3, IN_FILE);
    in->next->next->next = link_buf(*state, DOC, 3, 10, IN_MEMORY);
    in->next->next->next->next = link_buf(*state, DOC, 0, 0, IN_MEMORY);
    in->next->next->next->next->buf->last_buf = 1;

    check(*state, in, "0123456789", &cut, 1);

    assert_int_equal(ngx_modelgw_splice(*state, NULL, NULL, 0, &out, &grown),
                     NGX_OK);
    assert_null(out);
    assert_int_equal(grown, 0);

    cut.from = 0;
    cut.to = 0;
    check(*state, NULL, "", &cut, 1);
}


/* scanned in any pieces, spliced over any bufs */

static void
test_p9_scan_and_splice(void **state)
{
    size_t                       first, at, n;
    kind_e                       kind;
    ngx_pool_t                  *pool;
    ngx_uint_t                   i;
    ngx_chain_t                 *in;
    ngx_modelgw_cut_t            cut;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_scan_conf_t      conf;
    ngx_modelgw_scan_value_t    *v;
    ngx_modelgw_skip_variant_t  *variants;

    static const char  doc[] =
        " {\"x\":{\"model\":\"no\"} ,\n \"mod\\u0065l\" :\t\"a\\\"\\u0042\""
        " , \"messages\":[\"\\\"model\\\":\\\"no\\\"\", 1.50]}\n";

    static ngx_modelgw_scan_watch_t  watches[] = {
        { ngx_string("model"), NGX_MODELGW_SCAN_STRING }
    };

    memset(&conf, 0, sizeof(conf));
    variants = ngx_modelgw_skip_variants(&i);
    conf.watches = watches;
    conf.nwatches = 1;
    conf.check = 1;
    conf.skip = variants[0].skip;

    write_file(doc, sizeof(doc) - 1);

    for (first = 1; first < sizeof(doc); first++) {
        pool = unit_pool_create();

        s = ngx_modelgw_scan_create(pool, &conf);
        assert_non_null(s);

        for (at = 0; at < sizeof(doc) - 1; at += n) {
            n = ngx_min(first, sizeof(doc) - 1 - at);
            assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) doc + at, n),
                             NGX_OK);
        }

        assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);

        v = ngx_modelgw_scan_value(s, 0);
        unit_assert_str(v->text, v->len, "a\"B");

        cut.from = v->from;
        cut.to = v->to;
        ngx_str_set(&cut.text, "\"upstream-model\"");

        for (kind = 0; kind < KINDS; kind++) {
            in = make_chain(pool, doc, sizeof(doc) - 1, first, first, kind);
            check(pool, in, doc, &cut, 1);
        }

        ngx_destroy_pool(pool);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_every_cut),
        unit_case(test_several_cuts),
        unit_case(test_refused),
        unit_case(test_in_is_kept),
        unit_case(test_empty_bufs),
        cmocka_unit_test(test_p9_scan_and_splice)
    };

    return cmocka_run_group_tests(tests, open_file, NULL);
}
