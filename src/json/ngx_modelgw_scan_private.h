
/*
 * What the files of the scanner share: its state.
 *
 *     scan.c         the machine: structure, literals, feeding
 *     scan_member.c  members as most programs write them
 *     scan_string.c  the inside of strings: escapes, UTF-8
 *     scan_text.c    text that is captured
 *     scan_number.c  the inside of numbers
 *     scan_watch.c   keys and values that the caller watches
 *     scan_mark.c    members that the caller counts
 *     scan_plan.c    what depends on the caller's tables only
 *     scan_create.c  making a scanner from a plan
 *     scan_fault.c   the sentences about faults
 */


#ifndef _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan.h"


#define NGX_MODELGW_SCAN_NONE  ((ngx_uint_t) -1)

#define NGX_MODELGW_SCAN_QUOTED_KEY  64      /* bytes of a key in a fault */
#define NGX_MODELGW_SCAN_DIGITS      9       /* of a COUNT */


/* what spreads the bits of a word: 2^64 by the golden ratio */

#define NGX_MODELGW_SCAN_GOLDEN  0x9e3779b97f4a7c15ULL


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


/* a watch, prepared; or a denied name */

typedef struct {
    ngx_str_t                  name;     /* the path's last member name */
    ngx_str_t                  folded;   /* with check; else: the same */
    ngx_uint_t                 parent;   /* a watch; NONE: the root */
    uint32_t                   below;    /* bits of the watches under it */
    uint32_t                   next;     /* one of the same slot; 0: none */
    size_t                     text;     /* offset of the value's text */
    size_t                     room;     /* for it */
    unsigned                   entered:1;  /* its members matter */
} ngx_modelgw_scan_name_t;


/* a name that is counted, and its marks as bits */

typedef struct {
    ngx_str_t                  name;
    uint64_t                   head;     /* up to 8 bytes of the name */
    uint64_t                   mask;     /* that are so many */
    uint64_t                   lower;    /* 0x20 for each letter of them */
    uint32_t                   any;      /* whatever the value is */
    uint32_t                   valued;   /* if the value begins as theirs */
    uint64_t                   opening;  /* a mask: as many bytes, up to 8, as
                                            the shortest such value has */
    uint64_t                   filter[2];  /* a bit for each such opening */
    ngx_uint_t                 next;     /* one of the same slot; 0: none */
} ngx_modelgw_scan_count_t;


/*
 * Where in the table of names one of len bytes is: names that occur together
 * differ in length, or in the first or the last byte.  The bit that tells
 * letters of one case from those of the other is shifted out of the slot.
 */

#define NGX_MODELGW_SCAN_SLOTS  256

#define ngx_modelgw_scan_slot(first, last, len)                               \
    ((8 * ((first) + 4 * (last)) + (len)) & (NGX_MODELGW_SCAN_SLOTS - 1))

#define ngx_modelgw_scan_slot_of(p, len)                                      \
    ((len) ? ngx_modelgw_scan_slot((p)[0], (p)[(len) - 1], len) : 0)


struct ngx_modelgw_scan_plan_s {
    ngx_modelgw_scan_conf_t    conf;
    ngx_modelgw_scan_name_t   *names;    /* of watches, then denied ones */
    ngx_uint_t                 nnames;
    uint32_t                   named[NGX_MODELGW_SCAN_SLOTS];
                                         /* the first in names, plus 1 */

    ngx_modelgw_scan_count_t  *counts;   /* from 1 */
    u_char                     slots[NGX_MODELGW_SCAN_SLOTS];
                                         /* the first in counts; 0: none */

    size_t                     key_room;
    size_t                     value_room;  /* of the longest mark's value */
    size_t                     text_room;   /* of all watched values */
    ngx_uint_t                 nframes;
    ngx_uint_t                 nhashes;
};


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
    size_t                     sound;    /* before the first lone surrogate */
    uint64_t                   hash;
    uint32_t                   pending;  /* high surrogate, its low one due */

    /* what is watched */
    ngx_uint_t                 target;   /* watch of the value that comes, or
                                            is being read; NONE: unwatched */
    ngx_uint_t                 type;     /* of that value */
    uint32_t                   found;    /* bits of the watches with a value */
    ngx_modelgw_scan_frame_t  *frame;    /* the innermost one open */
    ngx_modelgw_scan_frame_t  *frames;
    uint64_t                  *hashes;   /* keys of the checked ones */
    ngx_uint_t                 nhashes;

    /* what is counted */
    u_char                    *slots;    /* of the plan; NULL: nothing is */
    ngx_modelgw_scan_count_t  *counted;  /* the key before the value, if due */
    uint32_t                   due;      /* bits of marks: that value decides */
    uint32_t                   marks[NGX_MODELGW_SCAN_MAX_MARKS];

    ngx_modelgw_skip_pt        skip;
    ngx_modelgw_scan_plan_t   *plan;
    ngx_modelgw_scan_conf_t   *conf;
    ngx_modelgw_scan_name_t   *names;
    ngx_modelgw_scan_value_t  *values;
    u_char                    *texts;    /* of the values */

    u_char                    *key;      /* and then room for a word */
    u_char                    *folded;   /* likewise; with check or marks */
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

/* scan_member.c: a comma is at p; the quote of a key, of a string */
u_char *ngx_modelgw_scan_member_comma(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_member_key(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_member_text(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);

/* scan_text.c: begins, continues and ends a captured text; s->unit has come */
void ngx_modelgw_scan_text_capture(ngx_modelgw_scan_t *s, u_char *text,
    size_t room);
void ngx_modelgw_scan_text_append(ngx_modelgw_scan_t *s, u_char *p, size_t n);
void ngx_modelgw_scan_text_unit(ngx_modelgw_scan_t *s);
void ngx_modelgw_scan_text_end(ngx_modelgw_scan_t *s);

/* scan_number.c: a number begins at p; one continues */
u_char *ngx_modelgw_scan_number_begin(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_number(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);

/* scan_watch.c: what stands in a watched container; p, or NULL after a fault */

/*
 * A key begins; it has ended before p.  One that is short and has no escapes
 * is at from, where NGX_MODELGW_SKIP_SHORT bytes may be read.
 */
void ngx_modelgw_scan_watch_key(ngx_modelgw_scan_t *s);
u_char *ngx_modelgw_scan_watch_key_end(ngx_modelgw_scan_t *s, u_char *p);
u_char *ngx_modelgw_scan_watch_key_short(ngx_modelgw_scan_t *s, u_char *from,
    size_t len);

/* writes the name with its letters folded; returns its length, maybe less */
size_t ngx_modelgw_scan_watch_fold(u_char *dst, u_char *p, size_t len);

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

/* scan_mark.c */

ngx_int_t ngx_modelgw_scan_mark_plan(ngx_modelgw_scan_plan_t *plan,
    ngx_pool_t *pool);

/* a key of len bytes, plain or folded, has ended, whose slot has the name n */
void ngx_modelgw_scan_mark_key(ngx_modelgw_scan_t *s, u_char *p, size_t len,
    u_char *last, ngx_uint_t n);

/* a key that was captured has ended: of len bytes when folded */
void ngx_modelgw_scan_mark_key_end(ngx_modelgw_scan_t *s, size_t len);

/* the inside of a string begins at p, whose key is due; its text is captured */
void ngx_modelgw_scan_mark_text(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
void ngx_modelgw_scan_mark_text_end(ngx_modelgw_scan_t *s);


#endif /* _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_ */
