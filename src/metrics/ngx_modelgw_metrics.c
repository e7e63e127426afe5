
/*
 * The memory of metrics: its layout, names of rows, counting, adding up.
 *
 * Everything is laid out once, as in the ledger.  A lane is one piece, with the
 * rows of all tables in it, so that two workers never write the same cache
 * line.  Lanes of workers that there are not are never touched.
 *
 * A name is added by one process at a time.  A process that is killed while it
 * adds one may leave a row without a way to it, which costs its memory.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_metrics.h"


#define NGX_MODELGW_METRICS_ALIGN  64    /* bytes of a cache line */

/* parts of the memory for the rows of a table */

#define NGX_MODELGW_METRICS_PARTS  16


#define ngx_modelgw_metrics_inline  inline __attribute__((always_inline))


typedef struct {
    uint32_t                         len;
    u_char                           data[];
} ngx_modelgw_metrics_name_t;


typedef struct {
    uint64_t                         n;      /* rows in use */
    uint64_t                         max;
    size_t                           offset; /* bytes in a lane */
    size_t                           name;   /* bytes of a name's record */
    u_char                          *names;
    uint32_t                        *slots;  /* twice max: index of a name, by
                                                its hash; 0: free */
} ngx_modelgw_metrics_names_t;


struct ngx_modelgw_metrics_s {
    uint64_t                         started;
    uint64_t                         nlanes; /* the shared one included */
    size_t                           lane;   /* bytes */
    u_char                          *lanes;
    ngx_modelgw_metrics_names_t      tables[NGX_MODELGW_METRICS_TABLES];
};


/* what a table has: its part of the memory, bytes of a row and of a name */

typedef struct {
    ngx_uint_t                       part;
    size_t                           row;
    size_t                           name;   /* 0: one row without a name */
} ngx_modelgw_metrics_shape_t;


static size_t ngx_modelgw_metrics_bytes(ngx_uint_t table, ngx_uint_t lanes);
static uint32_t *ngx_modelgw_metrics_slot(ngx_modelgw_metrics_names_t *t,
    ngx_str_t *name, uint32_t *row);
static ngx_inline u_char *ngx_modelgw_metrics_lane(ngx_modelgw_metrics_t *m,
    uint32_t worker, ngx_uint_t *shared);
static ngx_inline void *ngx_modelgw_metrics_in_lane(ngx_modelgw_metrics_t *m,
    u_char *lane, ngx_modelgw_metrics_table_e table, uint32_t index);
static ngx_inline void ngx_modelgw_metrics_add_to(uint64_t *cell, uint64_t n,
    ngx_uint_t shared);
static ngx_modelgw_metrics_inline void ngx_modelgw_metrics_call_in(
    ngx_modelgw_metrics_t *m, u_char *lane, ngx_uint_t shared,
    ngx_modelgw_metrics_call_t *call);
static ngx_inline ngx_uint_t ngx_modelgw_metrics_bucket(
    const ngx_modelgw_metrics_hist_t *h, uint64_t value);
static ngx_inline void ngx_modelgw_metrics_observed(uint64_t *cells,
    ngx_modelgw_metrics_hist_e hist, uint64_t value, ngx_uint_t shared);


static const ngx_modelgw_metrics_shape_t  ngx_modelgw_metrics_shapes[] = {

    [NGX_MODELGW_METRICS_GROUPS] = {
        2, sizeof(ngx_modelgw_metrics_group_t), NGX_MODELGW_METRICS_NAME },

    [NGX_MODELGW_METRICS_MODELS] = {
        7, sizeof(ngx_modelgw_metrics_model_t), NGX_MODELGW_METRICS_MODEL },

    [NGX_MODELGW_METRICS_KEYS] = {
        6, sizeof(ngx_modelgw_metrics_key_t), NGX_MODELGW_METRICS_NAME },

    [NGX_MODELGW_METRICS_LEDGER] = {
        0, sizeof(ngx_modelgw_metrics_ledger_t), 0 }
};


/* here, so that the compiler knows them where values are counted */

static const uint64_t  ngx_modelgw_metrics_duration[] = {
    10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960,
    81920, 163840, 327680, 655360
};

static const uint64_t  ngx_modelgw_metrics_first[] = {
    1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000,
    20000, 30000, 60000, 120000
};

static const uint64_t  ngx_modelgw_metrics_per_token[] = {
    1000, 5000, 10000, 25000, 50000, 75000, 100000, 150000, 200000, 300000,
    400000, 500000, 750000, 1000000, 2500000
};

