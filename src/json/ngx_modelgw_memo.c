
/*
 * States by prefix.
 *
 * A document is a chain of links, all of the same length.  Where a link ends,
 * the hash of all before it is kept; of each document only the last one has a
 * state, since a client goes on from there.  Links before it tell that these
 * bytes were seen: while they were, scanning waits, for a state may follow.  As
 * soon as a link is new, all that has waited is scanned.
 *
 * If the first link is new, nothing after it is hashed, and there is no state:
 * most documents that begin like no other do not come again.
 *
 * What was not used for longest goes, whatever its hash is: which links go
 * must not tell a client anything of the hash, who could find the secret by it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_memo.h"


#define NGX_MODELGW_MEMO_LINKS  16       /* for each state */


typedef struct ngx_modelgw_memo_link_s  ngx_modelgw_memo_link_t;


typedef struct {
    ngx_queue_t                 queue;
    ngx_modelgw_memo_link_t    *link;
    uint64_t                    scan[1]; /* a scanner */
} ngx_modelgw_memo_state_t;


struct ngx_modelgw_memo_link_s {
    ngx_rbtree_node_t           node;    /* its key is the hash's low half */
    uint64_t                    high;
    ngx_queue_t                 queue;
    ngx_modelgw_memo_state_t   *state;   /* NULL: none */
};


struct ngx_modelgw_memo_s {
    size_t                      size;    /* of a link */
    ngx_modelgw_prefix_key_t   *key;
    ngx_pool_t                 *pool;

    ngx_rbtree_t                tree;    /* of links */
    ngx_rbtree_node_t           sentinel;

    /* the one used last is the first */
    ngx_queue_t                 links;
    ngx_queue_t                 states;

    ngx_uint_t                  nstates;
    ngx_uint_t                  max_states;

    ngx_modelgw_memo_link_t    *unused;  /* up to end */
    ngx_modelgw_memo_link_t    *end;

    uint64_t                    skipped;
};


static u_char *ngx_modelgw_memo_waiting(ngx_modelgw_memo_read_t *r,
    u_char *p);
static u_char *ngx_modelgw_memo_reach(ngx_modelgw_memo_read_t *r, u_char *from,
    u_char *p);
static ngx_modelgw_memo_link_t *ngx_modelgw_memo_link(
    ngx_modelgw_memo_read_t *r);
static u_char *ngx_modelgw_memo_scan(ngx_modelgw_memo_read_t *r, u_char *from,
    u_char *p);
static ngx_modelgw_memo_link_t *ngx_modelgw_memo_find(ngx_modelgw_memo_t *m,
    ngx_modelgw_prefix_hash_t *hash);
static ngx_modelgw_memo_link_t *ngx_modelgw_memo_add(ngx_modelgw_memo_t *m,
    ngx_modelgw_prefix_hash_t *hash);
static void ngx_modelgw_memo_insert(ngx_rbtree_node_t *temp,
    ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel);
static ngx_rbtree_node_t **ngx_modelgw_memo_side(ngx_rbtree_node_t *node,
    ngx_rbtree_key_t low, uint64_t high);
static void ngx_modelgw_memo_save(ngx_modelgw_memo_t *m,
    ngx_modelgw_memo_link_t *link, ngx_modelgw_scan_t *scan);
static void ngx_modelgw_memo_forget(ngx_modelgw_memo_t *m,
    ngx_modelgw_memo_state_t *state);
static void ngx_modelgw_memo_cleanup(void *data);


ngx_modelgw_memo_t *
ngx_modelgw_memo_create(ngx_pool_t *pool, ngx_uint_t nstates, size_t size,
    u_char *secret)
{
    ngx_uint_t                     n;
    ngx_pool_cleanup_t            *cln;
    ngx_modelgw_memo_t            *m;
    ngx_modelgw_prefix_variant_t  *variants;

    variants = ngx_modelgw_prefix_variants(&n);

    if (n == 0) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(pool, sizeof(ngx_modelgw_memo_t));
    if (cln == NULL) {
        return NULL;
    }

    m = cln->data;

    m->key = ngx_modelgw_prefix_key(pool, &variants[0], secret);
    m->unused = ngx_palloc(pool, nstates * NGX_MODELGW_MEMO_LINKS
                                 * sizeof(ngx_modelgw_memo_link_t));

    if (m->key == NULL || m->unused == NULL) {
        return NULL;
    }

    m->size = size;
    m->pool = pool;
    m->nstates = 0;
    m->max_states = nstates;
    m->end = m->unused + nstates * NGX_MODELGW_MEMO_LINKS;
    m->skipped = 0;

    ngx_rbtree_init(&m->tree, &m->sentinel, ngx_modelgw_memo_insert);
    ngx_queue_init(&m->links);
    ngx_queue_init(&m->states);

    cln->handler = ngx_modelgw_memo_cleanup;

    return m;
}


