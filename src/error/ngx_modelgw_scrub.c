
/*
 * An upstream's text for clients: assistants match on it, so it stays as it is
 * but for these, of which the first that matches counts:
 *
 *     the group's credential, anywhere        -> [redacted]
 *     the upstream's model id, whole          -> the service's model id
 *     the name of the upstream block, whole,  -> [redacted], port and path too
 *     if it is a host or has a port
 *     a URL, scheme://, up to a blank, a      -> [redacted]
 *     quote or the end of the sentence
 *     "Bearer " and a word with digits,       -> [redacted]
 *     stars or mixed case
 *     a known prefix of keys (sk-, AIza, ...) -> [redacted]
 *     with enough bytes after it
 *     32 or more letters, digits, + / - _     -> [redacted]
 *     that look random
 *     a name with a known last label, or an   -> [redacted], port and path too
 *     IPv4 address
 *
 * "Whole" means in any case, but not as a part of a longer identifier: "m-1" is
 * not found in "m-1-mini", "m-1.5" or "xm-1", but in "models/m-1" and before a
 * full stop.  Replacements are not scanned again, so a service's model id that
 * looks like a host or a key is kept.
 *
 * The text is scrubbed before it is cut, so that no half of a secret remains.
 *
 * Texts of APIs are full of words that come close to hosts and keys, and they
 * must be kept:
 *
 *     hosts   no label is digits alone (messages.0.to), the name is not part of
 *             an identifier, and after a single label only those last labels
 *             count that are neither usual words nor extensions of files
 *             (main.py, message.id)
 *
 *     tokens  names of tools and models can be long, with a date or a version:
 *             mcp__files__read_multiple_files_v2.  A token looks random only if
 *             it has letters and digits, and a run of 20 of them, or hex digits
 *             only (a UUID), or changes between kinds all the time.  Ids that
 *             users quote to support (req_..., msg_...) are listed.
 *
 * Rejected: regular expressions; hostile text needs a bound on their work, and
 * here each rule reads a word once.  Rejected: entropy; it needs more text than
 * a key has to tell a key from a name, and its results cannot be predicted.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_error.h"


/* a shorter credential is replaced as a whole word only; bytes */
#define NGX_MODELGW_SCRUB_CREDENTIAL  8

#define NGX_MODELGW_SCRUB_SCHEME      16     /* bytes of a URL's scheme */
#define NGX_MODELGW_SCRUB_HOST        255    /* RFC 1035, section 2.3.4 */
#define NGX_MODELGW_SCRUB_TOKEN       32     /* bytes, at least */
#define NGX_MODELGW_SCRUB_RUN         20     /* bytes, at least */


typedef struct {
    ngx_modelgw_error_mask_t  *mask;
    u_char                    *start;
    u_char                    *last;
} ngx_modelgw_scrub_t;


/* the number of bytes that match at p, 0: none */
typedef size_t (*ngx_modelgw_scrub_pt)(ngx_modelgw_scrub_t *s, u_char *p);


typedef struct {
    ngx_str_t                  start;
    size_t                     min;          /* bytes after it */
} ngx_modelgw_scrub_key_t;


typedef struct {
    ngx_str_t                  name;
    size_t                     labels;       /* before it, at least */
} ngx_modelgw_scrub_label_t;


/* the characters of a word, counted */

typedef struct {
    size_t                     len;
    ngx_uint_t                 letters;
    ngx_uint_t                 digits;
    ngx_uint_t                 hex;          /* letters a-f, A-F */
    ngx_uint_t                 stars;
    ngx_uint_t                 changes;      /* between letter and digit, from
                                                lower case to upper */
    size_t                     run;          /* longest of letters and digits
                                                that has both */
} ngx_modelgw_scrub_word_t;


static void ngx_modelgw_scrub_cut(ngx_str_t *text, size_t max);
static size_t ngx_modelgw_scrub_match(ngx_modelgw_scrub_t *s, u_char *p,
    ngx_str_t **with);
