
/*
 * The state of the scanner, which its files share.
 *
 *     scan.c         the machine: structure, strings, numbers, literals
 *     scan_member.c  members as most programs write them
 *     scan_watch.c   keys and values that are watched, members that are counted
 *     scan_plan.c    what depends on the caller's tables only; making a scanner
 *     scan_fault.c   the sentences about faults
 */


#ifndef _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_tape_private.h"


#define NGX_MODELGW_SCAN_NONE  ((ngx_uint_t) -1)

#define NGX_MODELGW_SCAN_QUOTED_KEY  64      /* bytes of a key in a fault */
#define NGX_MODELGW_SCAN_DIGITS      9       /* of a COUNT */


/* a factor that spreads the bits of a word: 2^64 by the golden ratio */

#define NGX_MODELGW_SCAN_GOLDEN  0x9e3779b97f4a7c15ULL


/*
 * Between tokens the state says what may come next; inside of a token, where
 * in it the last chunk ended.  s->next is the state after the token.
 *
 *     begin                 before '{' of the root
 *     first_key, key        after '{'; after ',' in an object
 *     colon                 after a key
 *     value, first_value    after ':' or ','; after '['
 *     member, element       after a value in an object; in an array
 *     end                   after the root
 *
 *     string -> escape -> string
 *            -> escape -> hex (4 digits) -> string
 *            -> utf8 (1 to 3 bytes) -> string
 *            -> s->next
 *     literal -> s->next
 *     minus -> zero | int
 *     zero, int -> point -> frac
 *     zero, int, frac -> exp -> exp_sign -> exp_digit
 *     zero, int, frac, exp_digit -> s->next, the byte is not yet read
 *
 *     fault                 final
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
    NGX_MODELGW_SCAN_OK = 0,

    /* not JSON, at byte s->fault_at */
    NGX_MODELGW_SCAN_UNEXPECTED,
    NGX_MODELGW_SCAN_TRUNCATED,
    NGX_MODELGW_SCAN_DEEP,
    NGX_MODELGW_SCAN_CONTROL,
    NGX_MODELGW_SCAN_ESCAPE,
    NGX_MODELGW_SCAN_UTF8,
    NGX_MODELGW_SCAN_BAD_NUMBER,
    NGX_MODELGW_SCAN_BAD_LITERAL,

    /* JSON, but a field is refused: s->subject or s->key */
    NGX_MODELGW_SCAN_TYPE,
    NGX_MODELGW_SCAN_DUPLICATE_KEY,
    NGX_MODELGW_SCAN_CASE_VARIANT,
    NGX_MODELGW_SCAN_DENIED,
    NGX_MODELGW_SCAN_SURROGATE,
    NGX_MODELGW_SCAN_TOO_MANY_KEYS
} ngx_modelgw_scan_fault_e;


/* the name of a watch, or a denied name */

typedef struct {
    ngx_str_t                  name;     /* the last one of the path */
    ngx_str_t                  folded;   /* without check: the same */
    ngx_uint_t                 parent;   /* a watch; NONE: the root */
    uint32_t                   below;    /* bits of the watches under it */
    uint32_t                   next;     /* of the same slot, index plus 1; 0:
                                            none */
    size_t                     text;     /* offset of the value's text */
    size_t                     room;     /* bytes for it */
    unsigned                   entered:1;  /* keys in it are compared */
} ngx_modelgw_scan_name_t;


/* the name of one or more marks; bits are those of the marks */

typedef struct {
    ngx_str_t                  name;
    uint64_t                   head;     /* first 8 bytes of the name */
    uint64_t                   mask;     /* 0xff for each of them it has */
    uint64_t                   lower;    /* 0x20 for each letter of them */
    uint32_t                   any;      /* marks without a value */
    uint32_t                   valued;   /* marks with a value */
    uint64_t                   prefix;   /* a mask of up to 8 bytes, as many as
                                            the shortest value has */
    uint64_t                   filter[2];  /* the prefixes, hashed to bits */
    ngx_uint_t                 next;     /* of the same slot; 0: none */
} ngx_modelgw_scan_count_t;


