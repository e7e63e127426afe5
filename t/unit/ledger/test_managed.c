
/* The table of keys that operators make, against a list of them. */


#include "unit.h"

#include <pthread.h>

#include "ngx_modelgw_managed.h"


#define MAX    40
#define IDS    25
#define STEPS  20000


static ngx_modelgw_managed_t *
table(ngx_uint_t n)
{
    void  *memory;

    memory = calloc(1, ngx_modelgw_managed_size(n));
    assert_non_null(memory);

    return ngx_modelgw_managed_create(memory, n);
}


/* digests that collide in their first bytes, to probe */

static ngx_modelgw_managed_key_t
a_key(ngx_uint_t id, ngx_uint_t digest)
{
    ngx_modelgw_managed_key_t  key;

    memset(&key, 0, sizeof(key));
    memset(key.digest, 0xfe - digest % 5, sizeof(key.digest));
    memcpy(key.digest + 24, &digest, sizeof(ngx_uint_t));

    key.id.len = sprintf((char *) key.id.data, "key-%u", (unsigned) id);
    key.state = NGX_MODELGW_KEY_ACTIVE;
    key.version = 1;

    return key;
}


typedef struct {
    ngx_modelgw_managed_key_t  keys[MAX];
    ngx_uint_t                 n;
} model_t;


static void
model_drop(model_t *m, ngx_modelgw_managed_key_t *key)
{
    *key = m->keys[--m->n];
}


static void
model_remove(model_t *m, ngx_modelgw_managed_key_t *like)
{
    ngx_uint_t  i;

    for (i = m->n; i-- > 0; /* void */ ) {
        if (m->keys[i].id.len == like->id.len
            && memcmp(m->keys[i].id.data, like->id.data, like->id.len) == 0)
        {
            model_drop(m, &m->keys[i]);
        }
    }
}


static void
same(model_t *m, ngx_modelgw_managed_t *t)
{
    ngx_str_t                  id;
    ngx_uint_t                 i, n, active;
    ngx_modelgw_managed_key_t  key, *k;

    assert_int_equal(ngx_modelgw_managed_free(t), MAX - m->n);

    for (i = 0; i < m->n; i++) {
        k = &m->keys[i];
        id.len = k->id.len;
        id.data = k->id.data;

        assert_int_equal(ngx_modelgw_managed_find(t, k->digest, &key), NGX_OK);
        assert_memory_equal(key.id.data, k->id.data, k->id.len);
        assert_int_equal(key.state, k->state);
        assert_int_equal(key.expires, k->expires);
        assert_int_equal(key.version, k->version);
        assert_int_equal(key.rpm, k->rpm);

        active = (k->state == NGX_MODELGW_KEY_ACTIVE);

        if (active) {
            assert_int_equal(ngx_modelgw_managed_get(t, &id, &key), NGX_OK);
            assert_memory_equal(key.digest, k->digest, sizeof(key.digest));
        }
    }

    n = 0;

    for (i = 0; i < MAX; i++) {
        n += (ngx_modelgw_managed_at(t, i, &key) == NGX_OK);
    }

    assert_int_equal(n, m->n);
}


/* whether the key is not found, or as one that was revoked */

static ngx_uint_t
gone(ngx_modelgw_managed_t *t, ngx_modelgw_managed_key_t *key)
{
    ngx_int_t                  rc;
    ngx_modelgw_managed_key_t  found;

    rc = ngx_modelgw_managed_find(t, key->digest, &found);

    return rc == NGX_DECLINED
           || (rc == NGX_OK && found.state == NGX_MODELGW_KEY_REVOKED
               && found.id.len == key->id.len
               && memcmp(found.id.data, key->id.data, key->id.len) == 0);
}