static const uint64_t  ngx_modelgw_metrics_usage[] = {
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304,
    16777216, 67108864
};

static const uint64_t  ngx_modelgw_metrics_flush[] = {
    1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000,
    2500000
};

/* as the buckets of ngx_modelgw_lease_node_t */

static const uint64_t  ngx_modelgw_metrics_exchange[] = {
    250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000,
    512000, 1024000, 2048000, 4096000
};


#define ngx_modelgw_metrics_bounds(bounds)                                    \
    sizeof(bounds) / sizeof(uint64_t)


const ngx_modelgw_metrics_hist_t  ngx_modelgw_metrics_hists[] = {

    [NGX_MODELGW_METRICS_HIST_DURATION] = {
        ngx_modelgw_metrics_bounds(ngx_modelgw_metrics_duration), 3, 1,
        ngx_modelgw_metrics_duration },

    [NGX_MODELGW_METRICS_HIST_FIRST] = {
        ngx_modelgw_metrics_bounds(ngx_modelgw_metrics_first), 3, 0,
        ngx_modelgw_metrics_first },

    [NGX_MODELGW_METRICS_HIST_PER_TOKEN] = {
        ngx_modelgw_metrics_bounds(ngx_modelgw_metrics_per_token), 6, 0,
        ngx_modelgw_metrics_per_token },

    [NGX_MODELGW_METRICS_HIST_USAGE] = {
        ngx_modelgw_metrics_bounds(ngx_modelgw_metrics_usage), 0, 2,
        ngx_modelgw_metrics_usage },

    [NGX_MODELGW_METRICS_HIST_FLUSH] = {
        ngx_modelgw_metrics_bounds(ngx_modelgw_metrics_flush), 6, 0,
        ngx_modelgw_metrics_flush },

    [NGX_MODELGW_METRICS_HIST_EXCHANGE] = {
        ngx_modelgw_metrics_bounds(ngx_modelgw_metrics_exchange), 6, 0,
        ngx_modelgw_metrics_exchange }
};


#define ngx_modelgw_metrics_record(t, i)                                      \
    ((ngx_modelgw_metrics_name_t *) ((t)->names + (i) * (t)->name))


/* bytes that a row takes in all lanes, and its name */

static size_t
ngx_modelgw_metrics_bytes(ngx_uint_t table, ngx_uint_t lanes)
{
    const ngx_modelgw_metrics_shape_t  *shape;

    shape = &ngx_modelgw_metrics_shapes[table];

    return (lanes + 1) * shape->row
           + sizeof(ngx_modelgw_metrics_name_t) + shape->name
           + 2 * sizeof(uint32_t);
}


/* what is not of a table: the head, the row of the ledger, and alignment */

#define ngx_modelgw_metrics_rest(lanes)                                       \
    (sizeof(ngx_modelgw_metrics_t)                                            \
     + ngx_modelgw_metrics_bytes(NGX_MODELGW_METRICS_LEDGER, lanes)           \
     + (lanes + 2 + 2 * NGX_MODELGW_METRICS_TABLES)                           \
       * NGX_MODELGW_METRICS_ALIGN)


void
ngx_modelgw_metrics_room(size_t size, ngx_uint_t lanes,
    ngx_uint_t max[NGX_MODELGW_METRICS_TABLES])
{
    size_t      head;
    ngx_uint_t  i;

    head = ngx_modelgw_metrics_rest(lanes);
    size = (size > head) ? size - head : 0;

    for (i = 0; i < NGX_MODELGW_METRICS_LEDGER; i++) {
        max[i] = size / NGX_MODELGW_METRICS_PARTS
                 * ngx_modelgw_metrics_shapes[i].part
                 / ngx_modelgw_metrics_bytes(i, lanes);
    }

    max[i] = 1;
}


size_t
ngx_modelgw_metrics_size(ngx_uint_t lanes,
    ngx_uint_t n[NGX_MODELGW_METRICS_TABLES])
{
    size_t      size, most;
    ngx_uint_t  i;

    most = 0;

    for (i = 0; i < NGX_MODELGW_METRICS_LEDGER; i++) {

        /* NOBODY is a row, too */

        size = (n[i] + 2) * ngx_modelgw_metrics_bytes(i, lanes)
               / ngx_modelgw_metrics_shapes[i].part
               + ngx_modelgw_metrics_bytes(i, lanes);

        most = ngx_max(most, size);
    }

    return most * NGX_MODELGW_METRICS_PARTS + ngx_modelgw_metrics_rest(lanes);
}


