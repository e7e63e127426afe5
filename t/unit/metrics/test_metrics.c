
/*
 * Metrics: rows by name, lanes and their sum, histograms, the text.
 */


#include "unit.h"

#include "ngx_modelgw_metrics.h"

#include <pthread.h>


#define SIZE     (1024 * 1024)
#define LANES    4
#define THREADS  4
#define ROUNDS   20000


static void *
map(size_t size)
{
    void  *p;

    p = aligned_alloc(4096, size);
    assert_non_null(p);

    ngx_memzero(p, size);

    return p;
}


static void
test_names(void **state)
{
    u_char                  text[NGX_MODELGW_METRICS_NAME + 1];
    uint32_t                i, n, max;
    ngx_str_t               name, found;
    ngx_modelgw_metrics_t  *m;

    m = ngx_modelgw_metrics_create(map(SIZE), SIZE, LANES, 17);
    assert_non_null(m);
    assert_int_equal(ngx_modelgw_metrics_started(m), 17);


    /* the group of nobody is there from the start */

    name = unit_str("");
    assert_int_equal(ngx_modelgw_metrics_find(m, NGX_MODELGW_METRICS_GROUPS,
                                              &name),
                     NGX_MODELGW_METRICS_NOBODY);

    max = ngx_modelgw_metrics_max(m, NGX_MODELGW_METRICS_KEYS);
    assert_true(max > 100);

    name.data = text;

    for (i = 1; i < max; i++) {
        name.len = ngx_sprintf(text, "key-%uD", i) - text;

        assert_int_equal(ngx_modelgw_metrics_find(m, NGX_MODELGW_METRICS_KEYS,
                                                  &name),
                         NGX_MODELGW_METRICS_OTHER);
        assert_int_equal(ngx_modelgw_metrics_add(m, NGX_MODELGW_METRICS_KEYS,
                                                 &name), i);
    }

    assert_int_equal(ngx_modelgw_metrics_rows(m, NGX_MODELGW_METRICS_KEYS),
                     max);

    /* it is full; what is in it is found */

    name = unit_str("late");
    assert_int_equal(ngx_modelgw_metrics_add(m, NGX_MODELGW_METRICS_KEYS,
                                             &name),
                     NGX_MODELGW_METRICS_OTHER);

    name.data = text;

    for (i = 1; i < max; i++) {
        name.len = ngx_sprintf(text, "key-%uD", i) - text;

        assert_int_equal(ngx_modelgw_metrics_add(m, NGX_MODELGW_METRICS_KEYS,
                                                 &name), i);
        ngx_modelgw_metrics_name(m, NGX_MODELGW_METRICS_KEYS, i, &found);
        assert_int_equal(found.len, name.len);
        assert_memory_equal(found.data, name.data, name.len);
    }

    /* too long */

    ngx_memset(text, 'x', sizeof(text));
    name.len = sizeof(text);
    n = ngx_modelgw_metrics_rows(m, NGX_MODELGW_METRICS_GROUPS);
    assert_int_equal(ngx_modelgw_metrics_add(m, NGX_MODELGW_METRICS_GROUPS,
                                             &name),
                     NGX_MODELGW_METRICS_OTHER);
    assert_int_equal(ngx_modelgw_metrics_rows(m, NGX_MODELGW_METRICS_GROUPS),
                     n);

    free(m);
}


/* what _size() says is enough, and not much more than that */

static void
test_size(void **state)
{
    size_t                  size;
    ngx_uint_t              i, k, lanes, max[NGX_MODELGW_METRICS_TABLES];
    ngx_modelgw_metrics_t  *m;

    ngx_uint_t  counts[][NGX_MODELGW_METRICS_TABLES] = {
        { 0, 0, 0, 0 }, { 1, 1, 1, 0 }, { 2, 500, 0, 0 }, { 300, 1, 1, 0 },
        { 2, 50, 1000, 0 }, { 2, 50, 100000, 0 }
    };

    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (lanes = 1; lanes < 130; lanes += 3) {
            size = ngx_modelgw_metrics_size(lanes, counts[i]);

            ngx_modelgw_metrics_room(size, lanes, max);

            for (k = 0; k < NGX_MODELGW_METRICS_LEDGER; k++) {

                /* beside that of index 0, and of nobody */

                assert_true(max[k] >= counts[i][k] + 2);
            }
        }
    }

    for (size = 0; size < 65536; size += 4096) {
        m = map(size + 4096);

        if (ngx_modelgw_metrics_create(m, size, LANES, 1)) {
            assert_true(size > 16384);
        }

        free(m);
    }
}


