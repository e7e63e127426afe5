
/*
 * The memo of scanners: what was read before is skipped, by its owner and with
 * its plan only, and never is a result another one than without a memo.  Which
 * bytes may be skipped is counted exactly; t/fuzz/fuzz_scan.c compares results.
 */


#include "unit_scan.h"
#include "unit_memory.h"

#include "ngx_modelgw_memo.h"


#define LINK    NGX_MODELGW_PREFIX_UNIT
#define STATES  3
#define LINKS   (16 * STATES)            /* that a memo knows */

#define OPEN    "{\"model\":\"a\",\"x\":\""
#define CLOSE   "\",\"n\":1}"


typedef struct {
    ngx_pool_t             *pool;
    ngx_modelgw_memo_t     *memo;
    ngx_modelgw_scan_t     *scan;
    ngx_modelgw_scan_t     *other;       /* of another plan */
} memo_t;


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("n"), NGX_MODELGW_SCAN_NUMBER }
};


static ngx_str_t  owner = ngx_string("owner");
static ngx_str_t  another = ngx_string("another");


static ngx_modelgw_scan_t *
scanner(ngx_pool_t *pool)
{
    ngx_uint_t                 n;
    ngx_modelgw_scan_t        *s;
    ngx_modelgw_scan_conf_t    conf;
    ngx_modelgw_scan_plan_t   *plan;

    memset(&conf, 0, sizeof(conf));

    conf.watches = watches;
    conf.nwatches = sizeof(watches) / sizeof(watches[0]);
    conf.check = 1;
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    plan = ngx_modelgw_scan_plan(pool, &conf);
    assert_non_null(plan);

    s = ngx_modelgw_scan_make(pool, plan);
    assert_non_null(s);

    return s;
}


static int
setup(void **state)
{
    memo_t      *t;
    ngx_pool_t  *pool;

    static u_char  secret[NGX_MODELGW_PREFIX_KEY] = "of a test";

    pool = unit_pool_create();

    t = ngx_pcalloc(pool, sizeof(memo_t));
    assert_non_null(t);

    t->pool = pool;
    t->memo = ngx_modelgw_memo_create(pool, STATES, LINK, secret);
    assert_non_null(t->memo);

    t->scan = scanner(pool);
    t->other = scanner(pool);

    *state = t;

    return 0;
}


static int
teardown(void **state)
{
    memo_t  *t = *state;

    ngx_destroy_pool(t->pool);

    return 0;
}


/* a document of n links and 100 bytes more, which a letter tells from others */

static ngx_str_t
document(ngx_pool_t *pool, ngx_uint_t n, u_char letter)
{
    ngx_str_t  doc;

    doc.len = n * LINK + 100;
    doc.data = ngx_pnalloc(pool, doc.len);
    assert_non_null(doc.data);

    memset(doc.data, letter, doc.len);
    memcpy(doc.data, OPEN, sizeof(OPEN) - 1);
    memcpy(doc.data + doc.len - (sizeof(CLOSE) - 1), CLOSE, sizeof(CLOSE) - 1);

    return doc;
}


/* reads the document, in pieces that may wait; returns the bytes skipped */

static size_t
read_doc(memo_t *t, ngx_modelgw_scan_t *s, ngx_str_t *name, ngx_str_t *doc,
    size_t piece, ngx_int_t *rc)
{
    size_t                     at, n;
    uint64_t                   skipped;
    ngx_modelgw_memo_read_t    r;

    skipped = ngx_modelgw_memo_skipped(t->memo);

    ngx_modelgw_scan_reset(s);
    ngx_modelgw_memo_begin(t->memo, &r, s, name, doc->len);

    *rc = NGX_OK;

    for (at = 0; at < doc->len && *rc == NGX_OK; at += n) {
        n = ngx_min(piece, doc->len - at);
        *rc = ngx_modelgw_memo_feed(&r, doc->data + at, n, 1);
    }

    if (*rc == NGX_OK) {
        *rc = ngx_modelgw_memo_feed(&r, doc->data + at, 0, 0);
    }

    if (*rc == NGX_OK) {
        *rc = ngx_modelgw_scan_done(s);
    }

    return ngx_modelgw_memo_skipped(t->memo) - skipped;
}