static void
test_model(void **state)
{
    ngx_uint_t                  step, i, id, digest;
    model_t                     m;
    ngx_modelgw_managed_t      *t;
    ngx_modelgw_managed_key_t   key, found;

    t = table(MAX);
    memset(&m, 0, sizeof(m));
    srandom(17);
    digest = 0;

    for (step = 0; step < STEPS; step++) {
        id = random() % IDS;
        key = a_key(id, digest);

        for (i = 0; i < m.n; i++) {
            if (m.keys[i].id.len == key.id.len
                && memcmp(m.keys[i].id.data, key.id.data, key.id.len) == 0
                && m.keys[i].state == NGX_MODELGW_KEY_ACTIVE)
            {
                break;
            }
        }

        switch (random() % 5) {

        case 0:
            if (i == m.n) {
                assert_int_equal(ngx_modelgw_managed_put(t, &key),
                                 m.n < MAX ? NGX_OK : NGX_DECLINED);
                if (m.n < MAX) {
                    m.keys[m.n++] = key;
                    digest++;
                }
            }

            break;

        case 1:
            if (i < m.n && m.n < MAX) {
                key.version = m.keys[i].version + 1;
                assert_int_equal(ngx_modelgw_managed_rotate(t, &key, 5000),
                                 NGX_OK);

                /* repeated */

                assert_int_equal(ngx_modelgw_managed_rotate(t, &key, 5000),
                                 NGX_OK);

                for (i = 0; i < m.n; i++) {
                    if (m.keys[i].id.len == key.id.len
                        && memcmp(m.keys[i].id.data, key.id.data, key.id.len)
                           == 0)
                    {
                        m.keys[i].state = NGX_MODELGW_KEY_ROTATED;
                        m.keys[i].version = key.version;
                        m.keys[i].expires = 5000;
                    }
                }

                m.keys[m.n++] = key;
                digest++;
            }

            break;

        case 2:
            if (i < m.n) {
                key = m.keys[i];
                key.rpm = step;
                key.version++;
                ngx_modelgw_managed_update(t, &key);

                for (i = 0; i < m.n; i++) {
                    if (m.keys[i].id.len == key.id.len
                        && memcmp(m.keys[i].id.data, key.id.data, key.id.len)
                           == 0)
                    {
                        m.keys[i].rpm = step;
                        m.keys[i].version = key.version;
                    }
                }
            }

            break;

        case 3:
            if (random() % 3 == 0) {
                found = (i < m.n) ? m.keys[i] : key;

                /* repeated */

                ngx_modelgw_managed_revoke(t, &key.id);
                ngx_modelgw_managed_revoke(t, &key.id);
                model_remove(&m, &key);
                assert_true(gone(t, &found));
            }

            break;

        case 4:
            if (random() % 50 == 0) {
                ngx_modelgw_managed_expire(t, 5001);

                for (i = m.n; i-- > 0; /* void */ ) {
                    if (m.keys[i].state == NGX_MODELGW_KEY_ROTATED) {
                        assert_true(gone(t, &m.keys[i]));
                        model_drop(&m, &m.keys[i]);
                    }
                }
            }

            break;
        }

        if (step % 16 == 0) {
            same(&m, t);
        }

        key = a_key(id, digest);
        assert_int_equal(ngx_modelgw_managed_find(t, key.digest, &found),
                         NGX_DECLINED);
    }

    assert_true(digest > 500);

    free(t);
}


/* a revoked key is found until its record is needed, each in turn */

static void
test_revoked(void **state)
{
    ngx_str_t                   id = ngx_string("key-2");
    ngx_uint_t                  i;
    ngx_modelgw_managed_t      *t;
    ngx_modelgw_managed_key_t   keys[6], key;

    t = table(3);

    for (i = 0; i < 6; i++) {
        keys[i] = a_key(i, i);
    }

    for (i = 0; i < 3; i++) {
        assert_int_equal(ngx_modelgw_managed_put(t, &keys[i]), NGX_OK);
    }

    assert_int_equal(ngx_modelgw_managed_free(t), 0);
    assert_int_equal(ngx_modelgw_managed_put(t, &keys[3]), NGX_DECLINED);

    ngx_modelgw_managed_revoke(t, &keys[2].id);

    assert_int_equal(ngx_modelgw_managed_free(t), 1);
    assert_int_equal(ngx_modelgw_managed_find(t, keys[2].digest, &key),
                     NGX_OK);
    assert_int_equal(key.state, NGX_MODELGW_KEY_REVOKED);
    assert_int_equal(ngx_modelgw_managed_get(t, &id, &key), NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_at(t, 2, &key), NGX_DECLINED);

    /* one that was revoked before takes no record of another */

    keys[5].state = NGX_MODELGW_KEY_REVOKED;
    assert_int_equal(ngx_modelgw_managed_put(t, &keys[5]), NGX_DECLINED);

    assert_int_equal(ngx_modelgw_managed_put(t, &keys[3]), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_find(t, keys[2].digest, &key),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_find(t, keys[3].digest, &key),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(t), 0);

    /* the records of both are reused, one after the other */

    ngx_modelgw_managed_revoke(t, &keys[0].id);
    ngx_modelgw_managed_revoke(t, &keys[1].id);
    assert_int_equal(ngx_modelgw_managed_put(t, &keys[4]), NGX_OK);
    assert_int_equal((ngx_modelgw_managed_find(t, keys[0].digest, &key)
                      == NGX_OK)
                     + (ngx_modelgw_managed_find(t, keys[1].digest, &key)
                        == NGX_OK), 1);
    assert_int_equal(ngx_modelgw_managed_put(t, &keys[2]), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_find(t, keys[0].digest, &key),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_find(t, keys[1].digest, &key),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_free(t), 0);

    /* as it is filled from a store */

    ngx_modelgw_managed_begin(t);
    assert_int_equal(ngx_modelgw_managed_put(t, &keys[0]), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_put(t, &keys[5]), NGX_OK);
    ngx_modelgw_managed_end(t);
    assert_int_equal(ngx_modelgw_managed_free(t), 2);
    assert_int_equal(ngx_modelgw_managed_find(t, keys[5].digest, &key),
                     NGX_OK);
    assert_int_equal(key.state, NGX_MODELGW_KEY_REVOKED);

    free(t);
}


