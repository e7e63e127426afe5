
/*
 * Counters in shared memory, and their text for Prometheus.
 *
 * A cell is a 64-bit counter.  Cells are in rows: of a group, of a model of a
 * group, of a key, and one of the ledger.  Rows are found by name, are never
 * removed, and never move: an index stays valid.  Index 0 is "other": all that
 * there was no room for.
 *
 * A lane is one writer's copy of all rows.  A worker adds to the lane of its
 * number, which no other process has at a time, by a plain load and store; what
 * has no lane of its own uses the last one, by atomic operations.  Readers add
 * up all lanes without a lock.  Cells are never cleared, so that no sum falls.
 * A worker that is killed may leave one call counted in a part of its cells.
 *
 * Rejected: one lane with atomic operations, which take six times as long.
 */


#ifndef _NGX_MODELGW_METRICS_H_INCLUDED_
#define _NGX_MODELGW_METRICS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"


#define NGX_MODELGW_METRICS_OTHER   0
#define NGX_MODELGW_METRICS_NOBODY  1    /* the group of clients without a
                                            valid key */
#define NGX_MODELGW_METRICS_SHARED  ((uint32_t) -1)  /* no lane of its own */

#define NGX_MODELGW_METRICS_NAME    64   /* bytes of a group's or key's name */
#define NGX_MODELGW_METRICS_MODEL   384  /* group, owner and id of a model, '\0'
                                            between them */

/* how many values a label has at most, or buckets a histogram but "+Inf" */

#define NGX_MODELGW_METRICS_ENDPOINTS   7
#define NGX_MODELGW_METRICS_CODES       32
#define NGX_MODELGW_METRICS_STATUSES    18
#define NGX_MODELGW_METRICS_OUTCOMES    5
#define NGX_MODELGW_METRICS_ENDS        6
#define NGX_MODELGW_METRICS_TOKENS      6
#define NGX_MODELGW_METRICS_RESULTS     6

#define NGX_MODELGW_METRICS_DURATION    17
#define NGX_MODELGW_METRICS_FIRST       20
#define NGX_MODELGW_METRICS_PER_TOKEN   15
#define NGX_MODELGW_METRICS_USAGE       14
#define NGX_MODELGW_METRICS_FLUSH       11


typedef struct ngx_modelgw_metrics_s  ngx_modelgw_metrics_t;


typedef enum {
    NGX_MODELGW_METRICS_GROUPS = 0,
    NGX_MODELGW_METRICS_MODELS,
    NGX_MODELGW_METRICS_KEYS,
    NGX_MODELGW_METRICS_LEDGER,          /* its only row is 0 */
    NGX_MODELGW_METRICS_TABLES
} ngx_modelgw_metrics_table_e;


/* histograms: cells are the buckets, that of "+Inf", and the sum of values */

typedef enum {
    NGX_MODELGW_METRICS_HIST_DURATION = 0,
    NGX_MODELGW_METRICS_HIST_FIRST,
    NGX_MODELGW_METRICS_HIST_PER_TOKEN,
    NGX_MODELGW_METRICS_HIST_USAGE,
    NGX_MODELGW_METRICS_HIST_FLUSH,
    NGX_MODELGW_METRICS_HIST_EXCHANGE
} ngx_modelgw_metrics_hist_e;


/* rows: of cells only */

typedef struct {
    uint64_t  requests[NGX_MODELGW_METRICS_ENDPOINTS]
                      [NGX_MODELGW_METRICS_CODES];
    uint64_t  responses[NGX_MODELGW_METRICS_STATUSES]; /* of upstreams */
    uint64_t  retries;
} ngx_modelgw_metrics_group_t;


typedef struct {
    uint64_t  duration[2][NGX_MODELGW_METRICS_DURATION + 2]; /* ms; [1]: of
                                                                failed calls */
    uint64_t  first[NGX_MODELGW_METRICS_FIRST + 2];          /* ms */
    uint64_t  per_token[NGX_MODELGW_METRICS_PER_TOKEN + 2];  /* us */
    uint64_t  usage[2][NGX_MODELGW_METRICS_USAGE + 2];       /* tokens of input,
                                                                of output */
    uint64_t  calls[NGX_MODELGW_METRICS_OUTCOMES][NGX_MODELGW_METRICS_ENDS];
    uint64_t  tokens[NGX_MODELGW_METRICS_TOKENS];
    uint64_t  cost;                                          /* nano-euro */
} ngx_modelgw_metrics_model_t;


typedef struct {
    uint64_t  requests[NGX_MODELGW_METRICS_RESULTS];
    uint64_t  tokens[2];                 /* of input, of output */
    uint64_t  cost;                      /* nano-euro */
} ngx_modelgw_metrics_key_t;


typedef struct {
    uint64_t  flush[NGX_MODELGW_METRICS_FLUSH + 2];          /* us */
    uint64_t  failures;                  /* flushes that failed */
    uint64_t  dead;                      /* calls of killed workers */
} ngx_modelgw_metrics_ledger_t;


/* a request that has ended */

typedef struct {
    uint32_t  group;                     /* index of its row */
    uint32_t  key;                       /* the same; 0: none */
    uint32_t  endpoint;                  /* below _ENDPOINTS */
    uint32_t  code;                      /* below _CODES */
    uint32_t  result;                    /* below _RESULTS */
    uint32_t  status;                    /* of the upstream, if below
                                            _STATUSES */
} ngx_modelgw_metrics_request_t;


/* a call that was sent and has ended */

