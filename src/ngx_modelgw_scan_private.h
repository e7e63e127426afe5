
/*
 * What the files of the scanner share: its state.
 *
 *     scan.c         the machine: structure, literals, feeding
 *     scan_string.c  the inside of strings: escapes, UTF-8, captured text
 *     scan_number.c  the inside of numbers
 *     scan_watch.c   keys and values that the caller watches
 *     scan_create.c  making a scanner from a table of watches
 *     scan_fault.c   the sentences about faults
 */


#ifndef _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan.h"


#define NGX_MODELGW_SCAN_NONE  ((ngx_uint_t) -1)

#define NGX_MODELGW_SCAN_QUOTED_KEY  64      /* bytes of a key in a fault */


/*
 * Between tokens the state says what may come next; inside of a token, where
 * in it the last chunk ended.  s->next is the state behind the token.
 *
 *     begin                 '{' of the root
 *     first_key, key        behind '{'; behind ',' in an object
 *     colon                 behind a key
 *     value, first_value    behind ':' or ','; behind '['
 *     member, element       behind a value in an object; in an array
 *     end                   behind the root
 *
 *     string -> escape -> string
 *            -> escape -> hex (4 digits) -> string
 *            -> utf8 (1 to 3 bytes) -> string
 *            -> s->next
 *     literal -> s->next
 *     minus -> zero | int
 *     zero, int -> point -> frac
 *     zero, int, frac -> exp -> exp_sign -> exp_digit
 *     zero, int, frac, exp_digit -> s->next, with the byte not yet taken
 *
 *     fault                 nothing is read any more
 */

typedef enum {
    sw_begin = 0,
    sw_first_key,
    sw_key,
    sw_colon,
    sw_value,
    sw_first_value,
    sw_member,
    sw_element,
    sw_end,                              /* the last one between tokens */

    sw_string,
    sw_escape,
    sw_hex,
    sw_utf8,
    sw_literal,

    sw_minus,
    sw_zero,
    sw_int,
    sw_point,
    sw_frac,
    sw_exp,
    sw_exp_sign,
    sw_exp_digit,

    sw_fault
} ngx_modelgw_scan_state_e;


typedef enum {
    NGX_MODELGW_SCAN_SOUND = 0,

    /* not JSON; the sentence is about a byte */
    NGX_MODELGW_SCAN_UNEXPECTED,
    NGX_MODELGW_SCAN_CUT,
    NGX_MODELGW_SCAN_DEEP,
    NGX_MODELGW_SCAN_CONTROL,
    NGX_MODELGW_SCAN_ESCAPE,
    NGX_MODELGW_SCAN_UTF8,
    NGX_MODELGW_SCAN_BAD_NUMBER,
    NGX_MODELGW_SCAN_BAD_LITERAL,

    /* JSON; the sentence is about a field: s->subject or s->key */
    NGX_MODELGW_SCAN_TYPE,
    NGX_MODELGW_SCAN_TWICE,
    NGX_MODELGW_SCAN_VARIANT,
    NGX_MODELGW_SCAN_DENIED,
    NGX_MODELGW_SCAN_SURROGATE,
    NGX_MODELGW_SCAN_CROWDED
} ngx_modelgw_scan_fault_e;


/* a watch, prepared */

typedef struct {
    ngx_str_t                  name;     /* the path's last member name */
    ngx_uint_t                 parent;   /* a watch; NONE: the root */
    uint32_t                   below;    /* bits of the watches under it */
    unsigned                   entered:1;  /* its members matter */
} ngx_modelgw_scan_name_t;


/* a container that is open and watched; the first one is the root */

typedef struct {
    ngx_uint_t                 watch;    /* NONE: the root */
    ngx_uint_t                 depth;
    ngx_uint_t                 elements;
    ngx_uint_t                 first;    /* its first one in s->hashes */
    unsigned                   entered:1;
    unsigned                   checked:1;
} ngx_modelgw_scan_frame_t;


struct ngx_modelgw_scan_s {
    ngx_modelgw_scan_state_e   state;
    ngx_modelgw_scan_state_e   next;

