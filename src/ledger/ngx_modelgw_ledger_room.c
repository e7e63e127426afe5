
/*
 * The ledger's layout, and what there is room for.
 *
 * Everything is laid out once, in arrays whose elements never move: an index
 * stays valid, and a slot costs no allocation.  Memory of elements that were
 * never used is never touched.
 *
 * Rejected: a slab allocator: its own consistency, and its own lock, would have
 * to survive a kill.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


/* bytes, at most, that aligning the arrays and the odd ring entry cost */

#define NGX_MODELGW_LEDGER_SLACK   (8 * NGX_MODELGW_LEDGER_ALIGN)

/* workers get at most this part of the memory: 1/4 */

#define NGX_MODELGW_LEDGER_SHARE   4


static size_t ngx_modelgw_ledger_workers_max(size_t size);
static u_char *ngx_modelgw_ledger_table_init(ngx_modelgw_ledger_table_t *t,
    u_char *p, uint64_t max);
static u_char *ngx_modelgw_ledger_ring_init(ngx_modelgw_ledger_ring_t *ring,
    u_char *p, uint64_t size);
static ngx_int_t ngx_modelgw_ledger_mutexes(ngx_modelgw_ledger_t *l);


void
ngx_modelgw_ledger_room(size_t size, ngx_modelgw_ledger_kind_e kind,
    ngx_modelgw_ledger_room_t *room)
{
    size_t  head, lease, share;

    ngx_memzero(room, sizeof(ngx_modelgw_ledger_room_t));

    head = sizeof(ngx_modelgw_ledger_t) + NGX_MODELGW_LEDGER_SLACK
           + ngx_modelgw_ledger_workers_max(size)
             * sizeof(ngx_modelgw_ledger_worker_t);

    lease = 0;
    share = 0;

    if (kind == NGX_MODELGW_LEDGER_CLUSTER) {
        head += NGX_MODELGW_LEDGER_CLUSTER_SIZE + ngx_modelgw_shares_size(0);
        lease = sizeof(ngx_modelgw_lease_t);
        share = ngx_modelgw_shares_size(1) - ngx_modelgw_shares_size(0);
    }

    if (size <= head) {
        return;
    }

    size = (size - head) / 8;

    room->accounts = ngx_min(2 * size
                             / (sizeof(ngx_modelgw_ledger_account_t) + lease
                                + sizeof(uint64_t)),
                             NGX_MODELGW_LEDGER_NONE);

    room->keys = ngx_min(3 * size
                         / (sizeof(ngx_modelgw_ledger_key_t) + lease + share
                            + sizeof(uint64_t)),
                         NGX_MODELGW_LEDGER_NONE);

    room->calls = ngx_min(3 * size
                          / (sizeof(ngx_modelgw_call_t)
                             + 3 * sizeof(ngx_modelgw_ledger_entry_t)),
                          NGX_MODELGW_LEDGER_NONE);
}


static size_t
ngx_modelgw_ledger_workers_max(size_t size)
{
    size_t  n;

    n = size / NGX_MODELGW_LEDGER_SHARE / sizeof(ngx_modelgw_ledger_worker_t);

    return ngx_min(n, NGX_MODELGW_LEDGER_WORKERS);
}


ngx_modelgw_ledger_t *
ngx_modelgw_ledger_create(void *memory, size_t size, uint64_t id,
    ngx_modelgw_ledger_kind_e kind)
{
    u_char                     *p;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_room_t   room;

    ngx_modelgw_ledger_room(size, kind, &room);

    if (room.accounts == 0 || room.keys == 0 || room.calls == 0) {
        return NULL;
    }

    l = memory;

    l->id = ngx_max(id, 1);
    l->step = 1;
    l->free = NGX_MODELGW_LEDGER_NONE;
    l->max = room.calls;
    l->kind = kind;

    l->accounts.size = sizeof(ngx_modelgw_ledger_account_t);
    l->accounts.name = offsetof(ngx_modelgw_ledger_account_t, name);
    l->accounts.next = offsetof(ngx_modelgw_ledger_account_t, next);

    l->keys.size = sizeof(ngx_modelgw_ledger_key_t);
    l->keys.name = offsetof(ngx_modelgw_ledger_key_t, name);
    l->keys.next = offsetof(ngx_modelgw_ledger_key_t, next);

    l->nworkers = ngx_modelgw_ledger_workers_max(size);

    p = (u_char *) memory + sizeof(ngx_modelgw_ledger_t);

    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
    l->workers = (ngx_modelgw_ledger_worker_t *) p;
    p += l->nworkers * sizeof(ngx_modelgw_ledger_worker_t);

    p = ngx_modelgw_ledger_table_init(&l->accounts, p, room.accounts);
    p = ngx_modelgw_ledger_table_init(&l->keys, p, room.keys);
    p = ngx_modelgw_ledger_ring_init(&l->done, p, room.calls);
    p = ngx_modelgw_ledger_ring_init(&l->held, p,
                                     2 * (uint64_t) room.calls + 1);

    if (kind == NGX_MODELGW_LEDGER_CLUSTER) {
        p = ngx_modelgw_lease_init(l, p, &room);
    }

    l->calls = (ngx_modelgw_call_t *)
                   ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);

    if (ngx_modelgw_ledger_mutexes(l) != NGX_OK) {
        return NULL;
    }

    return l;
}


static u_char *
ngx_modelgw_ledger_table_init(ngx_modelgw_ledger_table_t *t, u_char *p,
    uint64_t max)
{
    uint64_t  i;

    t->max = max;

    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
    t->chains = (uint64_t *) p;

    for (i = 0; i < max; i++) {
        t->chains[i] = NGX_MODELGW_LEDGER_NONE;
    }

    p += max * sizeof(uint64_t);

    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
    t->records = p;

    return p + max * t->size;
}


static u_char *
ngx_modelgw_ledger_ring_init(ngx_modelgw_ledger_ring_t *ring, u_char *p,
    uint64_t size)
{
    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);

    ring->entries = (ngx_modelgw_ledger_entry_t *) p;
    ring->size = size;

    return p + size * sizeof(ngx_modelgw_ledger_entry_t);
}


static ngx_int_t
ngx_modelgw_ledger_mutexes(ngx_modelgw_ledger_t *l)
{
    ngx_uint_t  i;

    if (ngx_modelgw_redo_init(&l->redo) != NGX_OK
        || ngx_modelgw_redo_mutex_init(&l->writer) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < l->nworkers; i++) {
        if (ngx_modelgw_redo_mutex_init(&l->workers[i].life) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_modelgw_ledger_used(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_room_t *used, ngx_modelgw_ledger_room_t *max)
{
    ngx_uint_t           i;
    ngx_modelgw_call_t  *call;

    max->accounts = l->accounts.max;
    max->keys = l->keys.max;
    max->calls = l->max;

    used->accounts = ngx_modelgw_ledger_load(&l->accounts.n);
    used->keys = ngx_modelgw_ledger_load(&l->keys.n);
    used->calls = 0;

    for (i = 0; (call = ngx_modelgw_ledger_call_at(l, i)) != NULL; i++) {
        if (ngx_modelgw_ledger_load(&call->state) != NGX_MODELGW_CALL_FREE) {
            used->calls++;
        }
    }
}
