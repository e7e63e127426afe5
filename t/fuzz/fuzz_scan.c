
/*
 * libFuzzer: the scanner.  The first byte of the input seeds the cuts and
 * chooses whether keys are checked, the rest is a document.  Read whole, read
 * in pieces, read with the scalar loop, and read by a copy after each piece it
 * must give the same result, the same error text, the same values and counts; a
 * value must be where it is reported to be; and what passes must pass yajl,
 * which is less strict, with the same counts.
 *
 * Put on a tape while it is read, it must give the same, too, and a tape that
 * agrees with a slow walk over the document.
 *
 * Read by a memo that knows it, or the most of it, it must give the same, too:
 * with spaces before it, so that it has some links.
 */


#include "stub.h"

#include <yajl/yajl_parse.h>

#include "unit_tape.h"

#include "ngx_modelgw_memo.h"
#include "ngx_modelgw_scan.h"


#define SPACES  1500                     /* and up to 255 more */
#define LINK    NGX_MODELGW_PREFIX_UNIT


typedef struct {
    ngx_int_t    rc;
    ngx_uint_t   kind;
    u_char       fault[NGX_MODELGW_SCAN_FAULT_LEN];
    size_t       len;
} verdict_t;


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL },
    { ngx_string("n"), NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    { ngx_string("k"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("k.s"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("k.s.o"), NGX_MODELGW_SCAN_NUMBER },
    { ngx_string("o"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("o.n"), NGX_MODELGW_SCAN_ANY }
};

#define NWATCHES  (sizeof(watches) / sizeof(watches[0]))

static ngx_modelgw_scan_mark_t  marks[] = {
    { ngx_string("n"), ngx_null_string },
    { ngx_string("url"), ngx_null_string },
    { ngx_string("url"), ngx_string("data:") },
    { ngx_string("s"), ngx_string("k") },
    { ngx_string("ask_for_it"), ngx_null_string },
    { ngx_string("model"), ngx_string("\n\xc3\xa9") },
    { ngx_string("\xc3\xa9"), ngx_null_string }
};

#define NMARKS  (sizeof(marks) / sizeof(marks[0]))


/* marks as read by yajl; due: the last key has that name */

typedef struct {
    ngx_uint_t   counts[NMARKS];
    int          due[NMARKS];
} counted_t;


static ngx_str_t  denied[] = { ngx_string("models"), ngx_string("aPi") };


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
check(int ok)
{
    if (!ok) {
        abort();
    }
}


static void
end_doc(ngx_modelgw_scan_t *s, ngx_int_t rc, verdict_t *v)
{
    ngx_str_t  text;

    memset(v, 0, sizeof(verdict_t));

    v->rc = (rc == NGX_OK) ? ngx_modelgw_scan_done(s) : rc;

    if (v->rc != NGX_OK) {
        text.data = v->fault;
        v->kind = ngx_modelgw_scan_fault(s, &text);
        v->len = text.len;
        check(text.len > 0 && text.len <= NGX_MODELGW_SCAN_FAULT_LEN);
    }
}


/*
 * seed 0: whole; the pieces are of 1 to 40 bytes; spare: another scanner reads
 * on after each, and the first one has the end
 */

static void
read_doc(ngx_modelgw_scan_t *s, const uint8_t *doc, size_t len, uint32_t seed,
    ngx_modelgw_scan_t *spare, verdict_t *v)
{
    size_t      at, n, size;
    u_char     *piece;
    ngx_int_t   rc;

    rc = NGX_OK;

    for (at = 0; at < len && rc == NGX_OK; at += n) {
        n = len - at;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = ngx_min(n, 1 + (seed >> 16) % 40);
        }

        piece = malloc(n);
        check(piece != NULL);

        memcpy(piece, doc + at, n);

        if (spare) {
            size = ngx_modelgw_scan_size(ngx_modelgw_scan_plan_of(s));

            memset(spare, 0xa5, size);
            ngx_modelgw_scan_copy(spare, s);
            memset(s, 0xa5, size);

            rc = ngx_modelgw_scan_feed(spare, piece, n);
            ngx_modelgw_scan_copy(s, spare);

        } else {
            rc = ngx_modelgw_scan_feed(s, piece, n);
        }

        free(piece);
    }

    end_doc(s, rc, v);
}


/*
 * the pieces are of 1 to 800 bytes; some of them may wait, and some are elsewhere
 * in memory
 */

static void
read_memo(ngx_modelgw_memo_t *m, ngx_modelgw_scan_t *s, ngx_str_t *owner,
    u_char *doc, size_t len, uint32_t seed, verdict_t *v)
{
    size_t                    at, n;
    u_char                   *copy;
    ngx_int_t                 rc;
    ngx_modelgw_memo_read_t   r;

    copy = malloc(len);
    check(copy != NULL);
    memcpy(copy, doc, len);

    rc = NGX_OK;

    ngx_modelgw_scan_reset(s);
    ngx_modelgw_memo_begin(m, &r, s, owner, len);

    for (at = 0; at < len && rc == NGX_OK; at += n) {
        seed = seed * 1103515245 + 12345;
        n = ngx_min(len - at, 1 + (seed >> 16) % 800);

        rc = ngx_modelgw_memo_feed(&r, ((seed >> 12) % 4 ? doc : copy) + at, n,
                                   (seed >> 8) % 8 != 0);
    }

    if (rc == NGX_OK) {
        rc = ngx_modelgw_memo_feed(&r, doc + len, 0, 0);
    }

    free(copy);

    end_doc(s, rc, v);
}


static void
same_values(ngx_modelgw_scan_t *a, ngx_modelgw_scan_t *b)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *v, *w;

    for (i = 0; i < NWATCHES; i++) {
        v = ngx_modelgw_scan_value(a, i);
        w = ngx_modelgw_scan_value(b, i);

        check(v->type == w->type);

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            continue;
        }

        check(v->from == w->from && v->to == w->to);
        check(v->elements == w->elements && v->len == w->len);

        if (v->len <= NGX_MODELGW_SCAN_TEXT) {
            check(memcmp(v->text, w->text, v->len) == 0);
        }
    }
}


