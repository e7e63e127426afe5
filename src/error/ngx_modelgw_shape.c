
/*
 * What looks like a URL, a credential or a host, told by its shape alone.  Of
 * these rules the first that matches counts:
 *
 *     URL         scheme://, to a blank, a quote or the sentence's end
 *     credential  see ngx_modelgw_secret.c
 *     host        a name with a known last label, or an IPv4 address; with its
 *                 port and path
 *
 * Texts of APIs are full of words that come close, and they must pass.  So a
 * host has no label of digits alone (messages.0.to), does not go on as an
 * identifier, and with two labels only those last ones count that are neither
 * usual words nor endings of files (main.py, message.id).
 *
 * Rejected: regular expressions; they need a bound on what hostile text makes
 * them do.  Here each rule reads a word once.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_secret.h"
#include "ngx_modelgw_shape.h"


#define NGX_MODELGW_SHAPE_SCHEME  16
#define NGX_MODELGW_SHAPE_HOST    255    /* RFC 1035, section 2.3.4 */


typedef size_t (*ngx_modelgw_shape_pt)(u_char *start, u_char *p, u_char *last);


typedef struct {
    ngx_str_t             label;
    size_t                labels;        /* at least so many before it */
} ngx_modelgw_shape_label_t;


static size_t ngx_modelgw_shape_url(u_char *start, u_char *p, u_char *last);
static size_t ngx_modelgw_shape_host(u_char *start, u_char *p, u_char *last);
static ngx_uint_t ngx_modelgw_shape_is_host(u_char *p, u_char *last);
static ngx_uint_t ngx_modelgw_shape_is_address(u_char *p, u_char *last);
static u_char *ngx_modelgw_shape_url_end(u_char *p, u_char *last);
static ngx_uint_t ngx_modelgw_shape_digits(u_char *p, u_char *last);


static ngx_modelgw_shape_pt  ngx_modelgw_shape_rules[] = {
    ngx_modelgw_shape_url,
    ngx_modelgw_secret_find,
    ngx_modelgw_shape_host,
    NULL
};


/* last labels of hosts; reserved ones: RFC 2606, RFC 6762, RFC 9476 */

static ngx_modelgw_shape_label_t  ngx_modelgw_shape_labels[] = {
    { ngx_string("localhost"), 0 },
    { ngx_string("com"), 1 },
    { ngx_string("net"), 1 },
    { ngx_string("org"), 1 },
    { ngx_string("io"), 1 },
    { ngx_string("ai"), 1 },
    { ngx_string("eu"), 1 },
    { ngx_string("dev"), 2 },
    { ngx_string("app"), 2 },
    { ngx_string("cloud"), 2 },
    { ngx_string("co"), 2 },
    { ngx_string("de"), 2 },
    { ngx_string("fr"), 2 },
    { ngx_string("nl"), 2 },
    { ngx_string("ch"), 2 },
    { ngx_string("se"), 2 },
    { ngx_string("uk"), 2 },
    { ngx_string("us"), 2 },
    { ngx_string("cn"), 2 },
    { ngx_string("jp"), 2 },
    { ngx_string("kr"), 2 },
    { ngx_string("ru"), 2 },
    { ngx_string("svc"), 2 },
    { ngx_string("local"), 2 },
    { ngx_string("internal"), 2 },
    { ngx_string("lan"), 2 },
    { ngx_string("test"), 2 },
    { ngx_string("example"), 2 },
    { ngx_string("invalid"), 2 },
    { ngx_string("alt"), 2 },
    { ngx_null_string, 0 }
};


size_t
ngx_modelgw_shape_find(u_char *start, u_char *p, u_char *last)
{
    size_t                 n;
    ngx_modelgw_shape_pt  *rule;

    if (p > start && (ngx_modelgw_shape_alnum(p[-1]) || p[-1] == '_')) {
        return 0;
    }

    for (rule = ngx_modelgw_shape_rules; *rule; rule++) {

        n = (*rule)(start, p, last);

        if (n) {
            return n;
        }
    }

    return 0;
}


/* RFC 3986, section 3.1 */

