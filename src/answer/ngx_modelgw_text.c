
/*
 * The text of an answer, event by event, and the choices that have finished.
 *
 * The length of the text matters only if a stream ends without usage, but it
 * has to be counted while events pass, so this takes the cheapest way: from
 * colon to colon.  The scanner has checked that the data is JSON; so "delta" in
 * quotes, with no backslash before and a colon after it, is a member at
 * whatever depth, and the brackets after it match.  Both protocols have their
 * text there: content, refusal, reasoning and arguments in choices[].delta;
 * text, thinking, partial_json and signature in delta.  A name written with
 * escapes is not found; no vendor writes such.
 *
 * In responses "delta" is the string itself.  The items that deltas become are
 * sent once more when they are done, and at the end; some upstreams send these
 * only.  Items have more strings that are no text than such that are, so the
 * names of those that are decide.
 *
 * A JSON answer that has ended without usage is counted in the same way: it may
 * be truncated, so it is not known to be JSON, and may not fit on a tape.
 *
 * Some vendors repeat a choice's finish_reason, as together with the usage
 * after the last choice: counting the reasons would take one choice that
 * finishes twice for two, so choices are counted by index.  Events with a
 * reason are rare, about one for each choice, so a tape is built for them.
 *
 * Rejected: watches of the scanner, which do not reach into arrays, and keep
 * 256 bytes; a tape for each event; and memmem() for each of the names, which
 * costs more than visiting all colons of an event.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_text.h"
#include "ngx_modelgw_usage.h"


static void ngx_modelgw_text_members(ngx_modelgw_text_t *text,
    ngx_str_t *member, u_char *p, size_t len);
static u_char *ngx_modelgw_text_key(u_char *first, u_char *colon);
static ngx_uint_t ngx_modelgw_text_named(u_char *first, u_char *end,
    ngx_str_t *name);
static u_char *ngx_modelgw_text_space(u_char *p, u_char *last);
static u_char *ngx_modelgw_text_value(ngx_modelgw_text_t *text,
    ngx_str_t *member, u_char *p, u_char *last);
static ngx_uint_t ngx_modelgw_text_skipped(ngx_str_t *member, u_char *p,
    size_t len);
static u_char *ngx_modelgw_text_object(u_char *p, u_char *last, size_t *n);
static u_char *ngx_modelgw_text_string(u_char *p, u_char *last, size_t *n);
static u_char *ngx_modelgw_text_escape(u_char *p, u_char *last, size_t *n);
static ngx_uint_t ngx_modelgw_text_listed(ngx_str_t *name, u_char *p,
    size_t len);
static ngx_uint_t ngx_modelgw_choices_ends(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *choice);


/* members with text: of events, and of JSON answers of both protocols */

static ngx_str_t  ngx_modelgw_text_delta = ngx_string("\"delta\"");
static ngx_str_t  ngx_modelgw_text_message = ngx_string("\"message\"");
static ngx_str_t  ngx_modelgw_text_content = ngx_string("\"content\"");
static ngx_str_t  ngx_modelgw_text_output = ngx_string("\"output\"");
static ngx_str_t  ngx_modelgw_text_begun = ngx_string("\"item\"");

static ngx_str_t  ngx_modelgw_text_input = ngx_string("\"input\"");
static ngx_str_t  ngx_modelgw_text_arguments = ngx_string("\"arguments\"");
static ngx_str_t  ngx_modelgw_text_finish = ngx_string("\"finish_reason\"");
static ngx_str_t  ngx_modelgw_text_noise = ngx_string("\"obfuscation\"");


/* members whose strings are not text */

static ngx_str_t  ngx_modelgw_text_names[] = {
    ngx_string("type"),
    ngx_string("role"),
    ngx_string("id"),
    ngx_string("name"),
    ngx_string("index"),
    ngx_string("finish_reason"),
    ngx_string("stop_reason"),
    ngx_string("object"),
    ngx_string("model"),
    ngx_null_string
};


/*
 * Members of items whose strings, or arrays of strings, are text; the first one
 * not in an item that only begins.
 */

static ngx_str_t  ngx_modelgw_text_item_names[] = {
    ngx_string("encrypted_content"),
    ngx_string("text"),
    ngx_string("refusal"),
    ngx_string("arguments"),
    ngx_string("input"),
    ngx_string("code"),
    ngx_string("transcript"),
    ngx_string("command"),
    ngx_string("commands"),
    ngx_string("path"),
    ngx_string("diff"),
    ngx_null_string
};


void
ngx_modelgw_text(ngx_modelgw_text_t *text, u_char *p, size_t len)
{
    ngx_modelgw_text_members(text, &ngx_modelgw_text_delta, p, len);
}