/* one that is valid */

static size_t
skipped(memo_t *t, ngx_str_t *name, ngx_str_t *doc)
{
    size_t                     n;
    ngx_int_t                  rc;
    ngx_modelgw_scan_value_t  *v;

    n = read_doc(t, t->scan, name, doc, 300, &rc);
    assert_int_equal(rc, NGX_OK);

    v = ngx_modelgw_scan_value(t->scan, 0);
    assert_int_equal(v->type, NGX_MODELGW_SCAN_STRING);
    assert_int_equal(v->len, 1);
    assert_int_equal(v->text[0], 'a');

    v = ngx_modelgw_scan_value(t->scan, 1);
    assert_int_equal(v->from, (off_t) doc->len - 2);

    return n;
}


/* a document that is new, until there is a state of it */

static void
make(memo_t *t, ngx_str_t *doc)
{
    assert_int_equal(skipped(t, &owner, doc), 0);
    assert_int_equal(skipped(t, &owner, doc), 0);
}


static void
test_again(void **state)
{
    memo_t     *t = *state;
    size_t      piece;
    ngx_str_t   doc;
    ngx_int_t   rc;

    doc = document(t->pool, 4, 'a');

    assert_int_equal(skipped(t, &owner, &doc), 0);
    assert_int_equal(skipped(t, &owner, &doc), 0);
    assert_int_equal(skipped(t, &owner, &doc), 4 * LINK);
    assert_int_equal(skipped(t, &owner, &doc), 4 * LINK);

    for (piece = 1; piece <= doc.len; piece += 1 + piece / 3) {
        assert_int_equal(read_doc(t, t->scan, &owner, &doc, piece, &rc),
                         4 * LINK);
        assert_int_equal(rc, NGX_OK);
    }
}


/* a conversation: what is new is scanned, and known at the next turn */

static void
test_grown(void **state)
{
    memo_t      *t = *state;
    ngx_str_t    doc;
    ngx_uint_t   n;

    for (n = 1; n < 12; n++) {
        doc = document(t->pool, n, 'a');

        assert_int_equal(skipped(t, &owner, &doc), (n < 3) ? 0 : (n - 1) * LINK);
    }

    /* shorter than the last one: there is no state but of the last links */

    doc = document(t->pool, 2, 'a');
    assert_int_equal(skipped(t, &owner, &doc), 0);
}


static void
test_owners_and_plans(void **state)
{
    memo_t      *t = *state;
    ngx_str_t    doc;
    ngx_int_t    rc;
    ngx_uint_t   i;

    doc = document(t->pool, 4, 'a');

    for (i = 0; i < 2; i++) {
        assert_int_equal(skipped(t, &owner, &doc), 0);
        assert_int_equal(skipped(t, &another, &doc), 0);
        assert_int_equal(read_doc(t, t->other, &owner, &doc, 300, &rc), 0);
        assert_int_equal(rc, NGX_OK);
    }

    assert_int_equal(skipped(t, &owner, &doc), 4 * LINK);
    assert_int_equal(skipped(t, &another, &doc), 4 * LINK);
    assert_int_equal(read_doc(t, t->other, &owner, &doc, 300, &rc), 4 * LINK);
}


/* a byte that is another one, anywhere: what follows is scanned */

static void
test_changed(void **state)
{
    memo_t     *t = *state;
    size_t      at;
    ngx_str_t   doc;
    ngx_int_t   rc;

    doc = document(t->pool, 2, 'a');
    make(t, &doc);

    for (at = sizeof(OPEN) - 1; at < 2 * LINK; at++) {
        doc.data[at] = '\n';

        assert_int_equal(read_doc(t, t->scan, &owner, &doc, 300, &rc), 0);
        assert_int_equal(rc, NGX_DECLINED);

        doc.data[at] = 'a';
    }
}


/* what was refused is refused again, with the same words */