static size_t
ngx_modelgw_shape_url(u_char *start, u_char *p, u_char *last)
{
    u_char  *end;

    end = p + ngx_min(last - p, NGX_MODELGW_SHAPE_SCHEME);
    end = ngx_modelgw_shape_run(p, end, "+-.");

    if (end == p || last - end < 3 || ngx_memcmp(end, "://", 3) != 0) {
        return 0;
    }

    return ngx_modelgw_shape_url_end(end + 3, last) - p;
}


static size_t
ngx_modelgw_shape_host(u_char *start, u_char *p, u_char *last)
{
    u_char  *end;

    if (p > start && ngx_modelgw_shape_one_of(p[-1], "-.")) {
        return 0;
    }

    end = ngx_modelgw_shape_run(p, last, "-.");

    if (end - p > NGX_MODELGW_SHAPE_HOST || (end < last && *end == '_')) {
        return 0;
    }

    while (end > p && ngx_modelgw_shape_one_of(end[-1], "-.")) {
        end--;
    }

    if (!ngx_modelgw_shape_is_host(p, end)
        && !ngx_modelgw_shape_is_address(p, end))
    {
        return 0;
    }

    return ngx_modelgw_shape_tail(end, last) - p;
}


static ngx_uint_t
ngx_modelgw_shape_is_host(u_char *p, u_char *last)
{
    size_t                      n;
    u_char                     *dot;
    ngx_modelgw_shape_label_t  *l;

    for (n = 0; /* void */ ; n++) {

        dot = memchr(p, '.', last - p);

        if (dot == NULL) {
            break;
        }

        if (ngx_modelgw_shape_digits(p, dot)) {
            return 0;
        }

        p = dot + 1;
    }

    for (l = ngx_modelgw_shape_labels; l->label.len; l++) {
        if (l->label.len == (size_t) (last - p)
            && l->labels <= n
            && ngx_memcmp(l->label.data, p, l->label.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_modelgw_shape_is_address(u_char *p, u_char *last)
{
    u_char      *dot;
    ngx_int_t    byte;
    ngx_uint_t   n;

    for (n = 1; /* void */ ; n++) {

        dot = memchr(p, '.', last - p);

        byte = ngx_atoi(p, (dot ? dot : last) - p);

        if (byte == NGX_ERROR || byte > 255) {
            return 0;
        }

        if (dot == NULL) {
            return n == 4;
        }

        p = dot + 1;
    }
}


/* Whether there is nothing but digits. */

static ngx_uint_t
ngx_modelgw_shape_digits(u_char *p, u_char *last)
{
    while (p < last && ngx_modelgw_shape_digit(*p)) {
        p++;
    }

    return p == last;
}


u_char *
ngx_modelgw_shape_tail(u_char *p, u_char *last)
{
    if (last - p > 1 && *p == ':' && ngx_modelgw_shape_digit(p[1])) {
        for (p++; p < last && ngx_modelgw_shape_digit(*p); p++) { /* void */ }
    }

    if (p < last && *p == '/') {
        p = ngx_modelgw_shape_url_end(p, last);
    }

    return p;
}


/* A URL in a text ends before a blank, a quote or the sentence's own marks. */

static u_char *
ngx_modelgw_shape_url_end(u_char *p, u_char *last)
{
    u_char  *start;

    start = p;

    while (p < last
           && *p > ' '
           && !ngx_modelgw_shape_one_of(*p, "\"'`<>\\"))
    {
        p++;
    }

    while (p > start && ngx_modelgw_shape_one_of(p[-1], ".,;:!?)]}")) {
        p--;
    }

    return p;
}


u_char *
ngx_modelgw_shape_run(u_char *p, u_char *last, const char *extra)
{
    while (p < last
           && (ngx_modelgw_shape_alnum(*p)
               || ngx_modelgw_shape_one_of(*p, extra)))
    {
        p++;
    }

    return p;
}


ngx_uint_t
ngx_modelgw_shape_one_of(u_char ch, const char *set)
{
    return ch != '\0' && ngx_strchr(set, ch) != NULL;
}


ngx_uint_t
ngx_modelgw_shape_alnum(u_char ch)
{
    return ngx_modelgw_shape_digit(ch)
           || (ch >= 'a' && ch <= 'z')
           || (ch >= 'A' && ch <= 'Z');
}


ngx_uint_t
ngx_modelgw_shape_digit(u_char ch)
{
    return ch >= '0' && ch <= '9';
}
