
/*
 * The sentences about faults.  Whoever wrote the client reads them, mostly in
 * a log of somebody else's program: each names the byte or the field.
 *
 * The machine keeps only what happened and where; words are found here, when
 * they are asked for, so that a scan that is refused costs no more than one
 * that passes.  Names from the configuration are trusted; a key that came in
 * the document is cut, and what JSON would have to escape is shown as '?'.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


static u_char *ngx_modelgw_scan_fault_byte(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_fault_field(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_fault_types(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_fault_key(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);


/* what was expected, by state */

static const char  *ngx_modelgw_scan_expected[] = {
    "expected an object",                            /* begin */
    "expected a key or '}'",                         /* first_key */
    "expected a key",                                /* key */
    "expected ':'",                                  /* colon */
    "expected a value",                              /* value */
    "expected a value or ']'",                       /* first_value */
    "expected ',' or '}'",                           /* member */
    "expected ',' or ']'",                           /* element */
    "expected nothing behind the document"           /* end */
};


static const char  *ngx_modelgw_scan_faults[] = {
    "",                                              /* SOUND */
    "",                                              /* UNEXPECTED */
    "the document ends too early",                   /* CUT */
    "nested deeper than 64 levels",                  /* DEEP */
    "control byte in string",                        /* CONTROL */
    "invalid escape in string",                      /* ESCAPE */
    "invalid UTF-8 in string",                       /* UTF8 */
    "invalid number",                                /* BAD_NUMBER */
    "invalid literal",                               /* BAD_LITERAL */
    "",                                              /* TYPE */
    " is given twice",                               /* TWICE */
    "",                                              /* VARIANT */
    " is not allowed",                               /* DENIED */
    " has half of a surrogate pair",                 /* SURROGATE */
    " is one key too many"                           /* CROWDED */
};


static const struct {
    ngx_uint_t   types;
    const char  *words;
} ngx_modelgw_scan_types[] = {
    { NGX_MODELGW_SCAN_BOOL, "true or false" },
    { NGX_MODELGW_SCAN_TRUE, "true" },
    { NGX_MODELGW_SCAN_FALSE, "false" },
    { NGX_MODELGW_SCAN_NUMBER, "a number" },
    { NGX_MODELGW_SCAN_COUNT, "an integer of at most 9 digits" },
    { NGX_MODELGW_SCAN_STRING, "a string" },
    { NGX_MODELGW_SCAN_OBJECT, "an object" },
    { NGX_MODELGW_SCAN_ARRAY, "an array" },
    { 0, NULL }
};


ngx_uint_t
ngx_modelgw_scan_fault(ngx_modelgw_scan_t *s, ngx_str_t *text)
{
    u_char  *p, *last;

    p = text->data;
    last = p + NGX_MODELGW_SCAN_FAULT_LEN;

    if (s->fault < NGX_MODELGW_SCAN_TYPE) {
        p = ngx_modelgw_scan_fault_byte(s, p, last);
        text->len = p - text->data;

        return NGX_MODELGW_SCAN_JSON;
    }

    p = ngx_modelgw_scan_fault_field(s, p, last);
    text->len = p - text->data;

    return NGX_MODELGW_SCAN_FIELD;
}


static u_char *
ngx_modelgw_scan_fault_byte(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    const char  *words;

    /* s->next is the state that the fault was found in */

    words = (s->fault == NGX_MODELGW_SCAN_UNEXPECTED)
            ? ngx_modelgw_scan_expected[s->next]
            : ngx_modelgw_scan_faults[s->fault];

    return ngx_slprintf(p, last, "byte %O: %s", s->fault_at, words);
}


static u_char *
ngx_modelgw_scan_fault_field(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    if (s->fault == NGX_MODELGW_SCAN_TYPE) {
        return ngx_modelgw_scan_fault_types(s, p, last);
    }

    *p++ = '"';

    if (s->parent != NGX_MODELGW_SCAN_NONE) {
        p = ngx_slprintf(p, last, "%V.", &s->conf->watches[s->parent].path);
    }

    p = ngx_modelgw_scan_fault_key(s, p, last);

    if (s->fault == NGX_MODELGW_SCAN_VARIANT) {
        return ngx_slprintf(p, last, "\" must be written \"%V\"",
                            &s->names[s->subject].name);
    }

    return ngx_slprintf(p, last, "\"%s", ngx_modelgw_scan_faults[s->fault]);
}


/* the types that the watch accepts; null need not be told */

static u_char *
ngx_modelgw_scan_fault_types(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    ngx_uint_t                 i, types;
    const char                *link;
    ngx_modelgw_scan_watch_t  *watch;

    watch = &s->conf->watches[s->subject];
    types = watch->types & NGX_MODELGW_SCAN_ANY;

    p = ngx_slprintf(p, last, "\"%V\" must be ", &watch->path);

    if (types == NGX_MODELGW_SCAN_NULL) {
        return ngx_slprintf(p, last, "null");
    }

    link = "";

    for (i = 0; ngx_modelgw_scan_types[i].types; i++) {

        if ((types & ngx_modelgw_scan_types[i].types)
            == ngx_modelgw_scan_types[i].types)
        {
            types &= ~ngx_modelgw_scan_types[i].types;

            p = ngx_slprintf(p, last, "%s%s", link,
                             ngx_modelgw_scan_types[i].words);
            link = " or ";
        }
    }

    return p;
}


static u_char *
ngx_modelgw_scan_fault_key(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char  ch;
    size_t  i, len;

    len = s->len;

    if (len > NGX_MODELGW_SCAN_QUOTED_KEY) {
        len = NGX_MODELGW_SCAN_QUOTED_KEY;

        /* not through a character */

        while ((s->key[len] & 0xc0) == 0x80) {
            len--;
        }
    }

    for (i = 0; i < len && p < last; i++) {
        ch = s->key[i];
        *p++ = (ch < 0x20 || ch == 0x7f || ch == '"' || ch == '\\') ? '?' : ch;
    }

    return ngx_slprintf(p, last, "%s", (len < s->len) ? "..." : "");
}
