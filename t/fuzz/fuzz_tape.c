
/*
 * libFuzzer: the tape.  The first byte of the input seeds the cuts, the rest
 * is a document.  Fed whole, in pieces and with the scalar loop it must be the
 * same tape, whatever the document is, and reading from it must stay inside
 * the document.  If the scanner accepts the document as JSON, the tape must
 * agree with a slow walk over it.
 */


#include "unit.h"
#include "unit_tape.h"

#include "ngx_modelgw_scan.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
check(int ok)
{
    if (!ok) {
        abort();
    }
}


/* seed 0: whole; the pieces are of 1 to 40 bytes */

static ngx_int_t
feed(ngx_modelgw_tape_t *tape, const uint8_t *doc, size_t len, uint32_t seed)
{
    size_t   at, n;
    u_char  *piece;

    for (at = 0; at < len; at += n) {
        n = len - at;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = ngx_min(n, 1 + (seed >> 16) % 40);
        }

        piece = malloc(n);
        check(piece != NULL);

        memcpy(piece, doc + at, n);
        check(ngx_modelgw_tape_feed(tape, piece, n) == NGX_OK);
        free(piece);
    }

    return ngx_modelgw_tape_done(tape, (u_char *) doc);
}


static void
same(ngx_modelgw_tape_t *a, ngx_modelgw_tape_t *b)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *v, *w;

    check(a->n == b->n);

    for (i = 0; i < a->n; i++) {
        v = &a->nodes[i];
        w = &b->nodes[i];

        check(v->from == w->from && v->to == w->to && v->after == w->after);
        check(v->type == w->type && v->count == w->count);
    }
}


/* the text is not longer than the string, and blank if reported so */

static void
read_string(ngx_modelgw_tape_t *tape, ngx_pool_t *pool,
    ngx_modelgw_node_t *node)
{
    size_t      i;
    ngx_str_t   inside, text;
    ngx_uint_t  blank;

    ngx_modelgw_tape_inside(tape, node, &inside);
    check(ngx_modelgw_tape_text(tape, pool, node, &text) == NGX_OK);
    check(text.len <= inside.len);

    blank = 1;

    for (i = 0; i < text.len; i++) {
        if (text.data[i] == '\0' || !strchr(" \t\n\v\f\r", text.data[i])) {
            blank = 0;
        }
    }

    check(ngx_modelgw_tape_blank(tape, node) == blank);
}


static void
read_all(ngx_modelgw_tape_t *tape, ngx_pool_t *pool, size_t len)
{
    ngx_str_t            raw;
    ngx_uint_t           i, k, n, count;
    ngx_modelgw_node_t  *node, *child, *values[4];

    static ngx_str_t  names[] = {
        ngx_string("a\n"), ngx_string("type"), ngx_string(""),
        ngx_string("t")
    };

    for (i = 0; i < tape->n; i++) {
        node = &tape->nodes[i];

        check(node->from < node->to && node->to <= len);
        check(node->after > i && node->after <= tape->n);

        if (node->type == NGX_MODELGW_TAPE_STRING) {
            read_string(tape, pool, node);
        }

        if (ngx_modelgw_tape_count(tape, node, &n)) {
            ngx_modelgw_tape_raw(tape, node, &raw);
            check(ngx_atoi(raw.data, raw.len) == (ngx_int_t) n);
        }

        ngx_modelgw_tape_members(tape, node, names, 4, values);

        for (k = 0; k < 4; k++) {
            check(values[k] == ngx_modelgw_tape_member(tape, node,
                                                   (char *) names[k].data));
        }

        count = 0;
        child = ngx_modelgw_tape_first(tape, node);

        for ( /* void */ ; child; count++) {
            check(child->from > node->from && child->to < node->to);
            child = ngx_modelgw_tape_next(tape, node, child);
        }

        check(count == 0 || node->count != 0 || count == 1);
    }
}


static ngx_int_t
is_json(ngx_pool_t *pool, ngx_modelgw_skip_pt skip, const uint8_t *doc,
    size_t len)
{
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.skip = skip;

    s = ngx_modelgw_scan_create(pool, &conf);
    check(s != NULL);

    return ngx_modelgw_scan_feed(s, (u_char *) doc, len) == NGX_OK
           && ngx_modelgw_scan_done(s) == NGX_OK;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char                      *doc;
    size_t                       len;
    ngx_int_t                    rc;
    ngx_uint_t                   n;
    ngx_pool_t                  *pool;
    ngx_modelgw_tape_t           a, b, c;
    ngx_modelgw_skip_variant_t  *variants;

    if (size == 0) {
        return 0;
    }

    pool = unit_pool_create();
    len = size - 1;
    doc = unit_dup(data + 1, len);

    variants = ngx_modelgw_skip_variants(&n);

    ngx_modelgw_tape_init(&a, pool, variants[0].skip);
    ngx_modelgw_tape_init(&b, pool, variants[0].skip);
    ngx_modelgw_tape_init(&c, pool, variants[n - 1].skip);

    rc = feed(&a, doc, len, 0);

    /* a tape after a reset works like a new one */

    (void) feed(&b, doc, len, 4711 + data[0]);
    ngx_modelgw_tape_reset(&b);

    check(feed(&b, doc, len, 1 + data[0]) == rc);
    check(feed(&c, doc, len, 0) == rc);

    same(&a, &b);
    same(&a, &c);

    if (rc == NGX_OK) {
        read_all(&a, pool, len);
    }

    if (is_json(pool, variants[0].skip, doc, len)) {
        check(rc == NGX_OK);
        check(unit_tape_sound(&a, doc, len));
    }

    unit_free(doc);
    ngx_destroy_pool(pool);

    return 0;
}
