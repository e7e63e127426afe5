
/*
 * A node of a cluster as far as the database sees it, over two pipes, for
 * t/cluster/test_exchange.py: connections, joins and exchanges.
 *
 * in:   commands, a line each, with fields separated by tabs, see commands[]
 * out:  a line for each: the result, then "name=value" separated by tabs
 */


#include "stub.h"

#include "ngx_modelgw_exchange.h"


#define CLI_FIELDS   16
#define CLI_ASKS     1000
#define CLI_OPENS    3000
#define CLI_TOPUPS   3000
#define CLI_TIMEOUT  20000               /* ms */
#define CLI_RUN      8


typedef struct {
    char                  *name;
    ngx_uint_t             fields;       /* at least */
    void                 (*handler)(char **fields, ngx_uint_t n);
} cli_command_t;


static ngx_modelgw_exchange_t        x;
static ngx_modelgw_pq_conf_t         conf;
static ngx_atomic_t                  stop;

static ngx_modelgw_exchange_round_t  round_;
static ngx_modelgw_store_price_t     price;
static ngx_modelgw_ask_t             asks[CLI_ASKS];
static ngx_modelgw_exchange_said_t   said[CLI_ASKS];
static ngx_modelgw_exchange_open_t   opens[CLI_OPENS];
static ngx_uint_t                    nopens;
static ngx_modelgw_journal_topup_t  topups[CLI_TOPUPS];
static ngx_uint_t                    ntopups;
static ngx_uint_t                    nqueued;
static int64_t                       held;
static uint64_t                      at;


static void *
need(void *p)
{
    if (p == NULL) {
        exit(3);
    }

    return p;
}


static ngx_str_t
text(const char *s)
{
    ngx_str_t  text;

    text.data = (u_char *) s;
    text.len = strlen(s);

    return text;
}


static ngx_str_t
copy(char *text)
{
    ngx_str_t  s;

    s.len = strlen(text);
    s.data = need(strdup(text));

    return s;
}


static char *
replace(char *old, char *text)
{
    free(old);

    return text[0] ? need(strdup(text)) : NULL;
}


static void
print_error(ngx_modelgw_pq_error_t *error)
{
    printf("\tstate=%s\terror=%.*s\n", error->state, (int) error->len,
           error->data);
}


static void
print_rc(ngx_int_t rc)
{
    switch (rc) {

    case NGX_OK:
        printf("ok");
        return;

    case NGX_AGAIN:
        printf("again");
        break;

    case NGX_BUSY:
        printf("busy\n");
        return;

    case NGX_DECLINED:
        printf("declined");
        break;

    default:
        printf("error");
    }

    print_error(&x.error);
}


static void
cli_conf(char **f, ngx_uint_t n)
{
    conf.conninfo = replace(conf.conninfo, f[0]);
    conf.password = replace(conf.password, f[1]);
    conf.application = "modelgw/test";

    if (ngx_modelgw_pq_check(&conf, &x.error) != NGX_OK) {
        print_rc(NGX_ERROR);
        return;
    }

    printf("ok\n");
}


static void
cli_node(char **f, ngx_uint_t n)
{
    strncpy(x.journal, f[0], NGX_MODELGW_RANDOM_ID - 1);
    strncpy(x.process, f[1], NGX_MODELGW_RANDOM_ID - 1);
    ngx_memzero(x.cluster, NGX_MODELGW_RANDOM_ID);
    strncpy(x.cluster, f[2], NGX_MODELGW_RANDOM_ID - 1);
    x.name = replace(x.name, f[3]);
    x.end = INT64_MAX;
    x.fresh = atoi(f[4]);

    printf("ok\n");
}


static void
cli_close(char **f, ngx_uint_t n)
{
    if (x.pq) {
        ngx_modelgw_pq_close(x.pq);
        x.pq = NULL;
    }

    nqueued = 0;

    printf("ok\n");
}


static void
cli_connect(char **f, ngx_uint_t n)
{
    if (x.pq) {
        ngx_modelgw_pq_close(x.pq);
    }

    x.pq = ngx_modelgw_pq_connect(&conf, atoi(f[0]), &stop, &x.error);

    print_rc(x.pq ? NGX_OK : NGX_ERROR);

    if (x.pq) {
        printf("\n");
    }
}


static void
cli_alive(char **f, ngx_uint_t n)
{
    printf("ok\talive=%d\n", (int) ngx_modelgw_pq_alive(x.pq));
}


