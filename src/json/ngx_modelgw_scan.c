
/*
 * The scanner's machine: structure, strings, numbers, literals.
 *
 * nginx passes a body in pieces of any size, and only a few of its fields are
 * needed.  So the state is a few words, open containers are one bit each, only
 * watched values are copied, and a piece may end anywhere.
 *
 * Between tokens the grammar is a table (RFC 8259, section 2): the state and
 * the class of the byte give the action.  Only the contents of watched
 * containers cost more.
 *
 * Strings are most bytes of a body.  A vector loop skips plain ASCII, another
 * loop skips whole characters of UTF-8 and has no state.  A character that is
 * cut by the end of a chunk, and every fault, is read byte by byte, with bounds
 * for the next byte (RFC 3629, section 4), so that the result is the same for
 * any split.
 *
 * A watched string or number is captured while it is read, unescaped.  Two \u
 * escapes may make one character (RFC 8259, section 7).  A lone surrogate is no
 * character, but valid JSON: the text is flagged, and is equal to no text.
 *
 * Numbers have a grammar of their own (RFC 8259, section 6) and keep nothing
 * but the state, so that one of 400 kB costs no more than its bytes.  A number
 * ends at the byte after it, which is not read.  A byte that may be in numbers,
 * but not here ("01", "1.2.3"), is a fault of the number.
 *
 * Rejected: yajl (230 MB/s, restarts a token that is cut, accepts more than
 * JSON); a table for every byte (each has to wait for the state that the one
 * before leaves); simdjson's two passes (faster still, but it wants the whole
 * document in memory, and C++); validating UTF-8 with vectors (pays for pure
 * CJK text only, and costs a second variant of everything for each processor);
 * converting numbers (readers disagree about 1e400 and 2^64; a value that
 * matters must be a COUNT, everything else passes as it was written).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"
#include "ngx_modelgw_string.h"


#define NGX_MODELGW_SCAN_SPACES  0x2020202020202020ULL

#define NGX_MODELGW_SCAN_FNV_BASIS  0xcbf29ce484222325ULL
#define NGX_MODELGW_SCAN_FNV_PRIME  0x00000100000001b3ULL


/*
 * Whether a word, with the first byte on top, begins with a character of three,
 * two or four bytes.  Three: not E0 80..9F (overlong), not ED A0..BF
 * (surrogates).  Two: not C0, C1 (overlong).  Four: F0 90 (U+10000) to F4 8F
 * (U+10FFFF).
 */

#define ngx_modelgw_scan_three(w)                                             \
    (((w) & 0xf0c0c000) == 0xe0808000                                         \
     && ((w) & 0x0f200000) != 0 && ((w) & 0x0f200000) != 0x0d200000)

#define ngx_modelgw_scan_two(w)                                               \
    (((w) & 0xe0c00000) == 0xc0800000 && ((w) & 0x1e000000) != 0)

#define ngx_modelgw_scan_four(w)                                              \
    (((w) & 0xf8c0c0c0) == 0xf0808080                                         \
     && ((w) & 0x07300000) - 0x00100000 < 0x04000000)


/* text is kept, or hashed; what is longer than its room is not kept */

#define ngx_modelgw_scan_kept(s)                                              \
    ((s)->capture && ((s)->hashing || (s)->len <= (s)->room))


typedef u_char *(*ngx_modelgw_scan_step_pt)(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);