ngx_modelgw_metrics_t *
ngx_modelgw_metrics_create(void *memory, size_t size, ngx_uint_t lanes,
    uint64_t started)
{
    u_char                       *p;
    ngx_str_t                     nobody = ngx_string("");
    ngx_uint_t                    i, max[NGX_MODELGW_METRICS_TABLES];
    ngx_modelgw_metrics_t        *m;
    ngx_modelgw_metrics_names_t  *t;

    ngx_modelgw_metrics_room(size, lanes, max);

    if (max[NGX_MODELGW_METRICS_GROUPS] <= NGX_MODELGW_METRICS_NOBODY
        || max[NGX_MODELGW_METRICS_MODELS] == 0
        || max[NGX_MODELGW_METRICS_KEYS] == 0)
    {
        return NULL;
    }

    m = memory;
    m->started = started;
    m->nlanes = lanes + 1;

    p = (u_char *) memory + sizeof(ngx_modelgw_metrics_t);

    for (i = 0; i < NGX_MODELGW_METRICS_TABLES; i++) {
        t = &m->tables[i];

        t->n = 1;
        t->max = max[i];
        t->offset = m->lane;
        t->name = sizeof(ngx_modelgw_metrics_name_t)
                  + ngx_modelgw_metrics_shapes[i].name;

        m->lane += max[i] * ngx_modelgw_metrics_shapes[i].row;

        p = ngx_align_ptr(p, NGX_MODELGW_METRICS_ALIGN);
        t->names = p;
        p += max[i] * t->name;

        p = ngx_align_ptr(p, NGX_MODELGW_METRICS_ALIGN);
        t->slots = (uint32_t *) p;
        p += 2 * max[i] * sizeof(uint32_t);
    }

    m->lane = ngx_align(m->lane, NGX_MODELGW_METRICS_ALIGN);
    m->lanes = ngx_align_ptr(p, NGX_MODELGW_METRICS_ALIGN);

    (void) ngx_modelgw_metrics_add(m, NGX_MODELGW_METRICS_GROUPS, &nobody);

    return m;
}


uint32_t
ngx_modelgw_metrics_find(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, ngx_str_t *name)
{
    uint32_t  row;

    (void) ngx_modelgw_metrics_slot(&m->tables[table], name, &row);

    return row;
}


uint32_t
ngx_modelgw_metrics_add(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, ngx_str_t *name)
{
    uint32_t                      i, *slot;
    ngx_modelgw_metrics_name_t   *record;
    ngx_modelgw_metrics_names_t  *t;

    t = &m->tables[table];
    slot = ngx_modelgw_metrics_slot(t, name, &i);

    if (i != NGX_MODELGW_METRICS_OTHER) {
        return i;
    }

    if (t->n == t->max || name->len > ngx_modelgw_metrics_shapes[table].name) {
        return NGX_MODELGW_METRICS_OTHER;
    }

    i = t->n;

    record = ngx_modelgw_metrics_record(t, i);
    record->len = name->len;
    ngx_memcpy(record->data, name->data, name->len);

    __atomic_store_n(&t->n, i + 1, __ATOMIC_RELEASE);
    __atomic_store_n(slot, i, __ATOMIC_RELEASE);

    return i;
}


/*
 * Returns that of the name, or where it belongs; *row is what is there, which
 * another process may change at any time.
 */

static uint32_t *
ngx_modelgw_metrics_slot(ngx_modelgw_metrics_names_t *t, ngx_str_t *name,
    uint32_t *row)
{
    uint32_t                     i, *slot;
    ngx_modelgw_metrics_name_t  *record;

    i = ngx_murmur_hash2(name->data, name->len) % (2 * t->max);

    for ( ;; ) {
        slot = &t->slots[i];
        *row = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

        if (*row == NGX_MODELGW_METRICS_OTHER) {
            return slot;
        }

        record = ngx_modelgw_metrics_record(t, *row);

        if (record->len == name->len
            && ngx_memcmp(record->data, name->data, name->len) == 0)
        {
            return slot;
        }

        i = (i + 1 == 2 * t->max) ? 0 : i + 1;
    }
}


uint32_t
ngx_modelgw_metrics_rows(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table)
{
    return __atomic_load_n(&m->tables[table].n, __ATOMIC_ACQUIRE);
}