static ngx_int_t
cli_lease(void *data, ngx_str_t *name, int64_t granted, int64_t returned,
    int64_t forced, int64_t spent, int64_t held)
{
    size_t  *len = data;

    static char  text[65536];

    if (name == NULL) {
        printf("\tleases=%.*s", (int) *len, text);
        return NGX_OK;
    }

    *len += snprintf(text + *len, sizeof(text) - *len, "%s%.*s:%ld:%ld:%ld:%ld",
                     *len ? " " : "", (int) name->len, name->data,
                     (long) granted, (long) returned, (long) forced,
                     (long) spent);

    return NGX_OK;
}


static ngx_int_t
cli_at(void *data, uint64_t pos, uint64_t *id)
{
    *id = at;

    return NGX_OK;
}


/* the id of the call that the journal has where the database ends */

static void
cli_has(char **f, ngx_uint_t n)
{
    at = atol(f[0]);

    printf("ok\n");
}


/* ms since the configuration was loaded */

static void
cli_age(char **f, ngx_uint_t n)
{
    x.age = atol(f[0]);

    printf("ok\n");
}


static void
cli_join(char **f, ngx_uint_t n)
{
    size_t     len;
    ngx_int_t  rc;

    len = 0;
    x.call = cli_at;

    rc = ngx_modelgw_exchange_join(&x, cli_lease, &len);
    print_rc(rc);

    if (rc == NGX_OK) {
        printf("\tnum=%lu\tepoch=%lu\tpos=%lu\tcluster=%s\tfresh=%d",
               (long) x.num, (long) x.epoch, (long) x.pos, x.cluster,
               (int) x.fresh);
        (void) cli_lease(&len, NULL, 0, 0, 0, 0, 0);
        printf("\n");
    }
}


/* pos, key, account, cost, ended, status, first_byte, model, request_id */

static void
cli_call(char **f, ngx_uint_t n)
{
    ngx_modelgw_journal_call_t  call;

    ngx_memzero(&call, sizeof(ngx_modelgw_journal_call_t));

    call.pos = atol(f[0]);
    call.id = call.pos * 1024 + x.num;
    call.key = text(f[1]);
    call.account = text(f[2]);
    call.cost = atol(f[3]);
    call.ended = atol(f[4]);
    call.time = call.ended - 250;
    call.status = (n > 5) ? atol(f[5]) : 200;
    call.first_byte = (n > 6) ? atol(f[6]) : -1;
    call.model = text(n > 7 ? f[7] : "m");
    call.request_id = text(n > 8 ? f[8] : "");
    call.outcome = text("reported");
    call.end = text("complete");
    call.input = 1;
    call.cache_read = 2;
    call.cache_write = 3;
    call.cache_write_1h = 4;
    call.output = 5;
    call.reasoning = 6;
    call.flags = 7;
    call.price = 8;

    if (ngx_modelgw_shipment_add(&round_.calls, &call, 1) != NGX_OK) {
        exit(3);
    }

    printf("ok\n");
}


/* id */

static void
cli_price(char **f, ngx_uint_t n)
{
    price.id = strtoull(f[0], NULL, 10);
    ngx_str_set(&price.group, "g");
    ngx_str_set(&price.model, "m");
    price.time = 1;
    price.rates.input = 2;
    price.rates.output = 3;
    price.rates.cache_read = 4;
    price.rates.cache_write = 5;
    price.rates.cache_write_1h = 6;

    round_.prices = &price;
    round_.nprices = 1;

    printf("ok\n");
}


/* name, returned, need, want, answered, recall, held */

static void
cli_ask(char **f, ngx_uint_t n)
{
    ngx_modelgw_ask_t  *ask;

    ask = &asks[round_.nasks++];
    ngx_memzero(ask, sizeof(ngx_modelgw_ask_t));

    ask->len = ngx_min(strlen(f[0]), NGX_MODELGW_FUND_NAME);
    ngx_memcpy(ask->name, f[0], ask->len);
    ask->returned = atol(f[1]);
    ask->need = atol(f[2]);
    ask->want = atol(f[3]);
    ask->answered = atol(f[4]);
    ask->recall = atol(f[5]);
    ask->held = atol(f[6]);

    printf("ok\n");
}


static int64_t
cli_held(void *data, ngx_str_t *account)
{
    return *(int64_t *) data;
}


/* end, live, keys_version, held; pos stays, if there are no calls */