static void
same_marks(ngx_modelgw_scan_t *a, ngx_modelgw_scan_t *b)
{
    ngx_uint_t  i;

    for (i = 0; i < NMARKS; i++) {
        check(ngx_modelgw_scan_mark(a, i) == ngx_modelgw_scan_mark(b, i));
    }
}


/* the first and the last byte of a token fit its type */

static void
sound_values(ngx_modelgw_scan_t *s, const uint8_t *doc, size_t len)
{
    ngx_uint_t                 i;
    const char                *first, *last;
    ngx_modelgw_scan_value_t  *v;

    for (i = 0; i < NWATCHES; i++) {
        v = ngx_modelgw_scan_value(s, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            continue;
        }

        check(v->type & watches[i].types);
        check(v->from >= 0 && v->from < v->to && v->to <= (off_t) len);

        first = (v->type & NGX_MODELGW_SCAN_STRING) ? "\""
                : (v->type & NGX_MODELGW_SCAN_OBJECT) ? "{"
                : (v->type & NGX_MODELGW_SCAN_ARRAY) ? "["
                : (v->type & NGX_MODELGW_SCAN_NUMBER) ? "-0123456789"
                : "tfn";
        last = (v->type & NGX_MODELGW_SCAN_STRING) ? "\""
               : (v->type & NGX_MODELGW_SCAN_OBJECT) ? "}"
               : (v->type & NGX_MODELGW_SCAN_ARRAY) ? "]"
               : (v->type & NGX_MODELGW_SCAN_NUMBER) ? "0123456789"
               : "el";

        check(strchr(first, doc[v->from]) != NULL);
        check(strchr(last, doc[v->to - 1]) != NULL);
    }
}


/* whether they differ in letter case, U+017F and U+212A only */