uint32_t
ngx_modelgw_metrics_max(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table)
{
    return m->tables[table].max;
}


void
ngx_modelgw_metrics_name(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, uint32_t index, ngx_str_t *name)
{
    ngx_modelgw_metrics_name_t  *record;

    record = ngx_modelgw_metrics_record(&m->tables[table], index);

    name->len = record->len;
    name->data = record->data;
}


uint64_t
ngx_modelgw_metrics_started(ngx_modelgw_metrics_t *m)
{
    return m->started;
}


void *
ngx_modelgw_metrics_row(ngx_modelgw_metrics_t *m, uint32_t worker,
    ngx_modelgw_metrics_table_e table, uint32_t index)
{
    ngx_uint_t  shared;

    return ngx_modelgw_metrics_in_lane(m,
                                 ngx_modelgw_metrics_lane(m, worker, &shared),
                                 table, index);
}


static ngx_inline u_char *
ngx_modelgw_metrics_lane(ngx_modelgw_metrics_t *m, uint32_t worker,
    ngx_uint_t *shared)
{
    *shared = (worker >= m->nlanes - 1);

    return m->lanes + (*shared ? m->nlanes - 1 : worker) * m->lane;
}


static ngx_inline void *
ngx_modelgw_metrics_in_lane(ngx_modelgw_metrics_t *m, u_char *lane,
    ngx_modelgw_metrics_table_e table, uint32_t index)
{
    ngx_modelgw_metrics_names_t  *t;

    t = &m->tables[table];

    if (index >= t->n) {
        index = NGX_MODELGW_METRICS_OTHER;
    }

    return lane + t->offset + index * ngx_modelgw_metrics_shapes[table].row;
}


/* the shared lane has several writers */

static ngx_inline void
ngx_modelgw_metrics_add_to(uint64_t *cell, uint64_t n, ngx_uint_t shared)
{
    if (shared) {
        (void) __atomic_fetch_add(cell, n, __ATOMIC_RELAXED);
        return;
    }

    __atomic_store_n(cell, __atomic_load_n(cell, __ATOMIC_RELAXED) + n,
                     __ATOMIC_RELAXED);
}


static ngx_inline void
ngx_modelgw_metrics_observed(uint64_t *cells, ngx_modelgw_metrics_hist_e hist,
    uint64_t value, ngx_uint_t shared)
{
    const ngx_modelgw_metrics_hist_t  *h;

    h = &ngx_modelgw_metrics_hists[hist];

    ngx_modelgw_metrics_add_to(&cells[ngx_modelgw_metrics_bucket(h, value)], 1,
                               shared);
    ngx_modelgw_metrics_add_to(&cells[h->n + 1], value, shared);
}


/* the index of the first bound that is not below the value, or n */

static ngx_inline ngx_uint_t
ngx_modelgw_metrics_bucket(const ngx_modelgw_metrics_hist_t *h, uint64_t value)
{
    uint64_t    steps;
    ngx_uint_t  low, high, i;

    if (value <= h->bounds[0]) {
        return 0;
    }

    if (h->step) {

        /* how many bits it has more than the first bound */

        steps = (value - 1) / h->bounds[0];
        i = (64 - __builtin_clzll(steps) + h->step - 1) / h->step;

        return ngx_min(i, h->n);
    }

    low = 1;
    high = h->n;

    while (low < high) {
        i = (low + high) / 2;

        if (h->bounds[i] < value) {
            low = i + 1;

        } else {
            high = i;
        }
    }

    return low;
}


void
ngx_modelgw_metrics_count(ngx_modelgw_metrics_t *m, uint32_t worker,
    uint64_t *cell, uint64_t n)
{
    ngx_modelgw_metrics_add_to(cell, n, worker >= m->nlanes - 1);
}


void
ngx_modelgw_metrics_observe(ngx_modelgw_metrics_t *m, uint32_t worker,
    uint64_t *cells, ngx_modelgw_metrics_hist_e hist, uint64_t value)
{
    ngx_modelgw_metrics_observed(cells, hist, value, worker >= m->nlanes - 1);
}


