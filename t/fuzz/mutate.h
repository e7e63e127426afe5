
/*
 * A mutator for inputs that are JSON, or a stream of it, after a few bytes of
 * options: it takes values out, puts them elsewhere, repeats them, changes
 * one.  Bytes changed at random, as libFuzzer does by itself, are rarely JSON
 * any more, and reach the scanner only; half of the inputs are made so
 * nevertheless.
 *
 * The program includes unit.h before and defines MUTATE_OPTIONS, the number of
 * bytes before the text.
 */


#ifndef _MUTATE_H_INCLUDED_
#define _MUTATE_H_INCLUDED_


#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_tape.h"


size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);


/* the bytes [from, to) become text */

typedef struct {
    size_t        from;
    size_t        to;
    u_char       *text;
    size_t        len;
} mutate_t;


static const char  *mutate_stock[] = {
    "null", "true", "false", "0", "1", "2048", "-1", "0.5", "1e9", "999999999",
    "\"\"", "\" \\n\"", "\"\\ud83d\\ude00\"", "\"\\ud800\"", "\"{}\"",
    "\"{\\\"a\\\":1}\"", "[]", "{}", "[{}]", "{\"type\":\"text\"}",
    "{\"type\":\"ephemeral\"}", "\"data:image\\/png;base64,AA==\""
};


static ngx_inline ngx_uint_t
mutate_any(uint32_t *seed, ngx_uint_t n)
{
    *seed = *seed * 1103515245 + 12345;

    return n ? (*seed >> 8) % n : 0;
}


static ngx_inline ngx_modelgw_node_t *
mutate_node(ngx_modelgw_tape_t *tape, uint32_t *seed)
{
    return &tape->nodes[mutate_any(seed, tape->n)];
}


static ngx_inline void
mutate_value(ngx_modelgw_tape_t *tape, uint32_t *seed, mutate_t *m)
{
    ngx_str_t            raw;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node, *other;

    node = mutate_node(tape, seed);

    m->from = node->from;
    m->to = node->to;

    if (mutate_any(seed, 3) == 0) {
        i = mutate_any(seed, sizeof(mutate_stock) / sizeof(mutate_stock[0]));
        m->text = (u_char *) mutate_stock[i];
        m->len = ngx_strlen(mutate_stock[i]);
        return;
    }

    /* a name must stay a string */

    for (i = 0; i < 8; i++) {
        other = mutate_node(tape, seed);

        if (other->type == node->type) {
            break;
        }
    }

    ngx_modelgw_tape_raw(tape, other, &raw);
    m->text = raw.data;
    m->len = raw.len;
}


/* one element of a container, or one member: repeated, or taken out */

static ngx_inline void
mutate_element(ngx_modelgw_tape_t *tape, uint32_t *seed, mutate_t *m)
{
    ngx_uint_t           n, i;
    ngx_modelgw_node_t  *node, *child, *last;

    node = mutate_node(tape, seed);

    for (n = 0; n < 32 && ngx_modelgw_tape_first(tape, node) == NULL; n++) {
        node = mutate_node(tape, seed);
    }

    child = ngx_modelgw_tape_first(tape, node);

    if (child == NULL) {
        mutate_value(tape, seed, m);
        return;
    }

    for (i = mutate_any(seed, node->count); /* void */ ; i--) {
        last = child;

        if (node->type == NGX_MODELGW_TAPE_OBJECT) {
            last = ngx_modelgw_tape_next(tape, node, child);
        }

        if (i == 0 || ngx_modelgw_tape_next(tape, node, last) == NULL) {
            break;
        }

        child = ngx_modelgw_tape_next(tape, node, last);
    }

    m->from = child->from;
    m->to = last->to;

    if (mutate_any(seed, 2)) {
        m->text = tape->base + m->from;
        m->len = m->to - m->from;
        m->to = m->from;             /* and a comma, see mutate_apply() */
        return;
    }

    m->text = NULL;
    m->len = 0;

    if (tape->base[m->to] == ',') {
        m->to++;

    } else if (tape->base[m->from - 1] == ',') {
        m->from--;
    }
}


static ngx_inline size_t
mutate_apply(mutate_t *m, u_char *base, u_char *p, size_t size, size_t max)
{
    size_t      rest;
    ngx_uint_t  comma;

    comma = (m->len && m->from == m->to);
    rest = size - m->to;

    if (m->from + m->len + comma + rest > max) {
        return LLVMFuzzerMutate(p, size, max);
    }

    ngx_memmove(p + m->from + m->len + comma, p + m->to, rest);

    if (m->len) {
        ngx_memcpy(p + m->from, m->text, m->len);
    }

    if (comma) {
        p[m->from + m->len] = ',';
    }

    return m->from + m->len + comma + rest;
}