/* a key that was rotated expires with the newest one, or before */

static void
test_update_expires(void **state)
{
    ngx_uint_t                  i;
    ngx_modelgw_managed_t      *t;
    ngx_modelgw_managed_key_t   one, two, key;

    /* of the key, then of the one that was rotated */

    static const uint64_t       times[][2] = {
        { 0, 5000 }, { 6000, 5000 }, { 3000, 3000 }, { 4000, 3000 },
        { 0, 3000 }, { 1, 1 }
    };

    t = table(2);
    one = a_key(1, 1);
    two = a_key(1, 2);

    assert_int_equal(ngx_modelgw_managed_put(t, &one), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_rotate(t, &two, 5000), NGX_OK);

    for (i = 0; i < 6; i++) {
        two.expires = times[i][0];
        ngx_modelgw_managed_update(t, &two);

        assert_int_equal(ngx_modelgw_managed_find(t, two.digest, &key),
                         NGX_OK);
        assert_int_equal(key.expires, times[i][0]);
        assert_int_equal(ngx_modelgw_managed_find(t, one.digest, &key),
                         NGX_OK);
        assert_int_equal(key.expires, times[i][1]);
        assert_int_equal(key.state, NGX_MODELGW_KEY_ROTATED);
    }

    free(t);
}


/* rotated without grace: the old ones are revoked at once */

static void
test_rotate_at_once(void **state)
{
    ngx_modelgw_managed_t      *t;
    ngx_modelgw_managed_key_t   one, two, key;

    t = table(1);
    one = a_key(1, 1);
    two = a_key(1, 2);

    assert_int_equal(ngx_modelgw_managed_put(t, &one), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_rotate(t, &two, 0), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_find(t, one.digest, &key),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_find(t, two.digest, &key), NGX_OK);

    free(t);

    t = table(2);

    assert_int_equal(ngx_modelgw_managed_put(t, &one), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_rotate(t, &two, 0), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_find(t, one.digest, &key), NGX_OK);
    assert_int_equal(key.state, NGX_MODELGW_KEY_REVOKED);
    assert_int_equal(ngx_modelgw_managed_find(t, two.digest, &key), NGX_OK);
    assert_int_equal(key.state, NGX_MODELGW_KEY_ACTIVE);

    free(t);
}


/* a writer was killed in a change: nothing is found until it is filled */

/* all keys of an id at once, whatever is there */

static void
test_replace(void **state)
{
    ngx_str_t                   id = ngx_string("key-1");
    ngx_uint_t                  i;
    ngx_modelgw_managed_t      *m;
    ngx_modelgw_managed_key_t   keys[3], key;

    m = table(3);

    for (i = 0; i < 3; i++) {
        keys[i] = a_key(1, i);
    }

    /* a new one; a revoked one takes no record that another may need */

    keys[1].state = NGX_MODELGW_KEY_REVOKED;
    assert_int_equal(ngx_modelgw_managed_replace(m, keys, sizeof(key), 2),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(m), 2);
    assert_int_equal(ngx_modelgw_managed_find(m, keys[1].digest, &key), NGX_OK);
    assert_int_equal(key.state, NGX_MODELGW_KEY_REVOKED);

    /* rotated with grace, the old one first */

    keys[0].state = NGX_MODELGW_KEY_ROTATED;
    keys[0].expires = 100;
    keys[1] = a_key(1, 7);
    keys[1].rpm = 60;
    assert_int_equal(ngx_modelgw_managed_replace(m, keys, sizeof(key), 2),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(m), 1);
    assert_int_equal(ngx_modelgw_managed_find(m, keys[0].digest, &key), NGX_OK);
    assert_true(key.state == NGX_MODELGW_KEY_ROTATED && key.expires == 100);
    assert_int_equal(ngx_modelgw_managed_get(m, &id, &key), NGX_OK);
    assert_true(key.rpm == 60 && key.digest[24] == 7);

    /* what is not named is revoked, and makes room */

    key = a_key(2, 9);
    assert_int_equal(ngx_modelgw_managed_put(m, &key), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(m), 0);

    keys[1].rpm = 70;
    assert_int_equal(ngx_modelgw_managed_replace(m, &keys[1], sizeof(key), 1),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(m), 1);
    assert_int_equal(ngx_modelgw_managed_find(m, keys[0].digest, &key), NGX_OK);
    assert_int_equal(key.state, NGX_MODELGW_KEY_REVOKED);

    assert_int_equal(ngx_modelgw_managed_replace(m, &keys[1], sizeof(key), 2),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(m), 0);
    assert_int_equal(ngx_modelgw_managed_find(m, keys[0].digest, &key),
                     NGX_DECLINED);

    /* no room for one more */

    keys[0] = a_key(1, 11);
    assert_int_equal(ngx_modelgw_managed_replace(m, keys, sizeof(key), 3),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_free(m), 0);

    /* revoked */

    for (i = 0; i < 3; i++) {
        keys[i].state = NGX_MODELGW_KEY_REVOKED;
    }

    assert_int_equal(ngx_modelgw_managed_replace(m, keys, sizeof(key), 3),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(m), 2);
    assert_int_equal(ngx_modelgw_managed_get(m, &id, &key), NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_find(m, keys[1].digest, &key), NGX_OK);
    assert_int_equal(key.state, NGX_MODELGW_KEY_REVOKED);
    assert_int_equal(ngx_modelgw_managed_damaged(m), 0);

    free(m);
}