typedef struct {
    uint32_t  model;                     /* index of its row */
    uint32_t  key;
    uint32_t  outcome;                   /* below _OUTCOMES */
    uint32_t  end;                       /* below _ENDS */
    uint32_t  failed;                    /* 1: the upstream or we failed */
    uint64_t  duration;                  /* ms */
    uint64_t  first;                     /* ms to the first event of a stream;
                                            -1: no stream, or none came */
    int64_t   tokens[NGX_MODELGW_METRICS_TOKENS]; /* input, cache_read,
                                            cache_write, cache_write_1h, output,
                                            reasoning; none is negative */
    int64_t   cost;                      /* nano-euro */
} ngx_modelgw_metrics_call_t;




/* metrics.c: the memory */

/*
 * How many rows fit in size bytes with so many lanes beside the shared one, and
 * how many bytes are needed for so many rows, those of index 0 not counted.
 */
void ngx_modelgw_metrics_room(size_t size, ngx_uint_t lanes,
    ngx_uint_t max[NGX_MODELGW_METRICS_TABLES]);
size_t ngx_modelgw_metrics_size(ngx_uint_t lanes,
    ngx_uint_t n[NGX_MODELGW_METRICS_TABLES]);

/*
 * Lays out size bytes of shared memory, which is zeroed and aligned to a page.
 * started: seconds since the Epoch.
 *     NULL  too little memory
 */
ngx_modelgw_metrics_t *ngx_modelgw_metrics_create(void *memory, size_t size,
    ngx_uint_t lanes, uint64_t started);

/*
 * The index of the row with that name.  _add() adds it if it is new; it is for
 * one process at a time.
 *     NGX_MODELGW_METRICS_OTHER  there is none, or no room for it
 */
uint32_t ngx_modelgw_metrics_find(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, ngx_str_t *name);
uint32_t ngx_modelgw_metrics_add(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, ngx_str_t *name);

/* The number of rows, that of index 0 included, and how many there may be. */
uint32_t ngx_modelgw_metrics_rows(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table);
uint32_t ngx_modelgw_metrics_max(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table);

/* The name of a row; that of index 0 is empty. */
void ngx_modelgw_metrics_name(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, uint32_t index, ngx_str_t *name);

/* When the memory was laid out. */
uint64_t ngx_modelgw_metrics_started(ngx_modelgw_metrics_t *m);

/*
 * The cells of a row in the lane of the worker, or in the shared one if there
 * is no such lane; that of index 0 if there is no such row.
 */
void *ngx_modelgw_metrics_row(ngx_modelgw_metrics_t *m, uint32_t worker,
    ngx_modelgw_metrics_table_e table, uint32_t index);

/* Adds n to a cell of that worker's row. */
void ngx_modelgw_metrics_count(ngx_modelgw_metrics_t *m, uint32_t worker,
    uint64_t *cell, uint64_t n);

/* Adds a value to a histogram of that worker's row. */
void ngx_modelgw_metrics_observe(ngx_modelgw_metrics_t *m, uint32_t worker,
    uint64_t *cells, ngx_modelgw_metrics_hist_e hist, uint64_t value);

/* Counts a request: in its group's row, and that of its key unless it is 0. */
void ngx_modelgw_metrics_request(ngx_modelgw_metrics_t *m, uint32_t worker,
    ngx_modelgw_metrics_request_t *request);

/* Counts a call: its model's row, and that of its key unless that is 0. */
void ngx_modelgw_metrics_call(ngx_modelgw_metrics_t *m, uint32_t worker,
    ngx_modelgw_metrics_call_t *call);

/* Adds the row of all lanes to the cells at sum, a row of the same table. */
void ngx_modelgw_metrics_sum(ngx_modelgw_metrics_t *m,
    ngx_modelgw_metrics_table_e table, uint32_t index, void *sum);


/* metrics_text.c: the text format of Prometheus, version 0.0.4 */

#define NGX_MODELGW_METRICS_LABELS  8

typedef struct {
    ngx_modelgw_out_t    *out;
    const char           *name;          /* of the metric */
    const char           *type;
    const char           *help;
    ngx_uint_t            begun;         /* 1: type and help are written */
    ngx_uint_t            n;             /* labels of the next sample */
    struct {
        const char       *name;
        ngx_str_t         value;
    } labels[NGX_MODELGW_METRICS_LABELS];
} ngx_modelgw_metrics_text_t;

/* Begins a metric; without a sample nothing is written of it. */
void ngx_modelgw_metrics_metric(ngx_modelgw_metrics_text_t *text,
    const char *name, const char *type, const char *help);

/*
 * Sets a label of the next sample, the i-th one; labels after it are dropped.
 * Neither text is copied.
 */
void ngx_modelgw_metrics_label(ngx_modelgw_metrics_text_t *text, ngx_uint_t i,
    const char *name, ngx_str_t *value);

/*
 * Writes a sample: value / 10^decimals, exactly.  _counter() writes nothing if
 * the value is 0.
 */
void ngx_modelgw_metrics_sample(ngx_modelgw_metrics_text_t *text,
    int64_t value, ngx_uint_t decimals);
void ngx_modelgw_metrics_counter(ngx_modelgw_metrics_text_t *text,
    uint64_t value, ngx_uint_t decimals);

/* Writes a histogram, unless it is empty. */
void ngx_modelgw_metrics_histogram(ngx_modelgw_metrics_text_t *text,
    ngx_modelgw_metrics_hist_e hist, uint64_t *cells);


/* The bounds of a histogram, ascending, in units of 10^-decimals. */

typedef struct {
    ngx_uint_t            n;
    ngx_uint_t            decimals;
    ngx_uint_t            step;          /* each is the one before, shifted by
                                            so many bits; 0: it is not */
    const uint64_t       *bounds;
} ngx_modelgw_metrics_hist_t;

extern const ngx_modelgw_metrics_hist_t  ngx_modelgw_metrics_hists[];


#endif /* _NGX_MODELGW_METRICS_H_INCLUDED_ */