static void
cli_exchange(char **f, ngx_uint_t n)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i;
    ngx_modelgw_exchange_said_t  *s;

    round_.asks = asks;
    round_.said = said;
    round_.end = atol(f[0]);
    round_.live = atol(f[1]);
    x.keys_version = atol(f[2]);
    held = atol(f[3]);
    round_.held = cli_held;
    round_.data = &held;

    rc = ngx_modelgw_exchange(&x, &round_);
    print_rc(rc);

    if (rc == NGX_OK) {
        printf("\tpos=%lu\tkeys_version=%lu\tlive=%lu\tknown=%lu\tdrain=%d"
               "\trecalls=%.*s",
               (long) x.pos, (long) round_.keys_version,
               (long) round_.now_live, (long) round_.now_known,
               (int) round_.drain,
               (int) round_.recalls.len, round_.recalls.data);

        for (i = 0; i < round_.nasks; i++) {
            s = &said[i];
            printf("\t%.*s=%d %ld %ld %ld %ld %d %ld %lu %ld %lu %ld",
                   (int) asks[i].len, asks[i].name, (int) s->found,
                   (long) s->granted, (long) s->returned, (long) s->forced,
                   (long) s->spent, (int) s->brief, (long) s->free,
                   (long) s->recall, (long) s->lent, (long) s->silent,
                   (long) s->away);
        }

        printf("\n");
    }

    ngx_modelgw_shipment_clear(&round_.calls);
    round_.nprices = 0;
    round_.nasks = 0;
}


static void
cli_leave(char **f, ngx_uint_t n)
{
    ngx_int_t  rc;

    rc = ngx_modelgw_exchange_leave(&x);
    print_rc(rc);

    if (rc == NGX_OK) {
        printf("\n");
    }
}


/* name, amount; of a budget: key, starts, ends */

static void
cli_open(char **f, ngx_uint_t n)
{
    ngx_modelgw_exchange_open_t  *open;

    open = &opens[nopens++];
    ngx_memzero(open, sizeof(ngx_modelgw_exchange_open_t));

    open->name = copy(f[0]);
    open->amount = atol(f[1]);

    if (n > 4) {
        open->key = copy(f[2]);
        open->starts = atol(f[3]);
        open->ends = atol(f[4]);
    }

    printf("ok\n");
}


static void
cli_opens(char **f, ngx_uint_t n)
{
    ngx_int_t  rc;

    rc = ngx_modelgw_exchange_open(&x, opens, nopens);
    print_rc(rc);

    if (rc == NGX_OK) {
        printf("\n");
    }

    while (nopens) {
        nopens--;
        free(opens[nopens].name.data);
        free(opens[nopens].key.data);
    }
}


/* id, account, amount, reason */

static void
cli_topup(char **f, ngx_uint_t n)
{
    ngx_modelgw_journal_topup_t  *topup;

    topup = &topups[ntopups++];

    topup->id = copy(f[0]);
    topup->account = copy(f[1]);
    topup->amount = atol(f[2]);
    topup->time = 77;
    topup->reason = copy(f[3]);

    printf("ok\n");
}


static void
cli_topups(char **f, ngx_uint_t n)
{
    ngx_int_t  rc;

    rc = ngx_modelgw_exchange_topups(&x, topups, ntopups);
    print_rc(rc);

    if (rc == NGX_OK) {
        printf("\n");
    }

    while (ntopups) {
        ntopups--;
        free(topups[ntopups].id.data);
        free(topups[ntopups].account.data);
        free(topups[ntopups].reason.data);
    }
}


/* timeout, statement, number or "": the first row's columns as numbers */

static void
cli_sql(char **f, ngx_uint_t n)
{
    u_char                    buf[8];
    ngx_int_t                 rc;
    ngx_str_t                 text;
    ngx_uint_t                i;
    ngx_modelgw_pq_param_t    param;
    ngx_modelgw_pq_result_t  *result;

    if (n > 2) {
        ngx_modelgw_pq_param_int(&param, buf, atol(f[2]));
    }

    rc = ngx_modelgw_pq_exec(x.pq, f[1], &param, n > 2 ? 1 : 0, atoi(f[0]),
                             &result, &x.error);
    print_rc(rc);

    if (rc != NGX_OK) {
        if (result) {
            exit(4);
        }

        return;
    }

    printf("\trows=%lu\tchanged=%lu", ngx_modelgw_pq_rows(result),
           ngx_modelgw_pq_changed(result));

    for (i = 0; ngx_modelgw_pq_rows(result) && i < 4; i++) {
        ngx_modelgw_pq_text(result, 0, i, &text);
        printf("\tc%lu=%d %ld %.*s", i,
               (int) ngx_modelgw_pq_null(result, 0, i),
               (long) ngx_modelgw_pq_int(result, 0, i),
               (int) text.len, text.data);
    }

    printf("\n");
    ngx_modelgw_pq_clear(result);
}