static u_char *ngx_modelgw_scan_structure(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_space(u_char *p, u_char *last);
static u_char *ngx_modelgw_scan_open(ngx_modelgw_scan_t *s, u_char *p,
    ngx_uint_t type);
static u_char *ngx_modelgw_scan_close(ngx_modelgw_scan_t *s, u_char *p);
static u_char *ngx_modelgw_scan_word(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_literal(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_keep(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_pass(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_units(u_char *p, u_char *last);
static u_char *ngx_modelgw_scan_string_chars(u_char *p, u_char *last);
static u_char *ngx_modelgw_scan_string_lead(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_utf8(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_escape(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_hex(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_end(ngx_modelgw_scan_t *s, u_char *p);
static void ngx_modelgw_scan_text_append(ngx_modelgw_scan_t *s, u_char *p,
    size_t n);
static ngx_inline void ngx_modelgw_scan_text_unpaired(ngx_modelgw_scan_t *s);
static ngx_inline void ngx_modelgw_scan_text_lone(ngx_modelgw_scan_t *s);
static void ngx_modelgw_scan_text_hash(ngx_modelgw_scan_t *s, u_char *p,
    size_t n);
static uint64_t ngx_modelgw_scan_text_fnv(uint64_t hash, u_char *p, size_t n);
static void ngx_modelgw_scan_text_unit(ngx_modelgw_scan_t *s);
static void ngx_modelgw_scan_text_code(ngx_modelgw_scan_t *s, uint32_t code);
static u_char *ngx_modelgw_scan_number_begin(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_number(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static ngx_inline u_char *ngx_modelgw_scan_number_digits(u_char *p,
    u_char *last);


/* classes of bytes between tokens */

enum {
    c_other = 0,
    c_space,
    c_lbrace,
    c_rbrace,
    c_lbracket,
    c_rbracket,
    c_colon,
    c_comma,
    c_quote,
    c_number,
    c_word,
    c_n
};


static const u_char  ngx_modelgw_scan_classes[256] = {
    [' '] = c_space, ['\t'] = c_space, [LF] = c_space, [CR] = c_space,
    ['{'] = c_lbrace, ['}'] = c_rbrace,
    ['['] = c_lbracket, [']'] = c_rbracket,
    [':'] = c_colon, [','] = c_comma, ['"'] = c_quote,
    ['-'] = c_number, ['0'] = c_number, ['1'] = c_number, ['2'] = c_number,
    ['3'] = c_number, ['4'] = c_number, ['5'] = c_number, ['6'] = c_number,
    ['7'] = c_number, ['8'] = c_number, ['9'] = c_number,
    ['t'] = c_word, ['f'] = c_word, ['n'] = c_word
};


/* actions */

enum {
    NO = 0,                              /* a fault */
    WS,                                  /* skip white space */
    OB,                                  /* open an object */
    AR,                                  /* open an array */
    CL,                                  /* close the container */
    CO,                                  /* colon */
    CM,                                  /* comma in an object */
    CE,                                  /* comma in an array */
    KE,                                  /* begin a key */
    ST,                                  /* begin a string */
    NU,                                  /* begin a number */
    LI                                   /* begin a literal */
};


static const u_char  ngx_modelgw_scan_grammar[sw_end + 1][c_n] = {

/*                   other ws   {   }   [   ]   :   ,   "   0   t */

[sw_begin] =       { NO, WS, OB, NO, NO, NO, NO, NO, NO, NO, NO },
[sw_first_key] =   { NO, WS, NO, CL, NO, NO, NO, NO, KE, NO, NO },
[sw_key] =         { NO, WS, NO, NO, NO, NO, NO, NO, KE, NO, NO },
[sw_colon] =       { NO, WS, NO, NO, NO, NO, CO, NO, NO, NO, NO },
[sw_value] =       { NO, WS, OB, NO, AR, NO, NO, NO, ST, NU, LI },
[sw_first_value] = { NO, WS, OB, NO, AR, CL, NO, NO, ST, NU, LI },
[sw_member] =      { NO, WS, NO, CL, NO, NO, NO, CM, NO, NO, NO },
[sw_element] =     { NO, WS, NO, NO, NO, CL, NO, CE, NO, NO, NO },
[sw_end] =         { NO, WS, NO, NO, NO, NO, NO, NO, NO, NO, NO }
};


static const struct {
    ngx_uint_t  type;
    ngx_uint_t  node;
    u_char     *text;
} ngx_modelgw_scan_words[] = {
    { NGX_MODELGW_SCAN_TRUE, NGX_MODELGW_TAPE_TRUE, (u_char *) "true" },
    { NGX_MODELGW_SCAN_FALSE, NGX_MODELGW_TAPE_FALSE, (u_char *) "false" },
    { NGX_MODELGW_SCAN_NULL, NGX_MODELGW_TAPE_NULL, (u_char *) "null" }
};


static const ngx_modelgw_scan_step_pt  ngx_modelgw_scan_steps[sw_fault] = {
    [sw_begin] = ngx_modelgw_scan_structure,
    [sw_first_key] = ngx_modelgw_scan_structure,
    [sw_key] = ngx_modelgw_scan_structure,
    [sw_colon] = ngx_modelgw_scan_structure,
    [sw_value] = ngx_modelgw_scan_structure,
    [sw_first_value] = ngx_modelgw_scan_structure,
    [sw_member] = ngx_modelgw_scan_structure,
    [sw_element] = ngx_modelgw_scan_structure,
    [sw_end] = ngx_modelgw_scan_structure,
    [sw_string] = ngx_modelgw_scan_string,
    [sw_escape] = ngx_modelgw_scan_string_escape,
    [sw_hex] = ngx_modelgw_scan_string_hex,
    [sw_utf8] = ngx_modelgw_scan_string_utf8,
    [sw_literal] = ngx_modelgw_scan_literal,
    [sw_minus] = ngx_modelgw_scan_number,
    [sw_zero] = ngx_modelgw_scan_number,
    [sw_int] = ngx_modelgw_scan_number,
    [sw_point] = ngx_modelgw_scan_number,
    [sw_frac] = ngx_modelgw_scan_number,
    [sw_exp] = ngx_modelgw_scan_number,
    [sw_exp_sign] = ngx_modelgw_scan_number,
    [sw_exp_digit] = ngx_modelgw_scan_number
};


/* the value of a hex digit, plus one; 0: none */

static const u_char  ngx_modelgw_scan_hex[256] = {
    ['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5, ['5'] = 6,
    ['6'] = 7, ['7'] = 8, ['8'] = 9, ['9'] = 10,
    ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16
};


/* classes of bytes in a number */

enum {
    n_other = 0,
    n_zero,
    n_digit,
    n_minus,
    n_plus,
    n_point,
    n_exp,
    n_n
};


static const u_char  ngx_modelgw_scan_number_classes[256] = {
    ['0'] = n_zero, ['1'] = n_digit, ['2'] = n_digit, ['3'] = n_digit,
    ['4'] = n_digit, ['5'] = n_digit, ['6'] = n_digit, ['7'] = n_digit,
    ['8'] = n_digit, ['9'] = n_digit, ['-'] = n_minus, ['+'] = n_plus,
    ['.'] = n_point, ['e'] = n_exp, ['E'] = n_exp
};


/* the next state; EN: the byte is after the number; FA: a fault */

enum {
    EN = sw_end,
    ZE = sw_zero,
    IN = sw_int,
    PT = sw_point,
    FR = sw_frac,
    EX = sw_exp,
    SG = sw_exp_sign,
    DG = sw_exp_digit,
    FA = sw_fault
};


static const u_char
    ngx_modelgw_scan_number_grammar[sw_exp_digit - sw_minus + 1][n_n] = {

/*                           other 0   1   -   +   .   e */

[sw_minus - sw_minus] =     { FA, ZE, IN, FA, FA, FA, FA },
[sw_zero - sw_minus] =      { EN, FA, FA, FA, FA, PT, EX },
[sw_int - sw_minus] =       { EN, IN, IN, FA, FA, PT, EX },
[sw_point - sw_minus] =     { FA, FR, FR, FA, FA, FA, FA },
[sw_frac - sw_minus] =      { EN, FR, FR, FA, FA, FA, EX },
[sw_exp - sw_minus] =       { FA, DG, DG, SG, SG, FA, FA },
[sw_exp_sign - sw_minus] =  { FA, DG, DG, FA, FA, FA, FA },
[sw_exp_digit - sw_minus] = { EN, DG, DG, FA, FA, FA, FA }
};


ngx_int_t
ngx_modelgw_scan_feed(ngx_modelgw_scan_t *s, u_char *p, size_t len)
{
    u_char  *last;

    if (s->state == sw_fault) {
        return NGX_DECLINED;
    }

    s->start = p;
    last = p + len;

    while (p < last) {
        p = ngx_modelgw_scan_steps[s->state](s, p, last);

        if (p == NULL) {
            return NGX_DECLINED;
        }
    }

    s->base += len;

    if (s->tape) {
        s->tape->pos += len;
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_scan_done(ngx_modelgw_scan_t *s)
{
    if (s->state == sw_end) {
        return NGX_OK;
    }

    if (s->state != sw_fault) {
        s->start = NULL;
        ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_TRUNCATED, NULL);
    }

    return NGX_DECLINED;
}


u_char *
ngx_modelgw_scan_stop(ngx_modelgw_scan_t *s, ngx_modelgw_scan_fault_e fault,
    u_char *p)
{
    s->fault = fault;
    s->fault_at = ngx_modelgw_scan_offset(s, p);
    s->next = s->state;
    s->state = sw_fault;

    return NULL;
}


void
ngx_modelgw_scan_tape_begin(ngx_modelgw_scan_t *s, ngx_uint_t type, u_char *p)
{
    ngx_modelgw_tape_begin(s->tape, type, ngx_modelgw_scan_offset(s, p), 0);
}


void
ngx_modelgw_scan_tape_end(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_modelgw_tape_end(s->tape, ngx_modelgw_scan_offset(s, p));
}


static u_char *
ngx_modelgw_scan_structure(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    while (p < last && s->state <= sw_end) {

        switch (ngx_modelgw_scan_grammar[s->state]
                                        [ngx_modelgw_scan_classes[*p]])
        {
        case WS:
            p = ngx_modelgw_scan_space(p + 1, last);
            break;

        case OB:
            p = ngx_modelgw_scan_open(s, p, NGX_MODELGW_SCAN_OBJECT);
            break;

        case AR:
            p = ngx_modelgw_scan_open(s, p, NGX_MODELGW_SCAN_ARRAY);
            break;

        case CL:
            p = ngx_modelgw_scan_close(s, p);
            break;

        case CM:
            p = ngx_modelgw_scan_member_comma(s, p, last);
            break;

        case CO:
        case CE:
            s->state = sw_value;
            p++;
            break;

        case KE:
            p = ngx_modelgw_scan_member_key(s, p, last);
            break;

        case ST:
            p = ngx_modelgw_scan_member_text(s, p, last);
            break;

        case NU:
            p = ngx_modelgw_scan_number_begin(s, p, last);
            break;

        case LI:
            p = ngx_modelgw_scan_word(s, p, last);
            break;

        default: /* NO */
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_UNEXPECTED, p);
        }

        if (p == NULL) {
            return NULL;
        }
    }

    return p;
}


/* indented JSON has long runs of blanks */

static u_char *
ngx_modelgw_scan_space(u_char *p, u_char *last)
{
    uint64_t  w;

    while (last - p >= (ssize_t) sizeof(uint64_t)) {
        ngx_memcpy(&w, p, sizeof(uint64_t));

        if (w != NGX_MODELGW_SCAN_SPACES) {
            break;
        }

        p += sizeof(uint64_t);
    }

    while (p < last && ngx_modelgw_scan_classes[*p] == c_space) {
        p++;
    }

    return p;
}


static u_char *
ngx_modelgw_scan_open(ngx_modelgw_scan_t *s, u_char *p, ngx_uint_t type)
{
    if (s->depth == NGX_MODELGW_SCAN_MAX_DEPTH) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_DEEP, p);
    }

    if (ngx_modelgw_scan_watched(s)
        && ngx_modelgw_scan_watch_value(s, type, p) == NULL)
    {
        return NULL;
    }

    ngx_modelgw_scan_begin(s, (type == NGX_MODELGW_SCAN_OBJECT)
                              ? NGX_MODELGW_TAPE_OBJECT
                              : NGX_MODELGW_TAPE_ARRAY, p);

    if (s->depth == 0) {
        s->root = ngx_modelgw_scan_offset(s, p);
    }

    s->depth++;
    s->objects <<= 1;

    if (type == NGX_MODELGW_SCAN_OBJECT) {
        s->objects |= 1;
        s->state = sw_first_key;

    } else {
        s->state = sw_first_value;
    }

    if (s->target != NGX_MODELGW_SCAN_NONE) {
        ngx_modelgw_scan_watch_open(s);
    }

    return p + 1;
}


static u_char *
ngx_modelgw_scan_close(ngx_modelgw_scan_t *s, u_char *p)
{
    p++;

    if (ngx_modelgw_scan_watched(s)) {
        ngx_modelgw_scan_watch_close(s, p);
    }

    if (s->tape) {
        ngx_modelgw_tape_close(s->tape, ngx_modelgw_scan_offset(s, p));
    }

    s->depth--;
    s->objects >>= 1;
    s->state = s->depth ? ngx_modelgw_scan_after(s) : sw_end;

    return p;
}


static u_char *
ngx_modelgw_scan_word(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    ngx_uint_t  i;

    for (i = 0; ngx_modelgw_scan_words[i].text[0] != *p; i++) { /* void */ }

    if (ngx_modelgw_scan_watched(s)
        && ngx_modelgw_scan_watch_value(s, ngx_modelgw_scan_words[i].type, p)
           == NULL)
    {
        return NULL;
    }

    ngx_modelgw_scan_begin(s, ngx_modelgw_scan_words[i].node, p);

    s->state = sw_literal;
    s->next = ngx_modelgw_scan_after(s);
    s->rest = ngx_modelgw_scan_words[i].text + 1;

    return ngx_modelgw_scan_literal(s, p + 1, last);
}


static u_char *
ngx_modelgw_scan_literal(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    for ( /* void */ ; p < last; p++) {

        if (*p != *s->rest) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_BAD_LITERAL, p);
        }

        if (*++s->rest == '\0') {
            ngx_modelgw_scan_end(s, p + 1);

            s->state = s->next;
            return ngx_modelgw_scan_watch_value_end(s, p + 1);
        }
    }

    return p;
}


u_char *
ngx_modelgw_scan_string(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    do {
        p = ngx_modelgw_scan_kept(s)
            ? ngx_modelgw_scan_string_keep(s, p, last)
            : ngx_modelgw_scan_string_pass(s, p, last);

        if (p == last) {
            return p;
        }

        if (*p == '"') {
            return ngx_modelgw_scan_string_end(s, p + 1);
        }

        if (*p == '\\') {
            s->state = sw_escape;
            p = ngx_modelgw_scan_string_escape(s, p + 1, last);

        } else if (*p < 0x20) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_CONTROL, p);

        } else {
            p = ngx_modelgw_scan_string_lead(s, p, last);
        }

    } while (p && s->state == sw_string);

    return p;
}


/* captures plain bytes and whole characters */

static u_char *
ngx_modelgw_scan_string_keep(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    size_t   n;
    u_char  *from;

    from = p;

    while (last - p >= NGX_MODELGW_SKIP_SHORT) {
        n = ngx_modelgw_skip_short(p);

        if (n == 0 && *p >= 0x80) {
            n = ngx_modelgw_scan_string_chars(p, last) - p;
        }

        if (n == 0) {
            break;
        }

        p += n;
    }

    while (p < last && ngx_modelgw_skip_plain(*p)) {
        p++;
    }

    ngx_modelgw_scan_text_append(s, from, p - from);

    return p;
}


/*
 * Skips to the end of the string, to a fault, or to an escape or a character
 * that is cut by the end of the chunk.
 */

static u_char *
ngx_modelgw_scan_string_pass(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char  *from;

    do {
        p += s->skip(p, last - p);
        from = p;

        if (p == last) {
            break;
        }

        if (*p == '\\') {
            p = ngx_modelgw_scan_string_units(p, last);

        } else if (*p >= 0x80) {
            p = ngx_modelgw_scan_string_chars(p, last);
        }

    } while (p != from);

    return p;
}


/* skips whole \uhhhh, whatever the character */

static u_char *
ngx_modelgw_scan_string_units(u_char *p, u_char *last)
{
    while (last - p >= 6
           && p[0] == '\\'
           && p[1] == 'u'
           && ngx_modelgw_scan_hex[p[2]]
           && ngx_modelgw_scan_hex[p[3]]
           && ngx_modelgw_scan_hex[p[4]]
           && ngx_modelgw_scan_hex[p[5]])
    {
        p += 6;
    }

    return p;
}


/*
 * Skips whole and valid characters of two to four bytes, and blanks between.
 * Each length has its own branch: with the length in a variable each step would
 * have to wait for the one before.
 */

static u_char *
ngx_modelgw_scan_string_chars(u_char *p, u_char *last)
{
    uint32_t  w;

    while (last - p >= 4) {
        w = ((uint32_t) p[0] << 24) | (p[1] << 16) | (p[2] << 8) | p[3];

        if (ngx_modelgw_scan_three(w)) {
            p += 3;
            continue;
        }

        if (ngx_modelgw_scan_two(w)) {
            p += 2;
            continue;
        }

        if (ngx_modelgw_scan_four(w)) {
            p += 4;
            continue;
        }

        if (*p != ' ') {
            break;
        }

        p++;
    }

    return p;
}


static u_char *
ngx_modelgw_scan_string_lead(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    const ngx_modelgw_string_lead_t  *lead;

    lead = ngx_modelgw_string_lead(*p);

    if (lead->left == 0) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_UTF8, p);
    }

    s->state = sw_utf8;
    s->left = lead->left;
    s->low = lead->low;
    s->high = lead->high;

    if (s->capture) {
        ngx_modelgw_scan_text_append(s, p, 1);
    }

    return ngx_modelgw_scan_string_utf8(s, p + 1, last);
}


static u_char *
ngx_modelgw_scan_string_utf8(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    while (p < last) {

        if (*p < s->low || *p > s->high) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_UTF8, p);
        }

        if (s->capture) {
            ngx_modelgw_scan_text_append(s, p, 1);
        }

        p++;

        if (--s->left == 0) {
            s->state = sw_string;
            break;
        }

        s->low = 0x80;
        s->high = 0xbf;
    }

    return p;
}


static u_char *
ngx_modelgw_scan_string_escape(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char  ch;

    if (p == last) {
        return p;
    }

    ch = ngx_modelgw_string_escapes[*p];

    if (ch == 0) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_ESCAPE, p);
    }

    p++;

    if (ch == 'u') {
        s->state = sw_hex;
        s->left = 4;
        s->unit = 0;

        return ngx_modelgw_scan_string_hex(s, p, last);
    }

    if (s->capture) {
        ngx_modelgw_scan_text_append(s, &ch, 1);
    }

    s->state = sw_string;

    return p;
}