/* the last cell of the last row of the last lane is in the memory */

static void
test_layout(void **state)
{
    size_t                         size;
    uint32_t                       i, lane, max;
    ngx_uint_t                     table;
    uint64_t                      *last;
    ngx_modelgw_metrics_t         *m;
    ngx_modelgw_metrics_ledger_t  *row;

    for (size = 4 * 65536; size < 2 * SIZE; size += 69632) {
        m = ngx_modelgw_metrics_create(map(size), size, LANES, 1);
        assert_non_null(m);

        for (table = 0; table < NGX_MODELGW_METRICS_TABLES; table++) {
            max = ngx_modelgw_metrics_max(m, table);

            for (lane = 0; lane <= LANES; lane++) {

                /* rows that are not in use are those of index 0 */

                assert_ptr_equal(ngx_modelgw_metrics_row(m, lane, table, max),
                                 ngx_modelgw_metrics_row(m, lane, table, 0));
            }

            for (i = 1; i < max; i++) {
                u_char     text[16];
                ngx_str_t  name;

                name.data = text;
                name.len = ngx_sprintf(text, "%uD", i) - text;

                (void) ngx_modelgw_metrics_add(m, table, &name);
            }
        }

        row = ngx_modelgw_metrics_row(m, NGX_MODELGW_METRICS_SHARED,
                                      NGX_MODELGW_METRICS_LEDGER, 0);
        last = &row->dead;

        ngx_modelgw_metrics_count(m, NGX_MODELGW_METRICS_SHARED, last, 1);
        assert_true((u_char *) (last + 1) <= (u_char *) m + size);

        free(m);
    }
}


static uint64_t
bucket(ngx_modelgw_metrics_hist_e hist, uint64_t value)
{
    uint64_t                       i, found;
    uint64_t                       cells[32];
    ngx_modelgw_metrics_t         *m;

    static u_char  memory[SIZE] __attribute__((aligned(4096)));

    m = (ngx_modelgw_metrics_t *) memory;

    if (ngx_modelgw_metrics_started(m) == 0) {
        m = ngx_modelgw_metrics_create(memory, SIZE, LANES, 1);
        assert_non_null(m);
    }

    ngx_memzero(cells, sizeof(cells));
    ngx_modelgw_metrics_observe(m, 0, cells, hist, value);

    found = 32;

    for (i = 0; i <= ngx_modelgw_metrics_hists[hist].n; i++) {
        if (cells[i]) {
            assert_int_equal(cells[i], 1);
            assert_int_equal(found, 32);
            found = i;
        }
    }

    assert_int_equal(cells[i], value);

    return found;
}


/* each value is in the first bucket whose bound is not below it */

static void
test_buckets(void **state)
{
    uint64_t                           value;
    ngx_int_t                          d;
    ngx_uint_t                         h, i, k;
    const ngx_modelgw_metrics_hist_t  *hist;

    for (h = NGX_MODELGW_METRICS_HIST_DURATION;
         h <= NGX_MODELGW_METRICS_HIST_FLUSH;
         h++)
    {
        hist = &ngx_modelgw_metrics_hists[h];

        for (i = 0; i < hist->n; i++) {
            for (d = -2; d <= 2; d++) {
                value = hist->bounds[i] + d;

                if ((int64_t) value < 0) {
                    continue;
                }

                for (k = 0; k < hist->n && hist->bounds[k] < value; k++) {
                    /* void */
                }

                assert_int_equal(bucket(h, value), k);
            }
        }

        assert_int_equal(bucket(h, 0), 0);
        assert_int_equal(bucket(h, UINT64_MAX / 2), hist->n);
    }
}