/*
 * The slot of a name in the tables of names, by its first and last byte and its
 * length: names of one protocol mostly differ in one of them.  The bit of the
 * letter case is shifted out.
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
                                         /* index in names, plus 1; 0: none */

    ngx_modelgw_scan_count_t  *counts;   /* counts[0] is not used */
    u_char                     slots[NGX_MODELGW_SCAN_SLOTS];
                                         /* index in counts; 0: none */

    /* sizes in bytes */
    size_t                     key_room;
    size_t                     value_room;  /* of the longest mark's value */
    size_t                     text_room;   /* of all watched values */
    ngx_uint_t                 nframes;
    ngx_uint_t                 nhashes;
};


/* an open container that is watched; the first one is the root */

typedef struct {
    ngx_uint_t                 watch;    /* NONE: the root */
    ngx_uint_t                 depth;
    ngx_uint_t                 elements;
    ngx_uint_t                 first;    /* index of its keys in s->hashes */
    unsigned                   entered:1;  /* its keys are compared */
    unsigned                   checked:1;  /* equal keys are refused */
} ngx_modelgw_scan_frame_t;


struct ngx_modelgw_scan_s {
    ngx_modelgw_scan_state_e   state;
    ngx_modelgw_scan_state_e   next;

    /* open containers */
    ngx_uint_t                 depth;
    uint64_t                   objects;  /* bits, the innermost one lowest; set
                                            for objects */
    u_char                    *rest;     /* of a literal being read */

    /* the chunk being read */
    u_char                    *start;
    off_t                      base;     /* its offset in the document */
    off_t                      root;     /* offset of the first bracket */

    /* inside of a string */
    ngx_uint_t                 left;     /* hex digits, or bytes of UTF-8 */
    u_char                     low;      /* bounds of the next byte of UTF-8 */
    u_char                     high;
    uint32_t                   unit;     /* UTF-16, from \uhhhh */

    /* a captured string or number */
    unsigned                   capture:1;
    unsigned                   hashing:1;
    unsigned                   lone:1;   /* it has a lone surrogate */
    u_char                    *text;
    size_t                     room;     /* bytes for the text */
    size_t                     len;      /* bytes read, also without room */
    size_t                     valid;    /* bytes before a lone surrogate */
    uint64_t                   hash;
    uint32_t                   pending;  /* a high surrogate before a low one */

    /* watches */
    ngx_uint_t                 target;   /* watch of the next value, or of the
                                            one being read; NONE: unwatched */
    ngx_uint_t                 type;     /* of that value */
    uint32_t                   found;    /* bits of watches with a value */
    ngx_modelgw_scan_frame_t  *frame;    /* the innermost one */
    ngx_modelgw_scan_frame_t  *frames;
    uint64_t                  *hashes;   /* of keys in checked frames */
    ngx_uint_t                 nhashes;

    /* marks */
    u_char                    *slots;    /* of the plan; NULL: no marks */
    ngx_modelgw_scan_count_t  *counted;  /* the last key, if due */
    uint32_t                   due;      /* bits of marks that its value may
                                            have */
    uint32_t                   marks[NGX_MODELGW_SCAN_MAX_MARKS];

    ngx_modelgw_tape_t        *tape;     /* NULL: not wanted */

    ngx_modelgw_skip_pt        skip;
    ngx_modelgw_scan_plan_t   *plan;
    ngx_modelgw_scan_conf_t   *conf;
    ngx_modelgw_scan_name_t   *names;
    ngx_modelgw_scan_value_t  *values;
    u_char                    *texts;    /* of the values */

    /* the last key; each has room for eight bytes more */
    u_char                    *key;
    u_char                    *folded;   /* with check or marks only */
    size_t                     key_room;

    ngx_modelgw_scan_fault_e   fault;
    off_t                      fault_at;
    ngx_uint_t                 subject;  /* the watch that is concerned */
    ngx_uint_t                 parent;   /* the watch above s->key */
};


#define ngx_modelgw_scan_offset(s, p)  ((s)->base + ((p) - (s)->start))

/*
 * If there is a tape: a value begins at p; the string, number or literal that
 * has begun last ends before p
 */

#define ngx_modelgw_scan_begin(s, type, p)                                    \
    if ((s)->tape) {                                                          \
        ngx_modelgw_scan_tape_begin(s, type, p);                              \
    }