static void
test_damaged(void **state)
{
    ngx_str_t                   id = ngx_string("key-1");
    ngx_modelgw_managed_t      *t;
    ngx_modelgw_managed_key_t   one, two, key;

    t = table(3);
    one = a_key(1, 1);
    two = a_key(2, 2);

    assert_int_equal(ngx_modelgw_managed_put(t, &one), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_damaged(t), 0);

    ngx_modelgw_managed_begin(t);
    assert_int_equal(ngx_modelgw_managed_damaged(t), 1);
    assert_int_equal(ngx_modelgw_managed_find(t, one.digest, &key), NGX_BUSY);
    assert_int_equal(ngx_modelgw_managed_get(t, &id, &key), NGX_BUSY);
    assert_int_equal(ngx_modelgw_managed_put(t, &two), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_find(t, two.digest, &key), NGX_BUSY);

    /* the next one begins again */

    ngx_modelgw_managed_begin(t);
    assert_int_equal(ngx_modelgw_managed_put(t, &two), NGX_OK);
    ngx_modelgw_managed_end(t);

    assert_int_equal(ngx_modelgw_managed_damaged(t), 0);
    assert_int_equal(ngx_modelgw_managed_find(t, one.digest, &key),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_managed_find(t, two.digest, &key), NGX_OK);
    assert_int_equal(ngx_modelgw_managed_free(t), 2);

    free(t);
}


typedef struct {
    ngx_modelgw_managed_t  *table;
    uint64_t                stop;
    uint64_t                reads;
    uint64_t                wrong;
} reader_t;


/* a key that stays is always found, and never torn */

static void *
reader(void *data)
{
    reader_t                   *r = data;
    ngx_int_t                   rc;
    ngx_modelgw_managed_key_t   stays, key;

    stays = a_key(1000, 1000);

    while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
        rc = ngx_modelgw_managed_find(r->table, stays.digest, &key);

        if (rc == NGX_BUSY) {
            continue;
        }

        if (rc != NGX_OK || key.rpm != key.tpm || key.rpm != key.version) {
            r->wrong++;
        }

        __atomic_add_fetch(&r->reads, 1, __ATOMIC_RELEASE);
    }

    return NULL;
}


static void
test_readers(void **state)
{
    reader_t                    r;
    uint64_t                    i;
    pthread_t                   thread;
    ngx_modelgw_managed_key_t   stays, key;

    memset(&r, 0, sizeof(r));

    r.table = table(MAX);
    stays = a_key(1000, 1000);
    stays.rpm = stays.tpm = stays.version;

    assert_int_equal(ngx_modelgw_managed_put(r.table, &stays), NGX_OK);
    assert_int_equal(pthread_create(&thread, NULL, reader, &r), 0);

    for (i = 2;
         i < 20000 || __atomic_load_n(&r.reads, __ATOMIC_ACQUIRE) < 1000;
         i++)
    {
        key = a_key(i % 30, i % 30);
        (void) ngx_modelgw_managed_put(r.table, &key);

        stays.version = i;
        stays.rpm = stays.tpm = i;
        ngx_modelgw_managed_update(r.table, &stays);

        if (i % 3 == 0) {
            ngx_modelgw_managed_revoke(r.table, &key.id);
        }
    }

    __atomic_store_n(&r.stop, 1, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(r.wrong, 0);

    free(r.table);
}


int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_revoked),
        cmocka_unit_test(test_update_expires),
        cmocka_unit_test(test_rotate_at_once),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