static int
folds(ngx_str_t *name, const unsigned char *p, size_t len)
{
    size_t               i;
    const unsigned char *last;

    last = p + len;

    for (i = 0; i < name->len && p < last; i++) {

        if (name->data[i] == 's' && last - p >= 2
            && memcmp(p, "\xc5\xbf", 2) == 0)
        {
            p += 2;

        } else if (name->data[i] == 'k' && last - p >= 3
                   && memcmp(p, "\xe2\x84\xaa", 3) == 0)
        {
            p += 3;

        } else if (name->data[i]
                   == ((*p >= 'A' && *p <= 'Z') ? *p + 'a' - 'A' : *p))
        {
            p++;

        } else {
            return 0;
        }
    }

    return i == name->len && p == last;
}


/* yajl reads half a surrogate pair as '?', which we do not */

static int
yajl_key(void *ctx, const unsigned char *p, size_t len)
{
    ngx_uint_t  i;
    counted_t  *c;

    c = ctx;

    for (i = 0; i < NMARKS; i++) {
        c->due[i] = folds(&marks[i].name, p, len);

        if (marks[i].value.len == 0) {
            c->counts[i] += c->due[i];
        }
    }

    return 1;
}


static int
yajl_text(void *ctx, const unsigned char *p, size_t len)
{
    ngx_uint_t  i;
    counted_t  *c;

    c = ctx;

    for (i = 0; i < NMARKS; i++) {
        if (c->due[i] && marks[i].value.len && marks[i].value.len <= len
            && memcmp(marks[i].value.data, p, marks[i].value.len) == 0)
        {
            c->counts[i]++;
        }

        c->due[i] = 0;
    }

    return 1;
}


/* a string that follows is not a member's value */

static int
yajl_none(void *ctx)
{
    counted_t  *c;

    c = ctx;
    memset(c->due, 0, sizeof(c->due));

    return 1;
}


static void
passes_yajl(const uint8_t *doc, size_t len, ngx_modelgw_scan_t *s)
{
    counted_t              counted;
    ngx_uint_t             i;
    yajl_handle            h;
    static yajl_callbacks  members = {
        .yajl_map_key = yajl_key,
        .yajl_string = yajl_text,
        .yajl_start_array = yajl_none,
        .yajl_end_map = yajl_none
    };

    memset(&counted, 0, sizeof(counted));

    h = yajl_alloc(&members, NULL, &counted);
    check(h != NULL);

    check(yajl_parse(h, doc, len) == yajl_status_ok);
    check(yajl_complete_parse(h) == yajl_status_ok);

    yajl_free(h);

    for (i = 0; i < NMARKS; i++) {
        check(counted.counts[i] == ngx_modelgw_scan_mark(s, i));
    }
}


/* a: the scanner that has read it whole, to that verdict; the tape is used */

static void
taped(ngx_modelgw_scan_t *a, ngx_modelgw_scan_t *b,
    const uint8_t *doc, size_t len, uint32_t seed, ngx_modelgw_tape_t *tape,
    verdict_t *whole)
{
    verdict_t  other;

    ngx_modelgw_tape_reset(tape);
    ngx_modelgw_scan_reset(b);
    ngx_modelgw_scan_tape(b, tape);
    read_doc(b, doc, len, seed, NULL, &other);

    check(memcmp(whole, &other, sizeof(verdict_t)) == 0);
    same_values(a, b);
    same_marks(a, b);

    if (whole->rc == NGX_OK) {
        check(ngx_modelgw_tape_done(tape, (u_char *) doc) == NGX_OK);
        check(unit_tape_sound(tape, doc, len));
    }
}


/*
 * A memo of few states, which forgets some: the document is new, known, known
 * up to its last byte, and another owner's.
 */