size_t
ngx_modelgw_text_answer(ngx_uint_t protocol, u_char *p, size_t len)
{
    ngx_str_t           *member;
    ngx_modelgw_text_t   text;

    switch (protocol) {

    case NGX_MODELGW_CHAT:
        member = &ngx_modelgw_text_message;
        break;

    case NGX_MODELGW_RESPONSES:
        member = &ngx_modelgw_text_output;
        break;

    default: /* NGX_MODELGW_MESSAGES */
        member = &ngx_modelgw_text_content;
        break;
    }

    ngx_modelgw_text_members(&text, member, p, len);

    return text.n;
}


size_t
ngx_modelgw_text_items(u_char *p, size_t len, ngx_uint_t done)
{
    ngx_modelgw_text_t  text;

    ngx_memzero(&text, sizeof(ngx_modelgw_text_t));

    (void) ngx_modelgw_text_value(&text,
                                  done ? &ngx_modelgw_text_output
                                       : &ngx_modelgw_text_begun,
                                  p, p + len);

    return text.n;
}


static ngx_inline void
ngx_modelgw_text_members(ngx_modelgw_text_t *text, ngx_str_t *member,
    u_char *p, size_t len)
{
    size_t   n;
    u_char  *first, *last, *colon, *end;

    ngx_memzero(text, sizeof(ngx_modelgw_text_t));

    n = 0;
    first = p;
    last = p + len;

    while (p < last) {
        colon = memchr(p, ':', last - p);

        if (colon == NULL) {
            return;
        }

        end = ngx_modelgw_text_key(first, colon);
        p = ngx_modelgw_text_space(colon + 1, last);

        if (ngx_modelgw_text_named(first, end, member)) {
            p = ngx_modelgw_text_value(text, member, p, last);
            continue;
        }

        if (p == last || *p != '"') {
            continue;
        }

        if (ngx_modelgw_text_named(first, end, &ngx_modelgw_text_finish)) {
            if (p + 1 < last && p[1] != '"') {
                text->finished++;
            }

            continue;
        }

        if (ngx_modelgw_text_named(first, end, &ngx_modelgw_text_noise)) {
            text->noise.data = ++p;
            p = ngx_modelgw_text_string(p, last, &n);
            text->noise.len = p - text->noise.data;
        }
    }
}


size_t
ngx_modelgw_text_len(ngx_str_t *inside)
{
    size_t  n;

    if (memchr(inside->data, '\\', inside->len) == NULL) {
        return inside->len;
    }

    n = 0;
    (void) ngx_modelgw_text_string(inside->data, inside->data + inside->len,
                                   &n);

    return n;
}


/* returns the end of the key before the colon, or first if there is no key */

static ngx_inline u_char *
ngx_modelgw_text_key(u_char *first, u_char *colon)
{
    u_char  *p;

    for (p = colon; p > first && p[-1] != '"'; p--) {
        if (ngx_modelgw_text_space(p - 1, p) != p) {
            return first;
        }
    }

    return p;
}


/* whether the key that ends there is name, which includes the quotes */

static ngx_inline ngx_uint_t
ngx_modelgw_text_named(u_char *first, u_char *end, ngx_str_t *name)
{
    u_char  *p;

    if (end - first < (ssize_t) name->len) {
        return 0;
    }

    p = end - name->len;

    /* the first quote must not be an escaped one inside of a string */

    return *p == '"'
           && ngx_memcmp(p, name->data, name->len) == 0
           && (p == first || p[-1] != '\\');
}


static ngx_inline u_char *
ngx_modelgw_text_space(u_char *p, u_char *last)
{
    while (p < last && (*p == ' ' || *p == '\t' || *p == CR || *p == LF)) {
        p++;
    }

    return p;
}


/* adds the text in the member's value at p; returns the end of the value */

static u_char *
ngx_modelgw_text_value(ngx_modelgw_text_t *text, ngx_str_t *member, u_char *p,
    u_char *last)
{
    size_t       size;
    u_char      *from, *end;
    ngx_uint_t   depth, nameless, left_out;

    depth = 0;

    /* in items only what has the name of a text counts */

    nameless = (member == &ngx_modelgw_text_output
                || member == &ngx_modelgw_text_begun);
    left_out = nameless;

    while (p < last) {

        switch (*p++) {

        case '[':
            depth++;
            left_out &= nameless;
            continue;

        case '{':
            depth++;
            left_out = nameless;
            continue;

        case '}':
        case ']':
            if (depth <= 1) {
                return p;
            }

            depth--;
            left_out = nameless;
            continue;

        case '"':
            from = p;
            size = 0;
            end = ngx_modelgw_text_string(p, last, &size);

            p = ngx_modelgw_text_space(ngx_min(end + 1, last), last);

            if (depth && p < last && *p == ':') {
                left_out = ngx_modelgw_text_skipped(member, from, end - from);

                if ((member != &ngx_modelgw_text_delta
                     && ngx_modelgw_text_named(from - 1, end + 1,
                                               &ngx_modelgw_text_input))
                    || (nameless
                        && ngx_modelgw_text_named(from - 1, end + 1,
                                               &ngx_modelgw_text_arguments)))
                {
                    p = ngx_modelgw_text_object(p, last, &text->n);
                }

                continue;
            }

            if (!left_out) {
                text->n += size;
                text->last.data = from;
                text->last.len = end - from;
            }

            break;

        default:
            break;
        }

        if (depth == 0) {
            return p;
        }
    }

    return p;
}