static void
test_call(void **state)
{
    ngx_str_t                      name;
    ngx_modelgw_metrics_t         *m;
    ngx_modelgw_metrics_key_t      key;
    ngx_modelgw_metrics_call_t     call;
    ngx_modelgw_metrics_model_t    row;
    ngx_modelgw_metrics_group_t    group;
    ngx_modelgw_metrics_request_t  request;

    m = ngx_modelgw_metrics_create(map(SIZE), SIZE, LANES, 1);
    assert_non_null(m);

    ngx_memzero(&call, sizeof(call));

    name = unit_str("g");
    call.model = ngx_modelgw_metrics_add(m, NGX_MODELGW_METRICS_MODELS, &name);
    call.key = ngx_modelgw_metrics_add(m, NGX_MODELGW_METRICS_KEYS, &name);
    call.outcome = 1;
    call.end = 2;
    call.duration = 1010;
    call.first = 10;
    call.tokens[0] = 1;
    call.tokens[1] = 2;
    call.tokens[2] = 3;
    call.tokens[3] = 4;
    call.tokens[4] = 11;
    call.tokens[5] = 5;
    call.cost = 123;

    ngx_modelgw_metrics_call(m, 0, &call);
    ngx_modelgw_metrics_call(m, 3, &call);
    ngx_modelgw_metrics_call(m, 4, &call);
    ngx_modelgw_metrics_call(m, 1000, &call);
    ngx_modelgw_metrics_call(m, NGX_MODELGW_METRICS_SHARED, &call);

    ngx_memzero(&row, sizeof(row));
    ngx_modelgw_metrics_sum(m, NGX_MODELGW_METRICS_MODELS, call.model, &row);

    assert_int_equal(row.calls[1][2], 5);
    assert_int_equal(row.cost, 5 * 123);
    assert_int_equal(row.tokens[5], 25);
    assert_int_equal(row.usage[0][NGX_MODELGW_METRICS_USAGE + 1], 50);
    assert_int_equal(row.usage[1][NGX_MODELGW_METRICS_USAGE + 1], 55);
    assert_int_equal(row.duration[0][NGX_MODELGW_METRICS_DURATION + 1],
                     5 * 1010);
    assert_int_equal(row.first[NGX_MODELGW_METRICS_FIRST + 1], 50);

    /* 1 second, 10 tokens after the first: 100 ms each */

    assert_int_equal(row.per_token[6], 5);
    assert_int_equal(row.per_token[NGX_MODELGW_METRICS_PER_TOKEN + 1],
                     5 * 100000);

    ngx_memzero(&key, sizeof(key));
    ngx_modelgw_metrics_sum(m, NGX_MODELGW_METRICS_KEYS, call.key, &key);

    assert_int_equal(key.tokens[0], 50);
    assert_int_equal(key.tokens[1], 55);
    assert_int_equal(key.cost, 5 * 123);

    /* one that is not known is "other", and has no key */

    call.model = 77;
    call.key = 0;
    ngx_modelgw_metrics_call(m, 0, &call);

    ngx_memzero(&row, sizeof(row));
    ngx_modelgw_metrics_sum(m, NGX_MODELGW_METRICS_MODELS, 0, &row);
    assert_int_equal(row.calls[1][2], 1);

    ngx_memzero(&key, sizeof(key));
    ngx_modelgw_metrics_sum(m, NGX_MODELGW_METRICS_KEYS, 0, &key);
    assert_int_equal(key.cost, 0);

    ngx_memzero(&request, sizeof(request));
    request.group = NGX_MODELGW_METRICS_NOBODY;
    request.endpoint = 2;
    request.code = 3;
    request.status = NGX_MODELGW_METRICS_STATUSES;
    ngx_modelgw_metrics_request(m, 1, &request);
    request.status = 4;
    ngx_modelgw_metrics_request(m, 2, &request);

    ngx_memzero(&group, sizeof(group));
    ngx_modelgw_metrics_sum(m, NGX_MODELGW_METRICS_GROUPS,
                            NGX_MODELGW_METRICS_NOBODY, &group);
    assert_int_equal(group.requests[2][3], 2);
    assert_int_equal(group.responses[4], 1);

    free(m);
}


static ngx_modelgw_metrics_t  *shared;


static void *
count(void *data)
{
    uint32_t                       worker;
    ngx_uint_t                     i;
    ngx_modelgw_metrics_ledger_t  *row;

    worker = (uint32_t) (uintptr_t) data;

    row = ngx_modelgw_metrics_row(shared, worker, NGX_MODELGW_METRICS_LEDGER,
                                  0);

    for (i = 0; i < ROUNDS; i++) {
        ngx_modelgw_metrics_count(shared, worker, &row->dead, 1);
    }

    return NULL;
}


/* two have a lane of their own, two share one */

static void
test_threads(void **state)
{
    ngx_uint_t                     i;
    pthread_t                      threads[THREADS];
    ngx_modelgw_metrics_ledger_t   row;

    shared = ngx_modelgw_metrics_create(map(SIZE), SIZE, 2, 1);
    assert_non_null(shared);

    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count,
                                        (void *) (uintptr_t) i), 0);
    }

    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }

    ngx_memzero(&row, sizeof(row));
    ngx_modelgw_metrics_sum(shared, NGX_MODELGW_METRICS_LEDGER, 0, &row);
    assert_int_equal(row.dead, THREADS * ROUNDS);

    free(shared);
}