static u_char *
ngx_modelgw_scan_string_hex(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    ngx_uint_t  digit;

    while (p < last) {
        digit = ngx_modelgw_scan_hex[*p];

        if (digit == 0) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_ESCAPE, p);
        }

        s->unit = (s->unit << 4) | (digit - 1);
        p++;

        if (--s->left == 0) {
            s->state = sw_string;

            if (s->capture) {
                ngx_modelgw_scan_text_unit(s);
            }

            break;
        }
    }

    return p;
}


static u_char *
ngx_modelgw_scan_string_end(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_modelgw_scan_end(s, p);

    s->state = s->next;

    if (!s->capture) {
        return p;
    }

    ngx_modelgw_scan_text_unpaired(s);

    if (s->next == sw_colon) {
        return ngx_modelgw_scan_watch_key_end(s, p);
    }

    if (s->due) {
        ngx_modelgw_scan_mark_text_end(s);
    }

    return ngx_modelgw_scan_watch_value_end(s, p);
}


void
ngx_modelgw_scan_text_capture(ngx_modelgw_scan_t *s, u_char *text,
    size_t room)
{
    s->capture = 1;
    s->lone = 0;
    s->text = text;
    s->room = room;
    s->len = 0;
    s->pending = 0;
}


static void
ngx_modelgw_scan_text_append(ngx_modelgw_scan_t *s, u_char *p, size_t n)
{
    if (n == 0) {
        return;
    }

    ngx_modelgw_scan_text_unpaired(s);

    if (s->hashing && n > s->room - ngx_min(s->len, s->room)) {
        ngx_modelgw_scan_text_hash(s, p, n);
    }

    if (s->len < s->room) {
        ngx_memcpy(s->text + s->len, p, ngx_min(n, s->room - s->len));
    }

    s->len += n;
}