#define ngx_modelgw_scan_end(s, p)                                            \
    if ((s)->tape) {                                                          \
        ngx_modelgw_scan_tape_end(s, p);                                      \
    }

/* the state after a value */
#define ngx_modelgw_scan_after(s)                                             \
    (((s)->objects & 1) ? sw_member : sw_element)

/* the innermost container is the root or watched */
#define ngx_modelgw_scan_watched(s)  ((s)->depth == (s)->frame->depth)


/* the first bytes of a value, hashed to two numbers of 6 bits: i is 0 or 1 */

#define ngx_modelgw_scan_mark_hash(w)  (((w) * NGX_MODELGW_SCAN_GOLDEN) >> 52)
#define ngx_modelgw_scan_mark_bit(h, i)  ((uint64_t) 1 << ((h) >> 6 * (i) & 63))


/*
 * Functions that read take bytes from [p, last) and return the first byte that
 * they have not read, or last; NULL after a fault.
 */

/* scan.c: a fault at byte p; always returns NULL */
u_char *ngx_modelgw_scan_stop(ngx_modelgw_scan_t *s,
    ngx_modelgw_scan_fault_e fault, u_char *p);

/* scan.c: on the tape, which there is, a value begins, or has ended */
void ngx_modelgw_scan_tape_begin(ngx_modelgw_scan_t *s, ngx_uint_t type,
    u_char *p);
void ngx_modelgw_scan_tape_end(ngx_modelgw_scan_t *s, u_char *p);

/* scan.c: reads the inside of a string; the state is sw_string */
u_char *ngx_modelgw_scan_string(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);

/* scan.c: captures the string or number that follows; room is in bytes */
void ngx_modelgw_scan_text_capture(ngx_modelgw_scan_t *s, u_char *text,
    size_t room);

/*
 * scan_member.c: read on from the comma of an object at p; from the quote of a
 * key; from the quote of a string
 */
u_char *ngx_modelgw_scan_member_comma(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_member_key(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
u_char *ngx_modelgw_scan_member_text(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);

/*
 * scan_watch.c: the contents of a watched container.  Return p, the byte after
 * it, or NULL after a fault.
 *
 * _key() captures a key, _key_end() is called after it; _key_short() for a key
 * without escapes, less than NGX_MODELGW_SKIP_SHORT bytes long, where
 * NGX_MODELGW_SKIP_SHORT bytes may be read.
 */
void ngx_modelgw_scan_watch_key(ngx_modelgw_scan_t *s);
u_char *ngx_modelgw_scan_watch_key_end(ngx_modelgw_scan_t *s, u_char *p);
u_char *ngx_modelgw_scan_watch_key_short(ngx_modelgw_scan_t *s, u_char *from,
    size_t len);

/*
 * A value begins at p; s->target becomes NONE if it is not watched, or not
 * accepted.  _value_end() is called after strings, numbers and literals.
 */
u_char *ngx_modelgw_scan_watch_value(ngx_modelgw_scan_t *s, ngx_uint_t type,
    u_char *p);
u_char *ngx_modelgw_scan_watch_value_end(ngx_modelgw_scan_t *s, u_char *p);

/* the container that s->target watches begins; one ends before p */
void ngx_modelgw_scan_watch_open(ngx_modelgw_scan_t *s);
void ngx_modelgw_scan_watch_close(ngx_modelgw_scan_t *s, u_char *p);

/* writes the folded name, not longer than len; returns its length */
size_t ngx_modelgw_scan_watch_fold(u_char *dst, u_char *p, size_t len);

/*
 * scan_watch.c: a key of len bytes is at p, without escapes; in its slot, the
 * first name is plan->counts[n].  [p, last) may be read.
 */
void ngx_modelgw_scan_mark_key(ngx_modelgw_scan_t *s, u_char *p, size_t len,
    u_char *last, ngx_uint_t n);

/*
 * The inside of a string begins at p, with s->due: it is captured, if it may
 * have a prefix that is asked for; the text has ended
 */
void ngx_modelgw_scan_mark_text(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
void ngx_modelgw_scan_mark_text_end(ngx_modelgw_scan_t *s);


#endif /* _NGX_MODELGW_SCAN_PRIVATE_H_INCLUDED_ */
