
/*
 * Running one document through the scanner at every chunk size and with every
 * variant of the string loop; all must agree in every visible result.
 */


#ifndef _UNIT_SCAN_H_INCLUDED_
#define _UNIT_SCAN_H_INCLUDED_


#include "unit.h"

#include "ngx_modelgw_scan.h"


typedef struct {
    ngx_uint_t                type;
    ngx_uint_t                elements;
    off_t                     from;
    off_t                     to;
    size_t                    len;
    u_char                    text[NGX_MODELGW_SCAN_TEXT];
} unit_scan_value_t;


typedef struct {
    ngx_int_t                 rc;
    ngx_uint_t                kind;
    ngx_uint_t                nvalues;
    size_t                    len;       /* of the fault's text */
    u_char                    fault[NGX_MODELGW_SCAN_FAULT_LEN + 1];
    unit_scan_value_t         values[NGX_MODELGW_SCAN_MAX_WATCHES];
} unit_scan_t;


/* reads the results of a scanner after a document */

static ngx_inline void
unit_scan_result(ngx_modelgw_scan_t *s, ngx_uint_t n, ngx_int_t rc,
    unit_scan_t *r)
{
    ngx_str_t                  text;
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *v;

    memset(r, 0, sizeof(unit_scan_t));

    r->rc = rc;
    r->nvalues = n;

    if (rc != NGX_OK) {
        text.data = r->fault;
        r->kind = ngx_modelgw_scan_fault(s, &text);
        r->len = text.len;
        assert_true(text.len <= NGX_MODELGW_SCAN_FAULT_LEN);
        r->fault[text.len] = '\0';
    }

    for (i = 0; i < n; i++) {
        v = ngx_modelgw_scan_value(s, i);
        r->values[i].type = v->type;

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            continue;
        }

        r->values[i].elements = v->elements;
        r->values[i].from = v->from;
        r->values[i].to = v->to;
        r->values[i].len = v->len;

        if (v->len <= NGX_MODELGW_SCAN_TEXT) {
            memcpy(r->values[i].text, v->text, v->len);
        }
    }
}


static ngx_inline void
unit_scan_once(ngx_modelgw_scan_t *s, ngx_uint_t n, const void *doc,
    size_t len, size_t chunk, unit_scan_t *r)
{
    u_char     *piece;
    size_t      at, size;
    ngx_int_t   rc;

    rc = NGX_OK;
    ngx_modelgw_scan_reset(s);

    for (at = 0; at < len; at += size) {
        size = ngx_min(chunk, len - at);

        /* no scanner may read outside its piece, or an earlier one */

        piece = unit_dup((u_char *) doc + at, size);
        rc = ngx_modelgw_scan_feed(s, piece, size);
        unit_free(piece);

        if (rc != NGX_OK) {
            break;
        }
    }

    if (rc == NGX_OK) {
        rc = ngx_modelgw_scan_done(s);

    } else {
        assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) "}", 1),
                         NGX_DECLINED);
        assert_int_equal(ngx_modelgw_scan_done(s), NGX_DECLINED);
    }

    unit_scan_result(s, n, rc, r);
}


static ngx_inline void
unit_scan_same(unit_scan_t *a, unit_scan_t *b, const char *what, size_t chunk,
    const void *doc, size_t len)
{
    if (memcmp(a, b, sizeof(unit_scan_t)) == 0) {
        return;
    }

    print_error("%s, chunks of %zu: %d \"%s\" instead of %d \"%s\": %.*s\n",
                what, chunk, (int) b->rc, b->fault, (int) a->rc, a->fault,
                (int) ngx_min(len, 200), (const char *) doc);
    fail();
}


/* every chunk size and every variant; *r is the common result */

static ngx_inline void
unit_scan(ngx_pool_t *pool, ngx_modelgw_scan_conf_t *conf, const void *doc,
    size_t len, unit_scan_t *r)
{
    size_t                       chunk;
    ngx_uint_t                   i, k, n;
    unit_scan_t                  again;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_skip_variant_t  *v;

    v = ngx_modelgw_skip_variants(&n);

    for (k = 0; k < n; k++) {
        conf->skip = v[k].skip;

        s = ngx_modelgw_scan_create(pool, conf);
        assert_non_null(s);

        for (i = 0; /* void */ ; i++) {
            chunk = unit_chunk(i, len);

            if (chunk == 0) {
                break;
            }

            unit_scan_once(s, conf->nwatches, doc, len, chunk, &again);

            if (k == 0 && i == 0) {
                *r = again;
            }

            unit_scan_same(r, &again, (char *) v[k].name.data, chunk, doc,
                           len);
        }
    }
}


#endif /* _UNIT_SCAN_H_INCLUDED_ */
