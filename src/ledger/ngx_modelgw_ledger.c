
/*
 * The ledger in shared memory: its layout, accounts and keys.
 *
 * Everything is laid out once, in arrays whose elements never move: an index is
 * for ever, and a slot costs no allocation.  The memory behind elements that
 * were never used is never touched.
 *
 * Accounts are never removed.  Records of keys are used again, when there is no
 * room left, for keys that the configuration in force does not name.  Such a
 * record is taken out of its chain first, by one store, and put into its new
 * one last, by another: between them it belongs to no name, and is found again
 * by who looks for one to use.
 *
 * Rejected: a slab allocator: its own consistency, and its own lock, would have
 * to survive a kill.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


#define NGX_MODELGW_LEDGER_ALIGN   64

/* what aligning the arrays costs at most, and the odd entry of a ring */

#define NGX_MODELGW_LEDGER_SLACK   (8 * NGX_MODELGW_LEDGER_ALIGN)

/* of the memory workers get at most */

#define NGX_MODELGW_LEDGER_SHARE   4

#define ngx_modelgw_ledger_next(table, i)                                     \
    (*(uint32_t *) ((table)->records + (i) * (table)->size + (table)->next))


static size_t ngx_modelgw_ledger_workers(size_t size);
static u_char *ngx_modelgw_ledger_table_init(ngx_modelgw_ledger_table_t *t,
    u_char *p, uint64_t max);
static u_char *ngx_modelgw_ledger_ring_init(ngx_modelgw_ledger_ring_t *ring,
    u_char *p, uint64_t size);
static ngx_int_t ngx_modelgw_ledger_mutexes(ngx_modelgw_ledger_t *l);
static uint64_t *ngx_modelgw_ledger_chain(ngx_modelgw_ledger_table_t *t,
    u_char *name, size_t len);
static uint32_t ngx_modelgw_ledger_find(ngx_modelgw_ledger_table_t *t,
    ngx_str_t *name);
