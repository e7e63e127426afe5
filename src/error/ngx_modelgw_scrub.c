
/*
 * An upstream's text for clients: assistants match on it, so it stays as it is
 * but for these, of which the first that matches counts:
 *
 *     the group's credential, anywhere        -> [redacted]
 *     the upstream's model id, whole          -> the service's model id
 *     the name of the upstream block, whole,  -> [redacted], port and path too
 *     if it is a host or has a port
 *     what looks like a URL, a host or a key  -> [redacted], see
 *                                                ngx_modelgw_shape.c
 *
 * "Whole" means in any case, but not as a part of a longer identifier: "m-1" is
 * not found in "m-1-mini", "m-1.5" or "xm-1", but in "models/m-1" and before a
 * full stop.  What was put in is not looked at again, so a service's model id
 * that looks like a host or a key passes.
 *
 * The text is scrubbed before it is cut, so that no half of a secret remains.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scrub.h"
#include "ngx_modelgw_shape.h"


#define NGX_MODELGW_SCRUB_SECRET  8      /* shorter ones only as whole words */


typedef struct {
    ngx_modelgw_error_mask_t  *mask;
    u_char                    *start;
    u_char                    *last;
} ngx_modelgw_scrub_t;


static void ngx_modelgw_scrub_cut(ngx_str_t *text, size_t max);
static size_t ngx_modelgw_scrub_match(ngx_modelgw_scrub_t *s, u_char *p,
    ngx_str_t **with);
static size_t ngx_modelgw_scrub_secret(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_host(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_whole(ngx_modelgw_scrub_t *s, u_char *p,
    ngx_str_t *name, const char *joins);
static ngx_uint_t ngx_modelgw_scrub_word(u_char ch);


static ngx_str_t  ngx_modelgw_scrub_redacted = ngx_string("[redacted]");


ngx_int_t
ngx_modelgw_scrub(ngx_pool_t *pool, ngx_modelgw_error_mask_t *mask,
    ngx_str_t *text, size_t max, ngx_str_t *out)
{
    size_t                n;
    u_char               *p, *q;
    ngx_str_t            *with;
    ngx_modelgw_scrub_t   s;

    n = ngx_max(mask->service_model.len, ngx_modelgw_scrub_redacted.len);

    out->data = ngx_pnalloc(pool, max + 1 + n);
    if (out->data == NULL) {
        return NGX_ERROR;
    }

    s.mask = mask;
    s.start = text->data;
    s.last = text->data + text->len;

    q = out->data;

    for (p = s.start; p < s.last && (size_t) (q - out->data) <= max; p += n) {

        n = ngx_modelgw_scrub_match(&s, p, &with);

        if (n == 0) {
            *q++ = *p;
            n = 1;
            continue;
        }

        q = ngx_cpymem(q, with->data, with->len);
    }

    out->len = q - out->data;

    ngx_modelgw_scrub_cut(out, max);

    return NGX_OK;
}


/* RFC 3629, section 3: 10xxxxxx goes on with a character, at most three do. */

static void
ngx_modelgw_scrub_cut(ngx_str_t *text, size_t max)
{
    size_t  n;

    if (text->len <= max) {
        return;
    }

    for (n = 0; n < 3 && n < max; n++) {
        if ((text->data[max - n] & 0xc0) != 0x80) {
            break;
        }
    }

    text->len = max - n;
}


static size_t
ngx_modelgw_scrub_match(ngx_modelgw_scrub_t *s, u_char *p, ngx_str_t **with)
{
    size_t  n;

    *with = &ngx_modelgw_scrub_redacted;

    n = ngx_modelgw_scrub_secret(s, p);

    if (n) {
        return n;
    }

    n = ngx_modelgw_scrub_whole(s, p, &s->mask->upstream_model, "-.:/@+");

    if (n) {
        *with = &s->mask->service_model;
        return n;
    }

    n = ngx_modelgw_scrub_host(s, p);

    if (n) {
        return n;
    }

    return ngx_modelgw_shape_find(s->start, p, s->last);
}


static size_t
ngx_modelgw_scrub_secret(ngx_modelgw_scrub_t *s, u_char *p)
{
    ngx_str_t  *secret;

    secret = &s->mask->credential;

    if (secret->len < NGX_MODELGW_SCRUB_SECRET) {
        return ngx_modelgw_scrub_whole(s, p, secret, "-.:/@+");
    }

    if (secret->len > (size_t) (s->last - p)
        || ngx_memcmp(p, secret->data, secret->len) != 0)
    {
        return 0;
    }

    return secret->len;
}


/*
 * A name of one label may be a usual word: "mock overloaded".  Then it is a
 * host only with a port.  Other names have a dot, or the colon of IPv6.
 */

static size_t
ngx_modelgw_scrub_host(ngx_modelgw_scrub_t *s, u_char *p)
{
    size_t      n;
    u_char     *end;
    ngx_str_t  *host;

    host = &s->mask->upstream_host;

    n = ngx_modelgw_scrub_whole(s, p, host, "-.");
    end = p + n;

    if (n == 0
        || (ngx_strlchr(host->data, host->data + n, '.') == NULL
            && ngx_strlchr(host->data, host->data + n, ':') == NULL
            && (s->last - end < 2 || *end != ':'
                || !ngx_modelgw_shape_digit(end[1]))))
    {
        return 0;
    }

    return ngx_modelgw_shape_tail(end, s->last) - p;
}


/*
 * The length of the name, if it stands at p and no longer one does: no letter,
 * digit or '_' is beside it, and none of joins with a letter or digit beyond.
 */

static size_t
ngx_modelgw_scrub_whole(ngx_modelgw_scrub_t *s, u_char *p, ngx_str_t *name,
    const char *joins)
{
    u_char  *end;

    if (name->len == 0
        || name->len > (size_t) (s->last - p)
        || ngx_strncasecmp(p, name->data, name->len) != 0)
    {
        return 0;
    }

    end = p + name->len;

    if ((p > s->start && ngx_modelgw_scrub_word(p[-1]))
        || (end < s->last && ngx_modelgw_scrub_word(*end)))
    {
        return 0;
    }

    /* ':' and '/' join what follows, but not what precedes: "models/NAME" */

    if (p - s->start > 1
        && ngx_modelgw_shape_one_of(p[-1], "-.@+")
        && ngx_modelgw_shape_alnum(p[-2]))
    {
        return 0;
    }

    if (s->last - end > 1
        && ngx_modelgw_shape_one_of(*end, joins)
        && ngx_modelgw_shape_alnum(end[1]))
    {
        return 0;
    }

    return name->len;
}


static ngx_uint_t
ngx_modelgw_scrub_word(u_char ch)
{
    return ch == '_' || ngx_modelgw_shape_alnum(ch);
}
