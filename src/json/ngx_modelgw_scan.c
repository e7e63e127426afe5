
/*
 * The scanner's machine.  It stands between nginx, which hands out a body in
 * whatever pieces arrive, and the policy, which wants to know a handful of
 * fields and that everything else is sound.  So the state is a few words, the
 * containers around a byte are one bit each, nothing is copied but what is
 * watched, and a piece may end anywhere.
 *
 * Between tokens a table is the grammar (RFC 8259, section 2): state and class
 * of the byte give the action.  Tokens have code of their own, since most bytes
 * are inside of strings.  Only what lies in watched containers costs more.
 *
 * Rejected: yajl (230 MB/s, restarts a token that is cut, accepts more than
 * JSON), a table for every byte (each has to wait for the state that the one
 * before leaves), and simdjson's two passes (faster still, but it wants the
 * whole document in memory, and C++).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


#define NGX_MODELGW_SCAN_SPACES  0x2020202020202020ULL


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


/* classes of bytes between tokens; all bytes that are not named are 0 */

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


/* what to do with the byte */

enum {
    NO = 0,                              /* a fault */
    WS,                                  /* skip white space */
    OB,                                  /* open an object */
    AR,                                  /* open an array */
    CL,                                  /* close the container */
    CO,                                  /* colon: a value comes */
    CM,                                  /* comma in an object: a key comes */
    CE,                                  /* comma in an array: a value comes */
    KE,                                  /* begin a key */
    ST,                                  /* begin a string */
    NU,                                  /* begin a number */
    LI                                   /* begin a literal */
};


static const u_char  ngx_modelgw_scan_grammar[sw_end + 1][c_n] = {

/*                  other ws   {   }   [   ]   :   ,   "   0   t */

/* begin */         { NO, WS, OB, NO, NO, NO, NO, NO, NO, NO, NO },
/* first_key */     { NO, WS, NO, CL, NO, NO, NO, NO, KE, NO, NO },
/* key */           { NO, WS, NO, NO, NO, NO, NO, NO, KE, NO, NO },
/* colon */         { NO, WS, NO, NO, NO, NO, CO, NO, NO, NO, NO },
/* value */         { NO, WS, OB, NO, AR, NO, NO, NO, ST, NU, LI },
/* first_value */   { NO, WS, OB, NO, AR, CL, NO, NO, ST, NU, LI },
/* member */        { NO, WS, NO, CL, NO, NO, NO, CM, NO, NO, NO },
/* element */       { NO, WS, NO, NO, NO, CL, NO, CE, NO, NO, NO },
/* end */           { NO, WS, NO, NO, NO, NO, NO, NO, NO, NO, NO }
};


static const struct {
    ngx_uint_t  type;
    u_char     *text;
} ngx_modelgw_scan_words[] = {
    { NGX_MODELGW_SCAN_TRUE, (u_char *) "true" },
    { NGX_MODELGW_SCAN_FALSE, (u_char *) "false" },
    { NGX_MODELGW_SCAN_NULL, (u_char *) "null" }
};


/* what reads in each state */

static const ngx_modelgw_scan_step_pt  ngx_modelgw_scan_steps[sw_fault] = {
    ngx_modelgw_scan_structure,          /* begin */
    ngx_modelgw_scan_structure,          /* first_key */
    ngx_modelgw_scan_structure,          /* key */
    ngx_modelgw_scan_structure,          /* colon */
    ngx_modelgw_scan_structure,          /* value */
    ngx_modelgw_scan_structure,          /* first_value */
    ngx_modelgw_scan_structure,          /* member */
    ngx_modelgw_scan_structure,          /* element */
    ngx_modelgw_scan_structure,          /* end */
    ngx_modelgw_scan_string,             /* string */
    ngx_modelgw_scan_string_escape,      /* escape */
    ngx_modelgw_scan_string_hex,         /* hex */
    ngx_modelgw_scan_string_utf8,        /* utf8 */
    ngx_modelgw_scan_literal,            /* literal */
    ngx_modelgw_scan_number,             /* minus */
    ngx_modelgw_scan_number,             /* zero */
    ngx_modelgw_scan_number,             /* int */
    ngx_modelgw_scan_number,             /* point */
    ngx_modelgw_scan_number,             /* frac */
    ngx_modelgw_scan_number,             /* exp */
    ngx_modelgw_scan_number,             /* exp_sign */
    ngx_modelgw_scan_number              /* exp_digit */
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
        ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_CUT, NULL);
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


/* indented text has long runs of blanks */

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

    s->depth--;
    s->objects >>= 1;
    s->state = s->depth ? ngx_modelgw_scan_behind(s) : sw_end;

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

    s->state = sw_literal;
    s->next = ngx_modelgw_scan_behind(s);
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
            s->state = s->next;
            return ngx_modelgw_scan_watch_value_end(s, p + 1);
        }
    }

    return p;
}