static void ngx_modelgw_ledger_add_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_table_t *t, ngx_str_t *name);
static uint32_t ngx_modelgw_ledger_key_unused(ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_unlink(ngx_modelgw_ledger_table_t *t,
    uint32_t i);


void
ngx_modelgw_ledger_room(size_t size, ngx_modelgw_ledger_room_t *room)
{
    size_t  head;

    ngx_memzero(room, sizeof(ngx_modelgw_ledger_room_t));

    head = sizeof(ngx_modelgw_ledger_t) + NGX_MODELGW_LEDGER_SLACK
           + ngx_modelgw_ledger_workers(size)
             * sizeof(ngx_modelgw_ledger_worker_t);

    if (size <= head) {
        return;
    }

    size = (size - head) / 8;

    room->accounts = ngx_min(2 * size
                             / (sizeof(ngx_modelgw_ledger_account_t)
                                + sizeof(uint64_t)),
                             NGX_MODELGW_LEDGER_NONE);

    room->keys = ngx_min(3 * size
                         / (sizeof(ngx_modelgw_ledger_key_t)
                            + sizeof(uint64_t)),
                         NGX_MODELGW_LEDGER_NONE);

    room->calls = ngx_min(3 * size
                          / (sizeof(ngx_modelgw_call_t)
                             + 3 * sizeof(ngx_modelgw_ledger_entry_t)),
                          NGX_MODELGW_LEDGER_NONE);
}


static size_t
ngx_modelgw_ledger_workers(size_t size)
{
    size_t  n;

    n = size / NGX_MODELGW_LEDGER_SHARE / sizeof(ngx_modelgw_ledger_worker_t);

    return ngx_min(n, NGX_MODELGW_LEDGER_WORKERS);
}


ngx_modelgw_ledger_t *
ngx_modelgw_ledger_create(void *memory, size_t size, uint64_t id,
    ngx_uint_t credit)
{
    u_char                     *p;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_room_t   room;

    ngx_modelgw_ledger_room(size, &room);

    if (room.accounts == 0 || room.keys == 0 || room.calls == 0) {
        return NULL;
    }

    l = memory;

    l->id = ngx_max(id, 1);
    l->free = NGX_MODELGW_LEDGER_NONE;
    l->max = room.calls;
    l->credit = credit ? 1 : 0;
    l->writable = 1;

    l->accounts.size = sizeof(ngx_modelgw_ledger_account_t);
    l->accounts.name = offsetof(ngx_modelgw_ledger_account_t, name);
    l->accounts.next = offsetof(ngx_modelgw_ledger_account_t, next);

    l->keys.size = sizeof(ngx_modelgw_ledger_key_t);
    l->keys.name = offsetof(ngx_modelgw_ledger_key_t, name);
    l->keys.next = offsetof(ngx_modelgw_ledger_key_t, next);

    l->nworkers = ngx_modelgw_ledger_workers(size);

    p = (u_char *) memory + sizeof(ngx_modelgw_ledger_t);

    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
    l->workers = (ngx_modelgw_ledger_worker_t *) p;
    p += l->nworkers * sizeof(ngx_modelgw_ledger_worker_t);

    p = ngx_modelgw_ledger_table_init(&l->accounts, p, room.accounts);
    p = ngx_modelgw_ledger_table_init(&l->keys, p, room.keys);
    p = ngx_modelgw_ledger_ring_init(&l->done, p, room.calls);
    p = ngx_modelgw_ledger_ring_init(&l->held, p,
                                     2 * (uint64_t) room.calls + 1);

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


ngx_uint_t
ngx_modelgw_ledger_credit(ngx_modelgw_ledger_t *l)
{
    return l->credit;
}


void
ngx_modelgw_ledger_lock(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_lock(&l->redo);
}


void
ngx_modelgw_ledger_unlock(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_unlock(&l->redo);
}


static uint64_t *
ngx_modelgw_ledger_chain(ngx_modelgw_ledger_table_t *t, u_char *name,
    size_t len)
{
    return &t->chains[ngx_murmur_hash2(name, len) % t->max];
}


static uint32_t
ngx_modelgw_ledger_find(ngx_modelgw_ledger_table_t *t, ngx_str_t *name)
{
    uint32_t                    i;
    ngx_modelgw_ledger_name_t  *n;

    for (i = *ngx_modelgw_ledger_chain(t, name->data, name->len);
         i != NGX_MODELGW_LEDGER_NONE;
         i = ngx_modelgw_ledger_next(t, i))
    {
        n = (ngx_modelgw_ledger_name_t *) (t->records + i * t->size + t->name);

        if (n->len == name->len
            && ngx_memcmp(n->data, name->data, name->len) == 0)
        {
            return i;
        }
    }

    return NGX_MODELGW_LEDGER_NONE;
}


/* Adds the record behind the last one, whose other fields are set. */

static void
ngx_modelgw_ledger_add_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_table_t *t, ngx_str_t *name)
{
    u_char                     *record;
    uint64_t                   *chain;
    ngx_modelgw_ledger_name_t  *n;

    record = t->records + t->n * t->size;

    n = (ngx_modelgw_ledger_name_t *) (record + t->name);
    n->len = name->len;
    ngx_memcpy(n->data, name->data, name->len);

    chain = ngx_modelgw_ledger_chain(t, name->data, name->len);
    ngx_modelgw_ledger_next(t, t->n) = *chain;

    ngx_modelgw_redo_add(&l->redo, chain, t->n);
    ngx_modelgw_redo_add(&l->redo, &t->n, t->n + 1);
    ngx_modelgw_redo_commit(&l->redo);
}


ngx_int_t
ngx_modelgw_ledger_account(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_uint_t add, int64_t balance, uint64_t opened, ngx_uint_t stored,
    uint32_t *index)
{
    ngx_int_t                      rc;
    ngx_modelgw_ledger_account_t  *a;

    if (name->len > NGX_MODELGW_LEDGER_NAME) {
        return add ? NGX_ERROR : NGX_DECLINED;
    }

    ngx_modelgw_redo_lock(&l->redo);

    *index = ngx_modelgw_ledger_find(&l->accounts, name);

    if (*index != NGX_MODELGW_LEDGER_NONE) {
        rc = NGX_OK;

    } else if (!add) {
        rc = NGX_DECLINED;

    } else if (l->accounts.n == l->accounts.max) {
        rc = NGX_ERROR;

    } else {
        rc = NGX_DONE;
        *index = l->accounts.n;

        a = ngx_modelgw_ledger_account_at(l, *index);
        a->balance = balance;
        a->held = 0;
        a->founding = stored ? 0 : balance;
        a->opened = opened;

        /* behind one that is not stored it will be stored again, in vain */

        if (stored && l->stored == l->accounts.n) {
            ngx_modelgw_redo_add(&l->redo, &l->stored, l->stored + 1);
        }

        ngx_modelgw_ledger_add_locked(l, &l->accounts, name);
    }

    ngx_modelgw_redo_unlock(&l->redo);

    if (rc == NGX_DONE && !stored) {
        ngx_modelgw_ledger_wake(l);
    }

    return rc;
}


uint32_t
ngx_modelgw_ledger_accounts(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_load(&l->accounts.n);
}


uint32_t
ngx_modelgw_ledger_accounts_free(ngx_modelgw_ledger_t *l)
{
    return l->accounts.max - ngx_modelgw_ledger_load(&l->accounts.n);
}


ngx_modelgw_ledger_account_t *
ngx_modelgw_ledger_account_at(ngx_modelgw_ledger_t *l, uint32_t index)
{
    return (ngx_modelgw_ledger_account_t *) l->accounts.records + index;
}


void
ngx_modelgw_ledger_generation(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_lock(&l->redo);

    l->generation++;
    l->rover = 0;

    ngx_modelgw_redo_unlock(&l->redo);
}


ngx_int_t
ngx_modelgw_ledger_key(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    uint32_t *index)
{
    uint64_t                  *chain;
    ngx_int_t                  rc;
    ngx_modelgw_ledger_key_t  *key;

    if (name->len > NGX_MODELGW_LEDGER_NAME) {
        return NGX_ERROR;
    }

    rc = NGX_OK;

    ngx_modelgw_redo_lock(&l->redo);

    *index = ngx_modelgw_ledger_find(&l->keys, name);

    if (*index == NGX_MODELGW_LEDGER_NONE && l->keys.n < l->keys.max) {
        *index = l->keys.n;
        ngx_modelgw_ledger_add_locked(l, &l->keys, name);

    } else if (*index == NGX_MODELGW_LEDGER_NONE) {
        *index = ngx_modelgw_ledger_key_unused(l);

        if (*index == NGX_MODELGW_LEDGER_NONE) {
            rc = NGX_ERROR;

        } else {
            key = ngx_modelgw_ledger_key_at(l, *index);

            ngx_memzero(&key->rpm, sizeof(ngx_modelgw_limit_t));
            ngx_memzero(&key->tpm, sizeof(ngx_modelgw_limit_t));

            key->name.len = name->len;
            ngx_memcpy(key->name.data, name->data, name->len);

            chain = ngx_modelgw_ledger_chain(&l->keys, name->data, name->len);
            key->next = *chain;

            ngx_modelgw_redo_add(&l->redo, chain, *index);
            ngx_modelgw_redo_commit(&l->redo);
        }
    }

    if (rc == NGX_OK) {
        ngx_modelgw_ledger_key_at(l, *index)->generation = l->generation;
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return rc;
}


/*
 * A record whose key is not named, and has no calls; it is in no chain any
 * more.  What was looked at is not looked at again in this generation.
 */

static uint32_t
ngx_modelgw_ledger_key_unused(ngx_modelgw_ledger_t *l)
{
    uint32_t                   i;
    ngx_modelgw_ledger_key_t  *key;

    while (l->rover < l->keys.n) {
        i = l->rover++;
        key = ngx_modelgw_ledger_key_at(l, i);

        if (key->generation != (uint32_t) l->generation && key->calls == 0) {
            ngx_modelgw_ledger_unlink(&l->keys, i);
            return i;
        }
    }

    return NGX_MODELGW_LEDGER_NONE;
}


/* It may be in none: who used it again before us may have been killed. */

static void
ngx_modelgw_ledger_unlink(ngx_modelgw_ledger_table_t *t, uint32_t i)
{
    uint32_t                    before;
    uint64_t                   *chain;
    ngx_modelgw_ledger_name_t  *n;

    n = (ngx_modelgw_ledger_name_t *) (t->records + i * t->size + t->name);
    chain = ngx_modelgw_ledger_chain(t, n->data, n->len);

    if (*chain == i) {
        __atomic_store_n(chain, ngx_modelgw_ledger_next(t, i),
                         __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        return;
    }

    for (before = *chain;
         before != NGX_MODELGW_LEDGER_NONE;
         before = ngx_modelgw_ledger_next(t, before))
    {
        if (ngx_modelgw_ledger_next(t, before) == i) {
            __atomic_store_n(&ngx_modelgw_ledger_next(t, before),
                             ngx_modelgw_ledger_next(t, i), __ATOMIC_RELEASE);
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
            return;
        }
    }
}


ngx_modelgw_ledger_key_t *
ngx_modelgw_ledger_key_at(ngx_modelgw_ledger_t *l, uint32_t index)
{
    return (ngx_modelgw_ledger_key_t *) l->keys.records + index;
}


uint64_t
ngx_modelgw_ledger_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