static size_t ngx_modelgw_scrub_credential(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_upstream(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_whole(ngx_modelgw_scrub_t *s, u_char *p,
    ngx_str_t *name, const char *joins);
static size_t ngx_modelgw_scrub_shape(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_url(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_bearer(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_key(ngx_modelgw_scrub_t *s, u_char *p);
static size_t ngx_modelgw_scrub_token(ngx_modelgw_scrub_t *s, u_char *p);
static ngx_uint_t ngx_modelgw_scrub_is_random(ngx_modelgw_scrub_word_t *w);
static void ngx_modelgw_scrub_count(u_char *p, u_char *last,
    ngx_modelgw_scrub_word_t *w);
static ngx_uint_t ngx_modelgw_scrub_starts(u_char *p, u_char *last,
    ngx_str_t *with);
static size_t ngx_modelgw_scrub_host(ngx_modelgw_scrub_t *s, u_char *p);
static ngx_uint_t ngx_modelgw_scrub_is_host(u_char *p, u_char *last);
static ngx_uint_t ngx_modelgw_scrub_is_address(u_char *p, u_char *last);
static u_char *ngx_modelgw_scrub_host_end(u_char *p, u_char *last);
static u_char *ngx_modelgw_scrub_url_end(u_char *p, u_char *last);
static u_char *ngx_modelgw_scrub_run(u_char *p, u_char *last,
    const char *extra);
static u_char *ngx_modelgw_scrub_digits(u_char *p, u_char *last);
static ngx_uint_t ngx_modelgw_scrub_is_word(u_char ch);
static ngx_uint_t ngx_modelgw_scrub_one_of(u_char ch, const char *set);
static ngx_uint_t ngx_modelgw_scrub_alnum(u_char ch);
static ngx_uint_t ngx_modelgw_scrub_digit(u_char ch);


static ngx_str_t  ngx_modelgw_scrub_redacted = ngx_string("[redacted]");


/* at the start of a word */

static ngx_modelgw_scrub_pt  ngx_modelgw_scrub_shapes[] = {
    ngx_modelgw_scrub_url,
    ngx_modelgw_scrub_bearer,
    ngx_modelgw_scrub_key,
    ngx_modelgw_scrub_token,
    ngx_modelgw_scrub_host,
    NULL
};


static ngx_modelgw_scrub_key_t  ngx_modelgw_scrub_keys[] = {
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


/* prefixes of ids that are kept */

static ngx_str_t  ngx_modelgw_scrub_ids[] = {
    ngx_string("req_"), ngx_string("msg_"), ngx_string("resp_"),
    ngx_string("toolu_"), ngx_string("srvtoolu_"), ngx_string("tooluse_"),
    ngx_string("call_"), ngx_string("call-"), ngx_string("fc_"),
    ngx_string("chatcmpl-"), ngx_string("cmpl-"), ngx_string("gen-"),
    ngx_string("run_"), ngx_string("batch_"),
    ngx_string("file_"), ngx_string("file-"),
    ngx_null_string
};


/* last labels of hosts; reserved ones: RFC 2606, RFC 6762, RFC 9476 */

static ngx_modelgw_scrub_label_t  ngx_modelgw_scrub_labels[] = {
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


/* RFC 3629, section 3: a character has at most three bytes 10xxxxxx */

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

    n = ngx_modelgw_scrub_credential(s, p);

    if (n) {
        return n;
    }

    n = ngx_modelgw_scrub_whole(s, p, &s->mask->upstream_model, "-.:/@+");

    if (n) {
        *with = &s->mask->service_model;
        return n;
    }

    n = ngx_modelgw_scrub_upstream(s, p);

    if (n) {
        return n;
    }

    return ngx_modelgw_scrub_shape(s, p);
}


static size_t
ngx_modelgw_scrub_credential(ngx_modelgw_scrub_t *s, u_char *p)
{
    ngx_str_t  *secret;

    secret = &s->mask->credential;

    if (secret->len < NGX_MODELGW_SCRUB_CREDENTIAL) {
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
 * The name of an upstream block with a single label may be a usual word ("mock
 * overloaded"): then it counts with a port only.  Other hosts have a dot, or
 * the colon of IPv6.
 */

static size_t
ngx_modelgw_scrub_upstream(ngx_modelgw_scrub_t *s, u_char *p)
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
                || !ngx_modelgw_scrub_digit(end[1]))))
    {
        return 0;
    }

    return ngx_modelgw_scrub_host_end(end, s->last) - p;
}


/*
 * Returns the length of the name if it is at p and not part of a longer one: no
 * letter, digit or '_' is next to it, nor one of joins followed by a letter or
 * digit.
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

    if ((p > s->start && ngx_modelgw_scrub_is_word(p[-1]))
        || (end < s->last && ngx_modelgw_scrub_is_word(*end)))
    {
        return 0;
    }

    /* ':' and '/' join what follows, but not what precedes: "models/NAME" */

    if (p - s->start > 1
        && ngx_modelgw_scrub_one_of(p[-1], "-.@+")
        && ngx_modelgw_scrub_alnum(p[-2]))
    {
        return 0;
    }

    if (s->last - end > 1
        && ngx_modelgw_scrub_one_of(*end, joins)
        && ngx_modelgw_scrub_alnum(end[1]))
    {
        return 0;
    }

    return name->len;
}


static size_t
ngx_modelgw_scrub_shape(ngx_modelgw_scrub_t *s, u_char *p)
{
    size_t                 n;
    ngx_modelgw_scrub_pt  *shape;

    if (p > s->start && ngx_modelgw_scrub_is_word(p[-1])) {
        return 0;
    }

    for (shape = ngx_modelgw_scrub_shapes; *shape; shape++) {

        n = (*shape)(s, p);

        if (n) {
            return n;
        }
    }

    return 0;
}


/* RFC 3986, section 3.1 */

static size_t
ngx_modelgw_scrub_url(ngx_modelgw_scrub_t *s, u_char *p)
{
    u_char  *end;

    end = p + ngx_min(s->last - p, NGX_MODELGW_SCRUB_SCHEME);
    end = ngx_modelgw_scrub_run(p, end, "+-.");

    if (end == p || s->last - end < 3 || ngx_memcmp(end, "://", 3) != 0) {
        return 0;
    }

    return ngx_modelgw_scrub_url_end(end + 3, s->last) - p;
}


/* RFC 6750, section 2.1; the scheme in any case */

static size_t
ngx_modelgw_scrub_bearer(ngx_modelgw_scrub_t *s, u_char *p)
{
    u_char                    *key, *end;
    ngx_modelgw_scrub_word_t   w;

    if (s->last - p < 7 || ngx_strncasecmp(p, (u_char *) "bearer ", 7) != 0) {
        return 0;
    }

    for (key = p + 7; key < s->last && *key == ' '; key++) { /* void */ }

    end = ngx_modelgw_scrub_run(key, s->last, "-._~+/=*");

    while (end > key && end[-1] == '.') {
        end--;
    }

    ngx_modelgw_scrub_count(key, end, &w);

    if (w.len < 6 || (w.digits == 0 && w.stars == 0 && w.changes == 0)) {
        return 0;
    }

    return end - p;
}


static size_t
ngx_modelgw_scrub_key(ngx_modelgw_scrub_t *s, u_char *p)
{
    u_char                    *rest, *end;
    ngx_modelgw_scrub_key_t   *key;
    ngx_modelgw_scrub_word_t   w;

    for (key = ngx_modelgw_scrub_keys; key->start.len; key++) {

        if (!ngx_modelgw_scrub_starts(p, s->last, &key->start)) {
            continue;
        }

        rest = p + key->start.len;
        end = ngx_modelgw_scrub_run(rest, s->last, "-._*");

        while (end > rest && end[-1] == '.') {
            end--;
        }

        ngx_modelgw_scrub_count(rest, end, &w);

        /* a short one counts if it has digits, or stars in place of some */

        if (w.len >= key->min
            || (key->min <= 8 && w.len > 2 && w.digits + w.stars != 0))
        {
            return end - p;
        }
    }

    return 0;
}


static size_t
ngx_modelgw_scrub_token(ngx_modelgw_scrub_t *s, u_char *p)
{
    u_char                    *end;
    ngx_str_t                 *id;
    ngx_modelgw_scrub_word_t   w;

    if (p > s->start && ngx_modelgw_scrub_one_of(p[-1], "-+/")) {
        return 0;
    }

    end = ngx_modelgw_scrub_run(p, s->last, "-_+/");

    if (end - p < NGX_MODELGW_SCRUB_TOKEN) {
        return 0;
    }

    for (id = ngx_modelgw_scrub_ids; id->len; id++) {
        if (ngx_modelgw_scrub_starts(p, end, id)) {
            return 0;
        }
    }

    ngx_modelgw_scrub_count(p, end, &w);

    if (!ngx_modelgw_scrub_is_random(&w)) {
        return 0;
    }

    /* RFC 4648, section 3.2: padding */

    while (end < s->last && *end == '=') {
        end++;
    }

    return end - p;
}


static ngx_uint_t
ngx_modelgw_scrub_is_random(ngx_modelgw_scrub_word_t *w)
{
    if (w->letters == 0 || w->digits == 0) {
        return 0;
    }

    if (w->run >= NGX_MODELGW_SCRUB_RUN || w->changes >= w->len / 4) {
        return 1;
    }

    return w->hex == w->letters
           && w->letters + w->digits >= NGX_MODELGW_SCRUB_TOKEN;
}


static void
ngx_modelgw_scrub_count(u_char *p, u_char *last,
    ngx_modelgw_scrub_word_t *w)
{
    u_char  *start, ch, prev, kinds;

    enum {
        none = 0,
        digit = 1,
        lower = 2,
        upper = 4
    } kind;

    ngx_memzero(w, sizeof(ngx_modelgw_scrub_word_t));

    w->len = last - p;

    start = p;
    prev = none;
    kinds = none;

    for ( /* void */ ; p < last; p++, prev = kind) {

        ch = *p;

        if (!ngx_modelgw_scrub_alnum(ch)) {
            kind = none;
            kinds = none;
            start = p + 1;
            w->stars += (ch == '*');
            continue;
        }

        if (ngx_modelgw_scrub_digit(ch)) {
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
            w->run = ngx_max(w->run, (size_t) (p + 1 - start));
        }
    }
}


static ngx_uint_t
ngx_modelgw_scrub_starts(u_char *p, u_char *last, ngx_str_t *with)
{
    return with->len <= (size_t) (last - p)
           && ngx_memcmp(p, with->data, with->len) == 0;
}


static size_t
ngx_modelgw_scrub_host(ngx_modelgw_scrub_t *s, u_char *p)
{
    u_char  *end;

    if (p > s->start && ngx_modelgw_scrub_one_of(p[-1], "-.")) {
        return 0;
    }

    end = ngx_modelgw_scrub_run(p, s->last, "-.");

    if (end - p > NGX_MODELGW_SCRUB_HOST || (end < s->last && *end == '_')) {
        return 0;
    }

    while (end > p && ngx_modelgw_scrub_one_of(end[-1], "-.")) {
        end--;
    }

    if (!ngx_modelgw_scrub_is_host(p, end)
        && !ngx_modelgw_scrub_is_address(p, end))
    {
        return 0;
    }

    return ngx_modelgw_scrub_host_end(end, s->last) - p;
}


static ngx_uint_t
ngx_modelgw_scrub_is_host(u_char *p, u_char *last)
{
    size_t                      n;
    u_char                     *dot;
    ngx_modelgw_scrub_label_t  *l;

    for (n = 0; /* void */ ; n++) {

        dot = memchr(p, '.', last - p);

        if (dot == NULL) {
            break;
        }

        if (ngx_modelgw_scrub_digits(p, dot) == dot) {
            return 0;
        }

        p = dot + 1;
    }

    for (l = ngx_modelgw_scrub_labels; l->name.len; l++) {
        if (l->name.len == (size_t) (last - p)
            && l->labels <= n
            && ngx_memcmp(l->name.data, p, l->name.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_modelgw_scrub_is_address(u_char *p, u_char *last)
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


/* the port and the path may follow */

static u_char *
ngx_modelgw_scrub_host_end(u_char *p, u_char *last)
{
    if (last - p > 1 && *p == ':' && ngx_modelgw_scrub_digit(p[1])) {
        p = ngx_modelgw_scrub_digits(p + 1, last);
    }

    if (p < last && *p == '/') {
        p = ngx_modelgw_scrub_url_end(p, last);
    }

    return p;
}


/* a URL ends before a blank, a quote or the punctuation of the sentence */

static u_char *
ngx_modelgw_scrub_url_end(u_char *p, u_char *last)
{
    u_char  *start;

    start = p;

    while (p < last
           && *p > ' '
           && !ngx_modelgw_scrub_one_of(*p, "\"'`<>\\"))
    {
        p++;
    }

    while (p > start && ngx_modelgw_scrub_one_of(p[-1], ".,;:!?)]}")) {
        p--;
    }

    return p;
}


/* returns the first byte that is not a letter, a digit or one of extra */

static u_char *
ngx_modelgw_scrub_run(u_char *p, u_char *last, const char *extra)
{
    while (p < last
           && (ngx_modelgw_scrub_alnum(*p)
               || ngx_modelgw_scrub_one_of(*p, extra)))
    {
        p++;
    }

    return p;
}


/* returns the first byte that is not a digit */

static u_char *
ngx_modelgw_scrub_digits(u_char *p, u_char *last)
{
    while (p < last && ngx_modelgw_scrub_digit(*p)) {
        p++;
    }

    return p;
}


static ngx_uint_t
ngx_modelgw_scrub_is_word(u_char ch)
{
    return ch == '_' || ngx_modelgw_scrub_alnum(ch);
}


static ngx_uint_t
ngx_modelgw_scrub_one_of(u_char ch, const char *set)
{
    return ch != '\0' && ngx_strchr(set, ch) != NULL;
}


static ngx_uint_t
ngx_modelgw_scrub_alnum(u_char ch)
{
    return ngx_modelgw_scrub_digit(ch)
           || (ch >= 'a' && ch <= 'z')
           || (ch >= 'A' && ch <= 'Z');
}


static ngx_uint_t
ngx_modelgw_scrub_digit(u_char ch)
{
    return ch >= '0' && ch <= '9';
}