void
ngx_modelgw_metrics_request(ngx_modelgw_metrics_t *m, uint32_t worker,
    ngx_modelgw_metrics_request_t *request)
{
    u_char                       *lane;
    ngx_uint_t                    shared;
    ngx_modelgw_metrics_key_t    *key;
    ngx_modelgw_metrics_group_t  *row;

    lane = ngx_modelgw_metrics_lane(m, worker, &shared);

    row = ngx_modelgw_metrics_in_lane(m, lane, NGX_MODELGW_METRICS_GROUPS,
                                      request->group);

    ngx_modelgw_metrics_add_to(&row->requests[request->endpoint][request->code],
                               1, shared);

    if (request->status < NGX_MODELGW_METRICS_STATUSES) {
        ngx_modelgw_metrics_add_to(&row->responses[request->status], 1, shared);
    }

    if (request->key != NGX_MODELGW_METRICS_OTHER) {
        key = ngx_modelgw_metrics_in_lane(m, lane, NGX_MODELGW_METRICS_KEYS,
                                          request->key);

        ngx_modelgw_metrics_add_to(&key->requests[request->result], 1, shared);
    }
}


/* compiled for each kind of lanes, so that no cell asks of which it is */

void
ngx_modelgw_metrics_call(ngx_modelgw_metrics_t *m, uint32_t worker,
    ngx_modelgw_metrics_call_t *call)
{
    u_char      *lane;
    ngx_uint_t   shared;

    lane = ngx_modelgw_metrics_lane(m, worker, &shared);

    if (shared) {
        ngx_modelgw_metrics_call_in(m, lane, 1, call);

    } else {
        ngx_modelgw_metrics_call_in(m, lane, 0, call);
    }
}


static ngx_modelgw_metrics_inline void
ngx_modelgw_metrics_call_in(ngx_modelgw_metrics_t *m, u_char *lane,
    ngx_uint_t shared, ngx_modelgw_metrics_call_t *call)
{
    uint64_t                      input, output, took;
    ngx_uint_t                    i;
    ngx_modelgw_metrics_key_t    *key;
    ngx_modelgw_metrics_model_t  *row;

    row = ngx_modelgw_metrics_in_lane(m, lane, NGX_MODELGW_METRICS_MODELS,
                                      call->model);

    input = call->tokens[0] + call->tokens[1] + call->tokens[2]
            + call->tokens[3];
    output = call->tokens[4];

    ngx_modelgw_metrics_add_to(&row->calls[call->outcome][call->end], 1,
                               shared);

    ngx_modelgw_metrics_observed(row->duration[call->failed],
                                 NGX_MODELGW_METRICS_HIST_DURATION,
                                 call->duration, shared);

    if (call->first != (uint64_t) -1) {
        ngx_modelgw_metrics_observed(row->first, NGX_MODELGW_METRICS_HIST_FIRST,
                                     call->first, shared);

        if (output > 1) {
            took = call->duration - ngx_min(call->first, call->duration);

            ngx_modelgw_metrics_observed(row->per_token,
                                         NGX_MODELGW_METRICS_HIST_PER_TOKEN,
                                         took * 1000 / (output - 1), shared);
        }
    }

    if (input + output == 0) {
        return;
    }

    ngx_modelgw_metrics_observed(row->usage[0], NGX_MODELGW_METRICS_HIST_USAGE,
                                 input, shared);
    ngx_modelgw_metrics_observed(row->usage[1], NGX_MODELGW_METRICS_HIST_USAGE,
                                 output, shared);

    for (i = 0; i < NGX_MODELGW_METRICS_TOKENS; i++) {
        if (call->tokens[i]) {
            ngx_modelgw_metrics_add_to(&row->tokens[i], call->tokens[i],
                                       shared);
        }
    }

    ngx_modelgw_metrics_add_to(&row->cost, call->cost, shared);

    if (call->key == NGX_MODELGW_METRICS_OTHER) {
        return;
    }

    key = ngx_modelgw_metrics_in_lane(m, lane, NGX_MODELGW_METRICS_KEYS,
                                      call->key);

    ngx_modelgw_metrics_add_to(&key->tokens[0], input, shared);
    ngx_modelgw_metrics_add_to(&key->tokens[1], output, shared);
    ngx_modelgw_metrics_add_to(&key->cost, call->cost, shared);
}


void
ngx_modelgw_metrics_sum(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, uint32_t index, void *sum)
{
    uint64_t    *from, *to;
    ngx_uint_t   i, lane, n;

    to = sum;
    n = ngx_modelgw_metrics_shapes[table].row / sizeof(uint64_t);

    for (lane = 0; lane < m->nlanes; lane++) {
        from = ngx_modelgw_metrics_row(m, lane, table, index);

        for (i = 0; i < n; i++) {
            to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        }
    }
}
