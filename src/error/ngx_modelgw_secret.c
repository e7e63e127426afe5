
/*
 * What looks like a credential.  Of these rules the first that matches counts:
 *
 *     bearer  "Bearer " and a word with digits, stars or mixed case
 *     key     a known beginning (sk-, AIza, ...) and enough behind it
 *     token   32 and more letters, digits, + / - _ that look random
 *
 * Names of tools and models can be long, too, with a date or a version in them:
 * mcp__files__read_multiple_files_v2.  So a token looks random only if it has
 * letters and digits, and 20 of them in one piece, or all in hex (a UUID), or
 * changing all the time.  Ids that people quote to a support have a table.
 *
 * Rejected: entropy.  It needs more text than a key has to tell a key from a
 * name, and nobody can say beforehand what it will find.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_secret.h"
#include "ngx_modelgw_shape.h"


#define NGX_MODELGW_SECRET_TOKEN  32
#define NGX_MODELGW_SECRET_PIECE  20


typedef struct {
    ngx_str_t             start;
    size_t                min;           /* bytes behind it */
} ngx_modelgw_secret_key_t;


/* what a word is made of */

typedef struct {
    size_t                len;
    ngx_uint_t            letters;
    ngx_uint_t            digits;
    ngx_uint_t            hex;           /* of the letters, those up to F */
    ngx_uint_t            stars;
    ngx_uint_t            changes;       /* letter to digit or back, lower case
                                            to upper */
    size_t                piece;         /* longest with letters and digits */
} ngx_modelgw_secret_word_t;


static size_t ngx_modelgw_secret_bearer(u_char *p, u_char *last);
static size_t ngx_modelgw_secret_key(u_char *p, u_char *last);
static size_t ngx_modelgw_secret_token(u_char *start, u_char *p, u_char *last);
static ngx_uint_t ngx_modelgw_secret_is_random(ngx_modelgw_secret_word_t *w);
static void ngx_modelgw_secret_look(u_char *p, u_char *last,
    ngx_modelgw_secret_word_t *w);
static ngx_uint_t ngx_modelgw_secret_starts(u_char *p, u_char *last,
    ngx_str_t *with);


static ngx_modelgw_secret_key_t  ngx_modelgw_secret_keys[] = {
    { ngx_string("sk-"), 8 },
    { ngx_string("sk_"), 8 },
    { ngx_string("AIza"), 8 },
    { ngx_string("eyJ"), 16 },           /* a JWT, RFC 7519: {" in base64url */
    { ngx_string("pk-"), 16 },
    { ngx_string("rk_"), 16 },
    { ngx_string("gsk_"), 16 },
    { ngx_string("xai-"), 16 },
    { ngx_string("hf_"), 16 },
    { ngx_string("ghp_"), 16 },
    { ngx_string("AKIA"), 16 },
    { ngx_string("ya29."), 16 },
    { ngx_string("org-"), 16 },
    { ngx_string("proj_"), 16 },
    { ngx_null_string, 0 }
};


static ngx_str_t  ngx_modelgw_secret_ids[] = {
    ngx_string("req_"), ngx_string("msg_"), ngx_string("resp_"),
    ngx_string("toolu_"), ngx_string("srvtoolu_"), ngx_string("tooluse_"),
    ngx_string("call_"), ngx_string("call-"), ngx_string("fc_"),
    ngx_string("chatcmpl-"), ngx_string("cmpl-"), ngx_string("gen-"),
    ngx_string("run_"), ngx_string("batch_"),
    ngx_string("file_"), ngx_string("file-"),
    ngx_null_string
};


size_t
ngx_modelgw_secret_find(u_char *start, u_char *p, u_char *last)
{
    size_t  n;

    n = ngx_modelgw_secret_bearer(p, last);

    if (n == 0) {
        n = ngx_modelgw_secret_key(p, last);
    }

    if (n == 0) {
        n = ngx_modelgw_secret_token(start, p, last);
    }

    return n;
}


/* RFC 6750, section 2.1; the scheme in any case */