void
ngx_modelgw_memo_begin(ngx_modelgw_memo_t *m, ngx_modelgw_memo_read_t *r,
    ngx_modelgw_scan_t *scan, ngx_str_t *owner, off_t len)
{
    r->memo = m;
    r->scan = scan;
    r->read = 0;
    r->scanned = 0;
    r->from = NULL;
    r->last = len - len % m->size;
    r->seen = 1;

    ngx_modelgw_prefix_begin(&r->prefix, m->key,
                             (uintptr_t) ngx_modelgw_scan_plan_of(scan),
                             owner);
}


ngx_int_t
ngx_modelgw_memo_feed(ngx_modelgw_memo_read_t *r, u_char *p, size_t len,
    ngx_uint_t more)
{
    size_t   n, size;
    u_char  *from, *last;

    size = r->memo->size;
    last = p + len;

    from = ngx_modelgw_memo_waiting(r, p);

    if (from == NULL) {
        return NGX_DECLINED;
    }

    while (p < last && r->read < r->last) {
        n = size - r->read % size;
        n = ngx_min(n, (size_t) (last - p));

        ngx_modelgw_prefix_update(&r->prefix, p, n);

        p += n;
        r->read += n;

        if (r->read % size == 0) {
            from = ngx_modelgw_memo_reach(r, from, p);

            if (from == NULL) {
                return NGX_DECLINED;
            }
        }
    }

    r->read += last - p;

    if (r->seen && more) {
        r->from = from;
        return NGX_OK;
    }

    return ngx_modelgw_memo_scan(r, from, last) ? NGX_OK : NGX_DECLINED;
}


/*
 * The first byte that is not scanned before p, where the document goes on: what
 * is elsewhere in memory is scanned now.  NULL after a fault.
 */

static u_char *
ngx_modelgw_memo_waiting(ngx_modelgw_memo_read_t *r, u_char *p)
{
    size_t  n;

    n = r->read - r->scanned;

    if (n == 0) {
        return p;
    }

    if (r->from + n == p) {
        return r->from;
    }

    return ngx_modelgw_memo_scan(r, r->from, r->from + n) ? p : NULL;
}


/*
 * A link ends before p, and bytes from "from" are not scanned; returns the
 * first one that is not scanned then, or NULL after a fault
 */

static u_char *
ngx_modelgw_memo_reach(ngx_modelgw_memo_read_t *r, u_char *from, u_char *p)
{
    ngx_modelgw_memo_t       *m;
    ngx_modelgw_memo_link_t  *link;

    m = r->memo;
    link = ngx_modelgw_memo_link(r);

    if (link->state) {
        ngx_queue_remove(&link->state->queue);
        ngx_queue_insert_head(&m->states, &link->state->queue);

        ngx_modelgw_scan_copy(r->scan,
                              (ngx_modelgw_scan_t *) link->state->scan);

        m->skipped += p - from;
        r->scanned = r->read;
        from = p;
    }

    if (r->read == r->last) {
        r->seen = 0;

        if (link->state == NULL) {
            from = ngx_modelgw_memo_scan(r, from, p);

            if (from) {
                ngx_modelgw_memo_save(m, link, r->scan);
            }
        }
    }

    return from;
}


/* the link that has just been read */

static ngx_modelgw_memo_link_t *
ngx_modelgw_memo_link(ngx_modelgw_memo_read_t *r)
{
    ngx_modelgw_memo_t       *m;
    ngx_modelgw_memo_link_t  *link;

    m = r->memo;
    link = ngx_modelgw_memo_find(m, &r->prefix.hash);

    if (link) {
        ngx_queue_remove(&link->queue);
        ngx_queue_insert_head(&m->links, &link->queue);

        return link;
    }

    r->seen = 0;

    if (r->read == (off_t) m->size) {
        r->last = 0;
    }

    return ngx_modelgw_memo_add(m, &r->prefix.hash);
}


/* scans [from, p), where r->read is; returns p, or NULL after a fault */