/* a high surrogate is not followed by a low one */

static ngx_inline void
ngx_modelgw_scan_text_unpaired(ngx_modelgw_scan_t *s)
{
    if (s->pending) {
        s->pending = 0;
        ngx_modelgw_scan_text_lone(s);
    }
}


static ngx_inline void
ngx_modelgw_scan_text_lone(ngx_modelgw_scan_t *s)
{
    if (!s->lone) {
        s->lone = 1;
        s->valid = s->len;
    }
}


/* hashes text that is longer than its room, from its first byte on */

static void
ngx_modelgw_scan_text_hash(ngx_modelgw_scan_t *s, u_char *p, size_t n)
{
    if (s->len <= s->room) {
        s->hash = ngx_modelgw_scan_text_fnv(NGX_MODELGW_SCAN_FNV_BASIS,
                                            s->text, s->len);
    }

    s->hash = ngx_modelgw_scan_text_fnv(s->hash, p, n);
}


static uint64_t
ngx_modelgw_scan_text_fnv(uint64_t hash, u_char *p, size_t n)
{
    for ( /* void */ ; n; p++, n--) {
        hash = (hash ^ *p) * NGX_MODELGW_SCAN_FNV_PRIME;
    }

    return hash;
}


static void
ngx_modelgw_scan_text_unit(ngx_modelgw_scan_t *s)
{
    uint32_t  high;

    if (s->unit < 0xd800 || s->unit > 0xdfff) {
        ngx_modelgw_scan_text_code(s, s->unit);
        return;
    }

    if (s->unit < 0xdc00) {
        ngx_modelgw_scan_text_unpaired(s);
        s->pending = s->unit;
        return;
    }

    if (s->pending == 0) {
        ngx_modelgw_scan_text_lone(s);
        return;
    }

    high = s->pending - 0xd800;
    s->pending = 0;

    ngx_modelgw_scan_text_code(s, 0x10000 + (high << 10)
                                    + (s->unit - 0xdc00));
}