static size_t
ngx_modelgw_secret_bearer(u_char *p, u_char *last)
{
    u_char                     *key, *end;
    ngx_modelgw_secret_word_t   w;

    if (last - p < 7 || ngx_strncasecmp(p, (u_char *) "bearer ", 7) != 0) {
        return 0;
    }

    for (key = p + 7; key < last && *key == ' '; key++) { /* void */ }

    end = ngx_modelgw_shape_run(key, last, "-._~+/=*");

    while (end > key && end[-1] == '.') {
        end--;
    }

    ngx_modelgw_secret_look(key, end, &w);

    if (w.len < 6 || (w.digits == 0 && w.stars == 0 && w.changes == 0)) {
        return 0;
    }

    return end - p;
}


static size_t
ngx_modelgw_secret_key(u_char *p, u_char *last)
{
    u_char                     *rest, *end;
    ngx_modelgw_secret_key_t   *key;
    ngx_modelgw_secret_word_t   w;

    for (key = ngx_modelgw_secret_keys; key->start.len; key++) {

        if (!ngx_modelgw_secret_starts(p, last, &key->start)) {
            continue;
        }

        rest = p + key->start.len;
        end = ngx_modelgw_shape_run(rest, last, "-._*");

        while (end > rest && end[-1] == '.') {
            end--;
        }

        ngx_modelgw_secret_look(rest, end, &w);

        /* a short one counts if it has digits, or stars for what it had */

        if (w.len >= key->min
            || (key->min <= 8 && w.len > 2 && w.digits + w.stars != 0))
        {
            return end - p;
        }
    }

    return 0;
}


static size_t
ngx_modelgw_secret_token(u_char *start, u_char *p, u_char *last)
{
    u_char                     *end;
    ngx_str_t                  *id;
    ngx_modelgw_secret_word_t   w;

    if (p > start && ngx_modelgw_shape_one_of(p[-1], "-+/")) {
        return 0;
    }

    end = ngx_modelgw_shape_run(p, last, "-_+/");

    if (end - p < NGX_MODELGW_SECRET_TOKEN) {
        return 0;
    }

    for (id = ngx_modelgw_secret_ids; id->len; id++) {
        if (ngx_modelgw_secret_starts(p, end, id)) {
            return 0;
        }
    }

    ngx_modelgw_secret_look(p, end, &w);

    if (!ngx_modelgw_secret_is_random(&w)) {
        return 0;
    }

    /* RFC 4648, section 3.2: padding */

    while (end < last && *end == '=') {
        end++;
    }

    return end - p;
}


static ngx_uint_t
ngx_modelgw_secret_is_random(ngx_modelgw_secret_word_t *w)
{
    if (w->letters == 0 || w->digits == 0) {
        return 0;
    }

    if (w->piece >= NGX_MODELGW_SECRET_PIECE || w->changes >= w->len / 4) {
        return 1;
    }

    return w->hex == w->letters
           && w->letters + w->digits >= NGX_MODELGW_SECRET_TOKEN;
}


static void
ngx_modelgw_secret_look(u_char *p, u_char *last,
    ngx_modelgw_secret_word_t *w)
{
    u_char  *start, ch, prev, kinds;

    enum {
        none = 0,
        digit = 1,
        lower = 2,
        upper = 4
    } kind;

    ngx_memzero(w, sizeof(ngx_modelgw_secret_word_t));

    w->len = last - p;

    start = p;
    prev = none;
    kinds = none;

    for ( /* void */ ; p < last; p++, prev = kind) {

        ch = *p;

        if (!ngx_modelgw_shape_alnum(ch)) {
            kind = none;
            kinds = none;
            start = p + 1;
            w->stars += (ch == '*');
            continue;
        }

        if (ngx_modelgw_shape_digit(ch)) {
            kind = digit;
            w->digits++;

        } else {
            kind = (ch >= 'a') ? lower : upper;
            w->letters++;
            w->hex += ((ch | 0x20) <= 'f');
        }

        kinds |= kind;

        if ((prev == lower && kind == upper)
            || (prev && (prev == digit) != (kind == digit)))
        {
            w->changes++;
        }

        if ((kinds & digit) && (kinds & (lower|upper))) {
            w->piece = ngx_max(w->piece, (size_t) (p + 1 - start));
        }
    }
}


static ngx_uint_t
ngx_modelgw_secret_starts(u_char *p, u_char *last, ngx_str_t *with)
{
    return with->len <= (size_t) (last - p)
           && ngx_memcmp(p, with->data, with->len) == 0;
}