static u_char *
ngx_modelgw_memo_scan(ngx_modelgw_memo_read_t *r, u_char *from, u_char *p)
{
    r->scanned = r->read;

    return (ngx_modelgw_scan_feed(r->scan, from, p - from) == NGX_OK) ? p
                                                                      : NULL;
}


static ngx_modelgw_memo_link_t *
ngx_modelgw_memo_find(ngx_modelgw_memo_t *m, ngx_modelgw_prefix_hash_t *hash)
{
    ngx_rbtree_node_t        *node;
    ngx_modelgw_memo_link_t  *link;

    node = m->tree.root;

    while (node != &m->sentinel) {
        link = (ngx_modelgw_memo_link_t *) node;

        if (node->key == hash->low && link->high == hash->high) {
            return link;
        }

        node = *ngx_modelgw_memo_side(node, hash->low, hash->high);
    }

    return NULL;
}


/* an unused one, or the one that was not used for longest */

static ngx_modelgw_memo_link_t *
ngx_modelgw_memo_add(ngx_modelgw_memo_t *m, ngx_modelgw_prefix_hash_t *hash)
{
    ngx_modelgw_memo_link_t  *link;

    if (m->unused < m->end) {
        link = m->unused++;

    } else {
        link = ngx_queue_data(ngx_queue_last(&m->links),
                              ngx_modelgw_memo_link_t, queue);

        if (link->state) {
            ngx_modelgw_memo_forget(m, link->state);
        }

        ngx_queue_remove(&link->queue);
        ngx_rbtree_delete(&m->tree, &link->node);
    }

    link->node.key = hash->low;
    link->high = hash->high;
    link->state = NULL;

    ngx_rbtree_insert(&m->tree, &link->node);
    ngx_queue_insert_head(&m->links, &link->queue);

    return link;
}


static void
ngx_modelgw_memo_insert(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel)
{
    ngx_rbtree_node_t  **p;

    for ( ;; ) {
        p = ngx_modelgw_memo_side(temp, node->key,
                                  ((ngx_modelgw_memo_link_t *) node)->high);

        if (*p == sentinel) {
            break;
        }

        temp = *p;
    }

    *p = node;
    node->parent = temp;
    node->left = sentinel;
    node->right = sentinel;
    ngx_rbt_red(node);
}


/* where a hash is under another one's node */

static ngx_rbtree_node_t **
ngx_modelgw_memo_side(ngx_rbtree_node_t *node, ngx_rbtree_key_t low,
    uint64_t high)
{
    if (low != node->key) {
        return (low < node->key) ? &node->left : &node->right;
    }

    return (high < ((ngx_modelgw_memo_link_t *) node)->high) ? &node->left
                                                             : &node->right;
}


/* without memory there is no state */

static void
ngx_modelgw_memo_save(ngx_modelgw_memo_t *m, ngx_modelgw_memo_link_t *link,
    ngx_modelgw_scan_t *scan)
{
    ngx_modelgw_memo_state_t  *state;

    if (m->nstates == m->max_states) {
        ngx_modelgw_memo_forget(m, ngx_queue_data(ngx_queue_last(&m->states),
                                                  ngx_modelgw_memo_state_t,
                                                  queue));
    }

    state = ngx_alloc(offsetof(ngx_modelgw_memo_state_t, scan)
                      + ngx_modelgw_scan_size(ngx_modelgw_scan_plan_of(scan)),
                      m->pool->log);
    if (state == NULL) {
        return;
    }

    ngx_modelgw_scan_copy((ngx_modelgw_scan_t *) state->scan, scan);

    ngx_queue_insert_head(&m->states, &state->queue);
    m->nstates++;

    state->link = link;
    link->state = state;
}


static void
ngx_modelgw_memo_forget(ngx_modelgw_memo_t *m, ngx_modelgw_memo_state_t *state)
{
    ngx_queue_remove(&state->queue);
    m->nstates--;

    state->link->state = NULL;
    ngx_free(state);
}


static void
ngx_modelgw_memo_cleanup(void *data)
{
    ngx_modelgw_memo_t *m = data;

    while (!ngx_queue_empty(&m->states)) {
        ngx_modelgw_memo_forget(m, ngx_queue_data(ngx_queue_head(&m->states),
                                                  ngx_modelgw_memo_state_t,
                                                  queue));
    }
}


uint64_t
ngx_modelgw_memo_skipped(ngx_modelgw_memo_t *m)
{
    return m->skipped;
}