static void
test_text(void **state)
{
    uint64_t                     cells[NGX_MODELGW_METRICS_USAGE + 2];
    ngx_str_t                    value, text;
    ngx_modelgw_out_t            out;
    ngx_modelgw_out_piece_t      piece;
    ngx_modelgw_metrics_text_t   t;

    ngx_memzero(&t, sizeof(t));
    ngx_memzero(cells, sizeof(cells));
    t.out = &out;

    ngx_modelgw_out_piece(&out, &piece, *state, 16);

    ngx_modelgw_metrics_metric(&t, "none_total", "counter", "Not written.");
    ngx_modelgw_metrics_counter(&t, 0, 0);
    ngx_modelgw_metrics_histogram(&t, NGX_MODELGW_METRICS_HIST_USAGE, cells);

    ngx_modelgw_metrics_metric(&t, "a_total", "counter", "A.");
    ngx_modelgw_metrics_counter(&t, 1, 0);
    value = unit_str("x\\\"\n\xff");
    ngx_modelgw_metrics_label(&t, 0, "l", &value);
    value = unit_str("");
    ngx_modelgw_metrics_label(&t, 1, "m", &value);
    ngx_modelgw_metrics_sample(&t, 1230000000, 9);
    ngx_modelgw_metrics_sample(&t, -1, 9);
    ngx_modelgw_metrics_sample(&t, -1500, 3);
    ngx_modelgw_metrics_sample(&t, 0, 9);
    ngx_modelgw_metrics_sample(&t, INT64_MIN, 9);
    ngx_modelgw_metrics_sample(&t, 10, 1);

    ngx_modelgw_metrics_metric(&t, "h", "histogram", "H.");
    cells[0] = 1;
    cells[2] = 2;
    cells[NGX_MODELGW_METRICS_USAGE] = 1;
    cells[NGX_MODELGW_METRICS_USAGE + 1] = 100000001;
    value = unit_str("v");
    ngx_modelgw_metrics_label(&t, 0, "l", &value);
    ngx_modelgw_metrics_histogram(&t, NGX_MODELGW_METRICS_HIST_USAGE, cells);

    assert_int_equal(ngx_modelgw_out_piece_done(&out, &text), NGX_OK);

    unit_assert_str(text.data, text.len,
        "# HELP a_total A.\n"
        "# TYPE a_total counter\n"
        "a_total 1\n"
        "a_total{l=\"x\\\\\\\"\\n\xef\xbf\xbd\",m=\"\"} 1.23\n"
        "a_total{l=\"x\\\\\\\"\\n\xef\xbf\xbd\",m=\"\"} -0.000000001\n"
        "a_total{l=\"x\\\\\\\"\\n\xef\xbf\xbd\",m=\"\"} -1.5\n"
        "a_total{l=\"x\\\\\\\"\\n\xef\xbf\xbd\",m=\"\"} 0\n"
        "a_total{l=\"x\\\\\\\"\\n\xef\xbf\xbd\",m=\"\"} -9223372036.854775808\n"
        "a_total{l=\"x\\\\\\\"\\n\xef\xbf\xbd\",m=\"\"} 1\n"
        "# HELP h H.\n"
        "# TYPE h histogram\n"
        "h_bucket{l=\"v\",le=\"1\"} 1\n"
        "h_bucket{l=\"v\",le=\"4\"} 1\n"
        "h_bucket{l=\"v\",le=\"16\"} 3\n"
        "h_bucket{l=\"v\",le=\"64\"} 3\n"
        "h_bucket{l=\"v\",le=\"256\"} 3\n"
        "h_bucket{l=\"v\",le=\"1024\"} 3\n"
        "h_bucket{l=\"v\",le=\"4096\"} 3\n"
        "h_bucket{l=\"v\",le=\"16384\"} 3\n"
        "h_bucket{l=\"v\",le=\"65536\"} 3\n"
        "h_bucket{l=\"v\",le=\"262144\"} 3\n"
        "h_bucket{l=\"v\",le=\"1048576\"} 3\n"
        "h_bucket{l=\"v\",le=\"4194304\"} 3\n"
        "h_bucket{l=\"v\",le=\"16777216\"} 3\n"
        "h_bucket{l=\"v\",le=\"67108864\"} 3\n"
        "h_bucket{l=\"v\",le=\"+Inf\"} 4\n"
        "h_sum{l=\"v\"} 100000001\n"
        "h_count{l=\"v\"} 4\n");
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_names),
        unit_case(test_size),
        unit_case(test_layout),
        unit_case(test_buckets),
        unit_case(test_call),
        unit_case(test_threads),
        unit_case(test_text)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