/*
 * Adds the bytes of the object after the colon at p, as written, without white
 * space; returns its end.  A value that is not an object is not read.
 */

static u_char *
ngx_modelgw_text_object(u_char *p, u_char *last, size_t *n)
{
    size_t       size;
    u_char      *from;
    ngx_uint_t   depth;

    size = 0;
    depth = 0;

    p = ngx_modelgw_text_space(p + 1, last);

    if (p == last || *p != '{') {
        return p;
    }

    do {
        from = p;

        switch (*p++) {

        case '{':
        case '[':
            depth++;
            break;

        case '}':
        case ']':
            depth--;
            break;

        case '"':
            p = ngx_min(ngx_modelgw_text_string(p, last, &size) + 1, last);
            break;

        case ' ':
        case '\t':
        case CR:
        case LF:
            continue;

        default:
            break;
        }

        *n += p - from;

    } while (p < last && depth);

    return p;
}


/*
 * Adds the unescaped length of the string whose contents are at p; returns its
 * closing quote, or last.
 */

static u_char *
ngx_modelgw_text_string(u_char *p, u_char *last, size_t *n)
{
    while (p < last && *p != '"') {

        if (*p == '\\') {
            p = ngx_modelgw_text_escape(p + 1, last, n);
            continue;
        }

        *n += 1;
        p++;
    }

    return p;
}


/* each half of a surrogate pair counts two bytes of the four in UTF-8 */

static u_char *
ngx_modelgw_text_escape(u_char *p, u_char *last, size_t *n)
{
    ngx_int_t  code;

    if (last - p < 5 || *p != 'u') {
        *n += 1;
        return (p < last) ? p + 1 : p;
    }

    code = ngx_hextoi(p + 1, 4);

    *n += (code < 0x80) ? 1
          : (code < 0x800 || (code >= 0xd800 && code <= 0xdfff)) ? 2
          : 3;

    return p + 5;
}


/* whether the string that follows a name is no text */

static ngx_uint_t
ngx_modelgw_text_skipped(ngx_str_t *member, u_char *p, size_t len)
{
    if (member == &ngx_modelgw_text_output) {
        return !ngx_modelgw_text_listed(ngx_modelgw_text_item_names, p, len);
    }

    if (member == &ngx_modelgw_text_begun) {
        return !ngx_modelgw_text_listed(&ngx_modelgw_text_item_names[1], p,
                                        len);
    }

    return ngx_modelgw_text_listed(ngx_modelgw_text_names, p, len);
}


static ngx_uint_t
ngx_modelgw_text_listed(ngx_str_t *name, u_char *p, size_t len)
{
    for ( /* void */ ; name->len; name++) {

        if (name->len == len && ngx_memcmp(name->data, p, len) == 0) {
            return 1;
        }
    }

    return 0;
}


void
ngx_modelgw_choices_end(ngx_modelgw_choices_t *choices,
    ngx_modelgw_tape_t *tape)
{
    uint64_t             *word, bit;
    ngx_uint_t            i;
    ngx_modelgw_node_t   *list, *choice, *index;

    list = ngx_modelgw_tape_member(tape, ngx_modelgw_tape_root(tape),
                                   "choices");

    for (choice = ngx_modelgw_tape_first(tape, list);
         choice;
         choice = ngx_modelgw_tape_next(tape, list, choice))
    {
        if (!ngx_modelgw_choices_ends(tape, choice)) {
            continue;
        }

        index = ngx_modelgw_tape_member(tape, choice, "index");

        if (index == NULL) {
            i = 0;

        } else if (!ngx_modelgw_tape_count(tape, index, &i)
                   || i >= NGX_MODELGW_CHOICES_MAX)
        {
            continue;
        }

        word = &choices->ended[i / 64];
        bit = (uint64_t) 1 << (i % 64);

        choices->n += ((*word & bit) == 0);
        *word |= bit;
    }
}


static ngx_uint_t
ngx_modelgw_choices_ends(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *choice)
{
    ngx_modelgw_node_t  *reason;

    reason = ngx_modelgw_tape_member(tape, choice, "finish_reason");

    return reason
           && reason->type == NGX_MODELGW_TAPE_STRING
           && reason->to - reason->from > 2;
}