static void
test_fault(void **state)
{
    memo_t       *t = *state;
    size_t        at;
    ngx_str_t     doc;
    ngx_int_t     rc;
    ngx_uint_t    i, n;
    unit_scan_t   plain, memo;

    n = sizeof(watches) / sizeof(watches[0]);

    for (at = 100; at < 3 * LINK + 80; at += 97) {
        doc = document(t->pool, 3, 'a' + at / 97);
        doc.data[at] = '\t';

        unit_scan_once(t->scan, n, doc.data, doc.len, doc.len, &plain);
        assert_int_equal(plain.rc, NGX_DECLINED);

        for (i = 0; i < 4; i++) {
            assert_int_equal(read_doc(t, t->scan, &owner, &doc, 300, &rc),
                             (i > 1 && at > 3 * LINK) ? 3 * LINK : 0);

            unit_scan_result(t->scan, n, rc, &memo);
            unit_scan_same(&plain, &memo, "memo", at, doc.data, doc.len);
        }
    }
}


/* no more states than there may be: the one not used for longest goes */

static void
test_states(void **state)
{
    memo_t      *t = *state;
    ngx_str_t    docs[STATES + 1];
    ngx_uint_t   i;

    for (i = 0; i <= STATES; i++) {
        docs[i] = document(t->pool, 2, 'a' + i);
    }

    for (i = 0; i < STATES; i++) {
        make(t, &docs[i]);
    }

    assert_int_equal(skipped(t, &owner, &docs[0]), 2 * LINK);
    make(t, &docs[STATES]);

    assert_int_equal(skipped(t, &owner, &docs[0]), 2 * LINK);
    assert_int_equal(skipped(t, &owner, &docs[STATES]), 2 * LINK);
    assert_int_equal(skipped(t, &owner, &docs[2]), 2 * LINK);

    /* its links are known, its state is not: it is made again */

    assert_int_equal(skipped(t, &owner, &docs[1]), 0);
    assert_int_equal(skipped(t, &owner, &docs[1]), 2 * LINK);
}


/* nor links: a state goes with its link */

static void
test_links(void **state)
{
    memo_t      *t = *state;
    ngx_str_t    doc, large;
    ngx_uint_t   i;

    doc = document(t->pool, 2, 'a');
    make(t, &doc);

    large = document(t->pool, LINKS - 2, 'b');
    make(t, &large);
    assert_int_equal(skipped(t, &owner, &doc), 2 * LINK);

    large = document(t->pool, LINKS, 'c');

    make(t, &large);
    assert_int_equal(skipped(t, &owner, &large), LINKS * LINK);

    assert_int_equal(skipped(t, &owner, &doc), 0);

    /* more than there are: its own first links go */

    large = document(t->pool, LINKS + 10, 'd');

    for (i = 0; i < 3; i++) {
        (void) skipped(t, &owner, &large);
    }
}


static void
test_short(void **state)
{
    memo_t      *t = *state;
    ngx_str_t    doc;
    ngx_uint_t   i;

    doc = document(t->pool, 0, 'a');

    for (i = 0; i < 3; i++) {
        assert_int_equal(skipped(t, &owner, &doc), 0);
    }
}


/* without memory for a state there is none, and the document is read */

static void
test_memory(void **state)
{
    memo_t     *t = *state;
    ngx_str_t   doc;

    doc = document(t->pool, 4, 'a');
    assert_int_equal(skipped(t, &owner, &doc), 0);

    unit_memory_n = 0;
    unit_memory_failing = 1;
    assert_int_equal(skipped(t, &owner, &doc), 0);
    unit_memory_failing = 0;

    assert_int_equal(skipped(t, &owner, &doc), 0);
    assert_int_equal(skipped(t, &owner, &doc), 4 * LINK);
}


int
main(void)
{
    ngx_uint_t  n;

    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup_teardown(test_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_owners_and_plans, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fault, setup, teardown),
        cmocka_unit_test_setup_teardown(test_states, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown)
    };

    (void) ngx_modelgw_prefix_variants(&n);

    if (n == 0) {
        print_message("no instructions for the hash: there is no memo\n");
        return 0;
    }

    return cmocka_run_group_tests(tests, NULL, NULL);
}