static ngx_inline ngx_int_t
mutate_read(ngx_modelgw_tape_t *tape, ngx_pool_t *pool, u_char *p, size_t size)
{
    ngx_uint_t                n;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    s = ngx_modelgw_scan_create(pool, &conf);

    if (s == NULL
        || ngx_modelgw_scan_feed(s, p, size) != NGX_OK
        || ngx_modelgw_scan_done(s) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ngx_modelgw_tape_init(tape, pool, conf.skip);

    if (ngx_modelgw_tape_feed(tape, p, size) != NGX_OK) {
        return NGX_DECLINED;
    }

    return ngx_modelgw_tape_done(tape, p);
}


/* a JSON document of size bytes, with room for max */

static ngx_inline size_t
mutate_json(u_char *p, size_t size, size_t max, uint32_t *seed)
{
    u_char              *copy;
    mutate_t             m;
    ngx_pool_t          *pool;
    ngx_modelgw_node_t  *node;
    ngx_modelgw_tape_t   tape;

    pool = unit_pool_create();
    copy = unit_dup(p, size);

    if (mutate_read(&tape, pool, copy, size) != NGX_OK) {
        size = LLVMFuzzerMutate(p, size, max);
        goto done;
    }

    switch (mutate_any(seed, 5)) {

    case 0:
    case 1:
        mutate_value(&tape, seed, &m);
        break;

    case 2:
    case 3:
        mutate_element(&tape, seed, &m);
        break;

    default: /* the bytes of a value, at random */
        node = mutate_node(&tape, seed);

        m.from = node->from;
        m.to = node->to;
        m.len = ngx_min((size_t) 2 * (m.to - m.from) + 8, max);
        m.text = ngx_palloc(pool, m.len);

        if (m.text == NULL) {
            goto done;
        }

        ngx_memcpy(m.text, copy + m.from, ngx_min(m.len, m.to - m.from));
        m.len = LLVMFuzzerMutate(m.text, ngx_min(m.len, m.to - m.from), m.len);
        break;
    }

    size = mutate_apply(&m, copy, p, size, max);

done:

    unit_free(copy);
    ngx_destroy_pool(pool);

    return size;
}


#ifdef MUTATE_STREAM

/* [*from, *to) is any event, its blank line included */

static ngx_inline void
mutate_event(u_char *p, size_t size, uint32_t *seed, size_t *from, size_t *to)
{
    u_char  *end;

    *to = mutate_any(seed, size);
    *from = *to;

    while (*from && !(p[*from - 1] == LF && *from > 1 && p[*from - 2] == LF)) {
        (*from)--;
    }

    end = memmem(p + *from, size - *from, "\n\n", 2);
    *to = end ? (size_t) (end - p) + 2 : size;
}


/* adds an event after another, removes one, or changes the JSON of one */

static ngx_inline size_t
mutate_text(u_char *p, size_t size, size_t max, uint32_t *seed)
{
    size_t    from, to, at, len;
    u_char   *data;
    mutate_t  m;

    if (size == 0) {
        return LLVMFuzzerMutate(p, size, max);
    }

    mutate_event(p, size, seed, &from, &to);

    switch (mutate_any(seed, 5)) {

    case 0:
        ngx_memmove(p + from, p + to, size - to);
        return size - (to - from);

    case 1:
        len = to - from;
        data = unit_dup(p + from, len);

        mutate_event(p, size, seed, &from, &at);

        if (size + len <= max) {
            ngx_memmove(p + at + len, p + at, size - at);
            ngx_memcpy(p + at, data, len);
            size += len;
        }

        unit_free(data);
        return size;

    default:
        break;
    }

    data = memchr(p + from, '{', to - from);

    if (data == NULL) {
        return LLVMFuzzerMutate(p, size, max);
    }

    at = data - p;
    data = memchr(data, LF, to - at);
    m.from = at;
    m.to = data ? (size_t) (data - p) : to;

    /* with more, as much as there is room for */

    len = m.to - m.from + (max - size);
    m.text = malloc(len);

    if (m.text == NULL) {
        return size;
    }

    ngx_memcpy(m.text, p + m.from, m.to - m.from);
    m.len = mutate_json(m.text, m.to - m.from, len, seed);

    size = mutate_apply(&m, NULL, p, size, max);

    free(m.text);

    return size;
}

#else

#define mutate_text  mutate_json

#endif


size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max,
    unsigned int seed);


size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max,
    unsigned int seed)
{
    uint32_t  s;

    s = seed;

    if (size <= MUTATE_OPTIONS || max <= MUTATE_OPTIONS
        || mutate_any(&s, 4) == 0)
    {
        return LLVMFuzzerMutate(data, size, max);
    }

    if (mutate_any(&s, 16) == 0) {
        (void) LLVMFuzzerMutate(data, MUTATE_OPTIONS, MUTATE_OPTIONS);
        return size;
    }

    return MUTATE_OPTIONS + mutate_text(data + MUTATE_OPTIONS,
                                        size - MUTATE_OPTIONS,
                                        max - MUTATE_OPTIONS, &s);
}


#endif /* _MUTATE_H_INCLUDED_ */