static void
remembered(ngx_pool_t *pool, ngx_modelgw_scan_t *a, ngx_modelgw_scan_t *b,
    const uint8_t *data, size_t size)
{
    size_t               len;
    u_char              *doc;
    uint64_t             skipped;
    ngx_uint_t           i;
    verdict_t            whole, other;
    ngx_modelgw_memo_t  *m;

    static u_char     secret[NGX_MODELGW_PREFIX_KEY] = "not a secret";
    static ngx_str_t  owner = ngx_string("owner");
    static ngx_str_t  another = ngx_string("another");

    m = ngx_modelgw_memo_create(pool, 2, LINK, secret);

    if (m == NULL) {
        return;
    }

    len = SPACES + data[0] + size - 1;

    doc = malloc(len);
    check(doc != NULL);

    memset(doc, ' ', len);
    memcpy(doc + len - (size - 1), data + 1, size - 1);

    for (i = 0; i < 7; i++) {
        skipped = ngx_modelgw_memo_skipped(m);

        ngx_modelgw_scan_reset(a);
        read_doc(a, doc, len, 0, NULL, &whole);

        read_memo(m, b, (i == 6) ? &another : &owner, doc, len,
                  i + 7 * data[0], &other);

        check(memcmp(&whole, &other, sizeof(verdict_t)) == 0);
        same_values(a, b);
        same_marks(a, b);

        if (i <= 1 || i == 6) {
            check(ngx_modelgw_memo_skipped(m) == skipped);

        } else if (whole.rc == NGX_OK && len % LINK) {
            check(ngx_modelgw_memo_skipped(m) > skipped);
        }

        if (i == 3 || i == 4) {
            doc[len - 1] ^= 1 + data[0] % 127;
        }
    }

    free(doc);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    verdict_t                     whole, other;
    ngx_pool_t                   *pool;
    ngx_uint_t                    n;
    ngx_modelgw_scan_t           *a, *b, *c;
    ngx_modelgw_tape_t            tape;
    ngx_modelgw_scan_conf_t       conf, scalar;
    ngx_modelgw_skip_variant_t   *variants;

    if (size == 0) {
        return 0;
    }

    pool = stub_pool_create();
    check(pool != NULL);

    variants = ngx_modelgw_skip_variants(&n);

    memset(&conf, 0, sizeof(conf));
    conf.watches = watches;
    conf.nwatches = NWATCHES;
    conf.denied = denied;
    conf.ndenied = 2;
    conf.check = data[0] & 1;
    conf.skip = variants[0].skip;
    conf.marks = marks;
    conf.nmarks = NMARKS;

    scalar = conf;
    scalar.skip = variants[n - 1].skip;

    a = ngx_modelgw_scan_create(pool, &conf);
    b = ngx_modelgw_scan_create(pool, &conf);
    c = ngx_modelgw_scan_create(pool, &scalar);
    check(a && b && c);

    read_doc(a, data + 1, size - 1, 0, NULL, &whole);

    /* a scanner after a reset works like a new one */

    read_doc(b, data + 1, size - 1, 4711 + data[0], NULL, &other);
    ngx_modelgw_scan_reset(b);
    read_doc(b, data + 1, size - 1, 1 + data[0], NULL, &other);
    check(memcmp(&whole, &other, sizeof(verdict_t)) == 0);
    same_values(a, b);
    same_marks(a, b);

    read_doc(c, data + 1, size - 1, 0, NULL, &other);
    check(memcmp(&whole, &other, sizeof(verdict_t)) == 0);
    same_values(a, c);
    same_marks(a, c);

    ngx_modelgw_scan_reset(b);
    read_doc(b, data + 1, size - 1, 1 + data[0], c, &other);
    check(memcmp(&whole, &other, sizeof(verdict_t)) == 0);
    same_values(a, b);
    same_marks(a, b);

    ngx_modelgw_tape_init(&tape, pool, conf.skip);

    taped(a, b, data + 1, size - 1, 0, &tape, &whole);
    taped(a, b, data + 1, size - 1, 1 + data[0], &tape, &whole);

    sound_values(a, data + 1, size - 1);

    if (whole.rc == NGX_OK) {
        passes_yajl(data + 1, size - 1, a);
    }

    remembered(pool, a, b, data, size);

    ngx_destroy_pool(pool);

    return 0;
}