static void
ngx_modelgw_scan_text_code(ngx_modelgw_scan_t *s, uint32_t code)
{
    u_char  *last, utf8[4];

    last = ngx_modelgw_string_encode(utf8, code);

    ngx_modelgw_scan_text_append(s, utf8, last - utf8);
}


static u_char *
ngx_modelgw_scan_number_begin(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last)
{
    if (ngx_modelgw_scan_watched(s)
        && ngx_modelgw_scan_watch_value(s, NGX_MODELGW_SCAN_NUMBER, p) == NULL)
    {
        return NULL;
    }

    ngx_modelgw_scan_begin(s, NGX_MODELGW_TAPE_NUMBER, p);

    /* a number begins like after a minus */

    s->state = sw_minus;
    s->next = ngx_modelgw_scan_after(s);

    if (*p == '-') {

        if (s->capture) {
            ngx_modelgw_scan_text_append(s, p, 1);
        }

        p++;
    }

    return ngx_modelgw_scan_number(s, p, last);
}


static u_char *
ngx_modelgw_scan_number(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char                    *from;
    ngx_modelgw_scan_state_e   state, next;

    from = p;
    state = s->state;
    next = state;

    while (p < last) {
        next = ngx_modelgw_scan_number_grammar[state - sw_minus]
                                       [ngx_modelgw_scan_number_classes[*p]];

        if (next == sw_end || next == sw_fault) {
            break;
        }

        state = next;
        p++;

        /* more digits do not change the state: do not wait for it */

        if (next == sw_int || next == sw_frac || next == sw_exp_digit) {
            p = ngx_modelgw_scan_number_digits(p, last);
        }
    }

    s->state = state;

    if (s->capture) {
        ngx_modelgw_scan_text_append(s, from, p - from);
    }

    if (next == sw_fault) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_BAD_NUMBER, p);
    }

    if (next == sw_end) {
        ngx_modelgw_scan_end(s, p);

        s->state = s->next;
        return ngx_modelgw_scan_watch_value_end(s, p);
    }

    return p;
}


static ngx_inline u_char *
ngx_modelgw_scan_number_digits(u_char *p, u_char *last)
{
    while (p < last && *p >= '0' && *p <= '9') {
        p++;
    }

    return p;
}