    /* what the machine is in */
    ngx_uint_t                 depth;
    uint64_t                   objects;  /* a bit for each open container */
    u_char                    *rest;     /* of a literal */

    /* the chunk being fed, and its place in the document */
    u_char                    *start;
    off_t                      base;

    /* inside of a string */
    ngx_uint_t                 left;     /* hex digits, or bytes of UTF-8 */
    u_char                     low;      /* bounds of the next byte of UTF-8 */
    u_char                     high;
    uint32_t                   unit;     /* of UTF-16, from \uhhhh */

    /* a string or number whose text is kept */
    unsigned                   capture:1;
    unsigned                   hashing:1;
    unsigned                   lone:1;   /* it has a lone surrogate */
    u_char                    *text;
    size_t                     room;
    size_t                     len;      /* of all of it, kept or not */
    uint64_t                   hash;
    uint32_t                   pending;  /* high surrogate, its low one due */

    /* what is watched */
    ngx_uint_t                 target;   /* watch of the value that comes, or
                                            is being read; NONE: unwatched */
    ngx_uint_t                 type;     /* of that value */
    ngx_modelgw_scan_frame_t  *frame;    /* the innermost one open */
    ngx_modelgw_scan_frame_t  *frames;
    uint64_t                  *hashes;   /* keys of the checked ones */
    ngx_uint_t                 nhashes;

    ngx_modelgw_skip_pt        skip;
    ngx_modelgw_scan_conf_t   *conf;
    ngx_modelgw_scan_name_t   *names;
    ngx_modelgw_scan_value_t  *values;

    u_char                    *key;
    size_t                     key_room;

    ngx_modelgw_scan_fault_e   fault;
    off_t                      fault_at;
    ngx_uint_t                 subject;  /* the watch that it is about */
    ngx_uint_t                 parent;   /* or: the watch above s->key */
};


#define ngx_modelgw_scan_offset(s, p)  ((s)->base + ((p) - (s)->start))

/* the state behind a value */
#define ngx_modelgw_scan_behind(s)                                            \
    (((s)->objects & 1) ? sw_member : sw_element)

/* the container being read is a watched one */
#define ngx_modelgw_scan_watched(s)  ((s)->depth == (s)->frame->depth)


/*
 * Functions that read take bytes from [p, last) and return where they stopped:
 * at last or behind what they have read; NULL after a fault.
 */

/* scan.c: marks the fault at byte p; always returns NULL */
u_char *ngx_modelgw_scan_stop(ngx_modelgw_scan_t *s,
    ngx_modelgw_scan_fault_e fault, u_char *p);

/* scan_string.c */

u_char *ngx_modelgw_scan_string(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_string_escape(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_string_hex(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_string_utf8(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);

/* begins and continues a captured text */
void ngx_modelgw_scan_string_capture(ngx_modelgw_scan_t *s, u_char *text,
    size_t room);
void ngx_modelgw_scan_string_append(ngx_modelgw_scan_t *s, u_char *p,
    size_t n);

/* scan_number.c: a number begins at p; one continues */
u_char *ngx_modelgw_scan_number_begin(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_number(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);

/* scan_watch.c: what stands in a watched container; p, or NULL after a fault */

/* a key begins; it has ended before p */
void ngx_modelgw_scan_watch_key(ngx_modelgw_scan_t *s);
u_char *ngx_modelgw_scan_watch_key_end(ngx_modelgw_scan_t *s, u_char *p);

/*
 * A value begins at p: s->target stays, if it is watched and accepted.  It has
 * ended before p (not for containers).
 */
u_char *ngx_modelgw_scan_watch_value(ngx_modelgw_scan_t *s, ngx_uint_t type,
    u_char *p);
u_char *ngx_modelgw_scan_watch_value_end(ngx_modelgw_scan_t *s, u_char *p);

/* the container that s->target watches was entered; one was left before p */
void ngx_modelgw_scan_watch_open(ngx_modelgw_scan_t *s);
void ngx_modelgw_scan_watch_close(ngx_modelgw_scan_t *s, u_char *p);


#endif /* _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_ */
