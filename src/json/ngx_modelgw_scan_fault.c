
/*
 * Sentences about faults, for the author of the client, who reads them mostly
 * in a log of another program: each names the byte or the field.
 *
 * The machine keeps the kind of the fault and its place; the sentence is made
 * on demand, so that a refused scan costs no more than another.  Names of
 * watches are trusted; a key of the document is cut, and what JSON would escape
 * becomes '?'.
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
static u_char *ngx_modelgw_scan_fault_keys(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_fault_key(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);


/* by state: the byte is not what the grammar expects */

static const char  *ngx_modelgw_scan_expected[] = {
    [sw_begin] = "expected an object",
    [sw_first_key] = "expected a key or '}'",
    [sw_key] = "expected a key",
    [sw_colon] = "expected ':'",
    [sw_value] = "expected a value",
    [sw_first_value] = "expected a value or ']'",
    [sw_member] = "expected ',' or '}'",
    [sw_element] = "expected ',' or ']'",
    [sw_end] = "expected nothing after the document"
};


/* by fault; those of fields come after the key in quotes */

static const char  *ngx_modelgw_scan_faults[] = {
    [NGX_MODELGW_SCAN_OK] = "",
    [NGX_MODELGW_SCAN_UNEXPECTED] = "",  /* by state */
    [NGX_MODELGW_SCAN_TRUNCATED] = "the document ends too early",
    [NGX_MODELGW_SCAN_DEEP] = "nested deeper than 64 levels",
    [NGX_MODELGW_SCAN_CONTROL] = "control byte in string",
    [NGX_MODELGW_SCAN_ESCAPE] = "invalid escape in string",
    [NGX_MODELGW_SCAN_UTF8] = "invalid UTF-8 in string",
    [NGX_MODELGW_SCAN_BAD_NUMBER] = "invalid number",
    [NGX_MODELGW_SCAN_BAD_LITERAL] = "invalid literal",

    [NGX_MODELGW_SCAN_TYPE] = "",        /* by types */
    [NGX_MODELGW_SCAN_CASE_VARIANT] = "",  /* by name */
    [NGX_MODELGW_SCAN_DUPLICATE_KEY] = " is given twice",
    [NGX_MODELGW_SCAN_DENIED] = " is not allowed",
    [NGX_MODELGW_SCAN_SURROGATE] = " has half of a surrogate pair"
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

    /* s->next is the state before the fault */

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

    if (s->fault == NGX_MODELGW_SCAN_TOO_MANY_KEYS) {
        return ngx_modelgw_scan_fault_keys(s, p, last);
    }

    *p++ = '"';

    if (s->parent != NGX_MODELGW_SCAN_NONE) {
        p = ngx_slprintf(p, last, "%V.", &s->conf->watches[s->parent].path);
    }

    p = ngx_modelgw_scan_fault_key(s, p, last);

    if (s->fault == NGX_MODELGW_SCAN_CASE_VARIANT) {
        return ngx_slprintf(p, last, "\" must be written \"%V\"",
                            &s->names[s->subject].name);
    }

    return ngx_slprintf(p, last, "\"%s", ngx_modelgw_scan_faults[s->fault]);
}


/* the types that the watch accepts, without null unless it is the only one */

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
ngx_modelgw_scan_fault_keys(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    if (s->parent == NGX_MODELGW_SCAN_NONE) {
        return ngx_slprintf(p, last, "the body has more than %d keys",
                            NGX_MODELGW_SCAN_MAX_KEYS);
    }

    return ngx_slprintf(p, last, "\"%V\" has more than %d keys",
                        &s->conf->watches[s->parent].path,
                        NGX_MODELGW_SCAN_MAX_KEYS);
}


static u_char *
ngx_modelgw_scan_fault_key(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char  ch;
    size_t  i, len;

    len = s->len;

    if (len > NGX_MODELGW_SCAN_QUOTED_KEY) {
        len = NGX_MODELGW_SCAN_QUOTED_KEY;

        /* do not cut a character */

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