/* the statements of a pipeline, with the number as their parameter */

static void
cli_add(char **f, ngx_uint_t n)
{
    u_char                  buf[8];
    ngx_int_t               rc;
    ngx_uint_t              i;
    ngx_modelgw_pq_param_t  param;

    static char  *texts[] = {
        "SELECT $1",
        "SELECT 100 / $1, pg_sleep(0)",
        "SELECT repeat('x', $1::integer)",
        "SELECT pg_sleep($1::integer)"
    };

    i = atoi(f[0]);
    ngx_modelgw_pq_param_int(&param, buf, atol(f[1]));

    rc = ngx_modelgw_pq_add(x.pq, texts[i], &param, 1, &x.error);
    print_rc(rc);

    if (rc == NGX_OK) {
        nqueued++;
        printf("\n");
    }
}


/* timeout */

static void
cli_run(char **f, ngx_uint_t n)
{
    ngx_int_t                 rc;
    ngx_str_t                 text;
    ngx_uint_t                i;
    ngx_modelgw_pq_result_t  *results[CLI_RUN];

    rc = ngx_modelgw_pq_run(x.pq, atoi(f[0]), results, nqueued, &x.error);
    print_rc(rc);

    for (i = 0; i < nqueued; i++) {

        if ((results[i] != NULL) != (rc == NGX_OK)) {
            exit(4);
        }

        if (results[i]) {
            ngx_modelgw_pq_text(results[i], 0, 0, &text);
            printf("\tr%lu=%ld %lu", i,
                   (long) ngx_modelgw_pq_int(results[i], 0, 0),
                   (long) text.len);
            ngx_modelgw_pq_clear(results[i]);
        }
    }

    if (rc == NGX_OK) {
        printf("\n");
    }

    nqueued = 0;
}


/* after so many ms */

static void *
cli_stopper(void *data)
{
    usleep(*(long *) data * 1000);
    stop = 1;

    return NULL;
}


static void
cli_stop(char **f, ngx_uint_t n)
{
    pthread_t  thread;

    static long  ms;

    ms = atol(f[0]);
    stop = 0;

    if (ms) {
        if (pthread_create(&thread, NULL, cli_stopper, &ms) != 0) {
            exit(3);
        }

        (void) pthread_detach(thread);
    }

    printf("ok\n");
}


static cli_command_t  commands[] = {
    { "conf", 2, cli_conf },
    { "node", 5, cli_node },
    { "connect", 1, cli_connect },
    { "close", 0, cli_close },
    { "alive", 0, cli_alive },
    { "has", 1, cli_has },
    { "age", 1, cli_age },
    { "join", 0, cli_join },
    { "call", 5, cli_call },
    { "price", 1, cli_price },
    { "ask", 7, cli_ask },
    { "exchange", 4, cli_exchange },
    { "leave", 0, cli_leave },
    { "open", 2, cli_open },
    { "opens", 0, cli_opens },
    { "topup", 4, cli_topup },
    { "topups", 0, cli_topups },
    { "sql", 2, cli_sql },
    { "add", 2, cli_add },
    { "run", 1, cli_run },
    { "stop", 1, cli_stop },
    { NULL, 0, NULL }
};


int
main(void)
{
    char           *line, *p, *fields[CLI_FIELDS];
    size_t          size;
    ssize_t         len;
    ngx_uint_t      n;
    cli_command_t  *c;

    if (ngx_modelgw_pq_load(&x.error) != NGX_OK) {
        print_rc(NGX_ERROR);
        return 1;
    }

    line = NULL;
    size = 0;

    for ( ;; ) {
        len = getline(&line, &size, stdin);

        if (len <= 0) {
            break;
        }

        line[len - 1] = '\0';
        p = line;

        for (n = 0; n < CLI_FIELDS && p; n++) {
            fields[n] = strsep(&p, "\t");
        }

        for (c = commands; c->name && strcmp(c->name, fields[0]) != 0; c++) {
            /* void */
        }

        if (c->name == NULL || n - 1 < c->fields) {
            fprintf(stderr, "odd command: %s\n", line);
            return 2;
        }

        c->handler(&fields[1], n - 1);
        fflush(stdout);
    }

    if (x.pq) {
        ngx_modelgw_pq_close(x.pq);
    }

    ngx_modelgw_exchange_free(&x);

    free(line);
    free(x.name);
    free(conf.conninfo);
    free(conf.password);

    return 0;
}
