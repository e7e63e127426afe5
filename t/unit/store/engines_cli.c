
/*
 * The queries and changes of operators over two pipes, for test_engines.py, of
 * a ledger in SQLite or in PostgreSQL.
 *
 * usage: engines_cli sqlite PATH | engines_cli pq CONNINFO PASSWORDFILE
 *
 * in:   lines of fields with tabs between them: a command and "name=value"s
 * out:  for each line "RC LENGTH\n", that many bytes, and "\n"
 */


#include "stub.h"

#include <pthread.h>

#include "ngx_modelgw_clerk.h"
#include "ngx_modelgw_store.h"
#include "ngx_modelgw_store_cluster.h"


#define CLI_FIELDS  32
#define CLI_NODE    3
#define CLI_FEED    8

static ngx_modelgw_pq_conf_t   cli_conf;
static ngx_modelgw_pq_t       *cli_pq;
static ngx_modelgw_store_t    *cli_sqlite;
static ngx_uint_t              cli_cluster;


typedef struct {
    char       *fields[CLI_FIELDS];
    ngx_uint_t  n;
    char       *out;
    size_t      len;
    FILE       *file;
    ngx_pool_t *pool;
} cli_t;


static void *
need(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "engines_cli: a NULL\n");
        exit(3);
    }

    return p;
}


static const char *
value(cli_t *c, const char *name)
{
    size_t      len;
    ngx_uint_t  i;

    len = strlen(name);

    for (i = 1; i < c->n; i++) {
        if (strncmp(c->fields[i], name, len) == 0 && c->fields[i][len] == '=') {
            return c->fields[i] + len + 1;
        }
    }

    return "";
}


static ngx_str_t
text(cli_t *c, const char *name)
{
    ngx_str_t  s;

    s.data = (u_char *) value(c, name);
    s.len = strlen((char *) s.data);

    return s;
}


static int64_t
number(cli_t *c, const char *name)
{
    return strtoll(value(c, name), NULL, 10);
}


static void
set_name(ngx_modelgw_ledger_name_t *name, const char *s)
{
    name->len = strlen(s);
    memcpy(name->data, s, name->len);
}


static void
filter_of(cli_t *c, ngx_modelgw_store_filter_t *f)
{
    ngx_str_t  after;

    memset(f, 0, sizeof(ngx_modelgw_store_filter_t));

    f->account = text(c, "account");
    f->key = text(c, "key");
    f->model = text(c, "model");
    f->outcome = text(c, "outcome");
    f->end = text(c, "end");
    f->status = text(c, "status");
    f->request_id = text(c, "request_id");
    f->min_cost = number(c, "min_cost");
    f->from = number(c, "from");
    f->to = number(c, "to");
    f->now = number(c, "now");
    f->zone = number(c, "zone");
    f->limit = *value(c, "limit") ? number(c, "limit") : 1000000;

    after = text(c, "after");

    if (after.len) {
        (void) ngx_modelgw_store_place(&after, &f->after);
    }
}


static void
by_of(cli_t *c, ngx_modelgw_store_by_t *by)
{
    int          i;
    const char  *p, *names = "hdmkoa";   /* in the order of the enum */

    by->n = 0;

    for (p = value(c, "by"); *p; p++) {
        for (i = 0; names[i] != *p; i++) { /* void */ }
        by->bys[by->n++] = i;
    }
}


static ngx_int_t
on_account(void *data, ngx_str_t *name, int64_t first, uint64_t second)
{
    cli_t *c = data;

    fprintf(c->file, "%.*s %lld %lld\n", (int) name->len, name->data,
            (long long) first, (long long) second);

    return NGX_OK;
}


static ngx_int_t
on_name(void *data, ngx_str_t *name)
{
    cli_t *c = data;

    fprintf(c->file, "%.*s\n", (int) name->len, name->data);

    return NGX_OK;
}


static ngx_int_t
on_key(void *data, ngx_modelgw_managed_key_t *k)
{
    int    i;
    cli_t *c = data;

    for (i = 0; i < NGX_MODELGW_KEY_DIGEST; i++) {
        fprintf(c->file, "%02x", k->digest[i]);
    }

    fprintf(c->file, " %.*s %.*s %.*s [%.*s] %lld %lld %lld %lld %d %lld %d"
            " %lld %lld\n", (int) k->id.len, k->id.data, (int) k->account.len,
            k->account.data, (int) k->group.len, k->group.data,
            (int) k->models_len, k->models, (long long) k->rpm,
            (long long) k->tpm, (long long) k->concurrency,
            (long long) k->budget, (int) k->window, (long long) k->expires,
            (int) k->state, (long long) k->version, (long long) k->old_until);

    return NGX_OK;
}


static ngx_int_t
on_listed(void *data, ngx_modelgw_managed_key_t *key, uint64_t created,
    ngx_str_t *note)
{
    cli_t *c = data;

    fprintf(c->file, "%lld {%.*s} ", (long long) created, (int) note->len,
            note->data);

    return on_key(data, key);
}


static ngx_int_t
run_change(cli_t *c, ngx_modelgw_store_t *s)
{
    ngx_str_t              digest;
    const char            *note;
    ngx_modelgw_change_t   ch;
    ngx_modelgw_change_e   result;

    memset(&ch, 0, sizeof(ngx_modelgw_change_t));

    ch.kind = number(c, "kind");
    ch.time = number(c, "time");
    ch.amount = number(c, "amount");
    ch.correction = number(c, "correction");
    ch.imported = number(c, "imported");
    ch.sets = number(c, "sets");
    ch.closed = number(c, "closed");
    ch.if_match = number(c, "if_match");
    ch.tried = number(c, "tried");
    ch.until = number(c, "until");
    ch.account = NGX_MODELGW_LEDGER_NONE;
    set_name(&ch.owner, value(c, "owner"));
    set_name(&ch.id, value(c, "id"));
    set_name(&ch.actor, "alice");
    ch.address_len = 9;
    memcpy(ch.address, "127.0.0.1", 9);

    note = value(c, "note");
    ch.note_len = strlen(note);
    memcpy(ch.note, note, ch.note_len);

    set_name(&ch.key.id, value(c, "key"));
    set_name(&ch.key.account, value(c, "owner"));
    set_name(&ch.key.group, value(c, "group"));
    ch.key.rpm = number(c, "rpm");
    ch.key.tpm = number(c, "tpm");
    ch.key.concurrency = number(c, "concurrency");
    ch.key.budget = number(c, "budget");
    ch.key.window = number(c, "window");
    ch.key.expires = number(c, "expires");
    ch.key.models_len = strlen(value(c, "models"));
    memcpy(ch.key.models, value(c, "models"), ch.key.models_len);

    digest = text(c, "digest");
    memset(ch.key.digest, '.', NGX_MODELGW_KEY_DIGEST);
    memcpy(ch.key.digest, digest.data, digest.len);

    result = NGX_MODELGW_CHANGE_FREE;

    if (ngx_modelgw_store_begin(s) != NGX_OK
        || ngx_modelgw_store_change(s, &ch, &result) != NGX_OK
        || ngx_modelgw_store_commit(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    fprintf(c->file, "result %d amount %lld version %lld note {%.*s} ", result,
            (long long) ch.amount, (long long) ch.version, (int) ch.note_len,
            ch.note);

    return on_key(c, &ch.key);
}


static ngx_int_t
run_feed(cli_t *c, ngx_modelgw_store_t *s)
{
    ngx_int_t            rc;
    ngx_uint_t           i, n;
    ngx_modelgw_feed_t  *feed;

    feed = need(calloc(CLI_FEED, sizeof(ngx_modelgw_feed_t)));
    n = 0;

    rc = ngx_modelgw_store_feed(s, number(c, "version"), feed, CLI_FEED, &n);

    for (i = 0; i < n; i++) {
        fprintf(c->file, "%lld ", (long long) feed[i].version);

        if (feed[i].account) {
            fprintf(c->file, "account %.*s %d\n", (int) feed[i].name.len,
                    feed[i].name.data, (int) feed[i].closed);

        } else {
            (void) on_key(c, &feed[i].key);
        }
    }

    free(feed);

    return rc;
}


/* a round; since: 1 if a node may be lost at once */

static ngx_int_t
run_clerk(cli_t *c)
{
    ngx_int_t               rc;
    ngx_modelgw_clerk_t     clerk;
    ngx_modelgw_pq_error_t  error;

    memset(&clerk, 0, sizeof(ngx_modelgw_clerk_t));

    clerk.num = number(c, "num");
    clerk.keep = number(c, "keep");
    clerk.lost = number(c, "lost");
    clerk.since = number(c, "since");
    clerk.cluster = "";

    do {
        rc = ngx_modelgw_clerk(cli_pq, &clerk, &error);

        fprintf(c->file, "%d", (int) clerk.step);

        if (clerk.lost_node) {
            fprintf(c->file, "[%d %lld]", (int) clerk.lost_node,
                    (long long) clerk.taken);
        }

        fprintf(c->file, " ");

    } while (rc == NGX_AGAIN);

    if (rc == NGX_ERROR) {
        fprintf(c->file, "%.*s", (int) error.len, error.data);
    }

    return (rc == NGX_DECLINED) ? NGX_OK : rc;
}


static ngx_int_t
run_list(cli_t *c, ngx_modelgw_store_t *s, const char *command, ngx_str_t *out)
{
    ngx_str_t                    name, names;
    ngx_modelgw_store_keys_t     keys;
    ngx_modelgw_store_actions_t  actions;

    name = text(c, "account");
    names = text(c, "names");

    if (strcmp(command, "keys") == 0) {
        memset(&keys, 0, sizeof(ngx_modelgw_store_keys_t));
        keys.id = text(c, "id");
        keys.q = text(c, "q");
        keys.account = name;
        keys.state = text(c, "state");
        keys.after = text(c, "after");
        keys.limit = *value(c, "limit") ? number(c, "limit") : 1000000;
        keys.now = number(c, "now");

        return ngx_modelgw_store_keys_list(s, &keys, on_listed, c);
    }

    if (strcmp(command, "actions") == 0) {
        memset(&actions, 0, sizeof(ngx_modelgw_store_actions_t));
        actions.actor = text(c, "actor");
        actions.target = text(c, "target");
        actions.after = number(c, "after");
        actions.node = number(c, "node");
        actions.limit = number(c, "limit");

        return ngx_modelgw_store_actions(s, &actions, out, c->pool);
    }

    if (strcmp(command, "topups") == 0) {
        return ngx_modelgw_store_topups(s, &name, number(c, "limit"), out,
                                        c->pool);
    }

    if (strcmp(command, "note") == 0) {
        return ngx_modelgw_store_note(s, &name, out, c->pool);
    }

    if (strcmp(command, "noted") == 0) {
        name = text(c, "text");
        return ngx_modelgw_store_noted(s, &name, on_name, c);
    }

    if (strcmp(command, "closed") == 0) {
        return ngx_modelgw_store_closed(s, on_name, c);
    }

    if (strcmp(command, "table") == 0) {
        return ngx_modelgw_store_keys(s, &names, number(c, "time"), on_key, c);
    }

    if (strcmp(command, "accounts") == 0) {
        return ngx_modelgw_store_accounts(s, on_account, c);
    }

    if (strcmp(command, "balances") == 0) {
        return ngx_modelgw_store_balances(s, &names, on_account, c);
    }

    fprintf(stderr, "engines_cli: %s?\n", command);
    exit(4);
}


static ngx_int_t
run(cli_t *c, ngx_modelgw_store_t *s, ngx_str_t *out)
{
    ngx_str_t                    account, names;
    const char                  *command;
    ngx_modelgw_store_by_t       by;
    ngx_modelgw_store_filter_t   f;

    command = c->fields[0];

    filter_of(c, &f);
    by_of(c, &by);

    if (strcmp(command, "calls") == 0) {
        return ngx_modelgw_store_calls(s, &f, out, c->pool);
    }

    if (strcmp(command, "csv") == 0) {
        return ngx_modelgw_store_calls_csv(s, &f, out, c->pool);
    }

    if (strcmp(command, "call") == 0) {
        account = text(c, "account");
        return ngx_modelgw_store_call_get(s, number(c, "id"), &account, out,
                                          c->pool);
    }

    if (strcmp(command, "usage") == 0) {
        return ngx_modelgw_store_usage(s, &by, &f, out, c->pool);
    }

    if (strcmp(command, "usage_csv") == 0) {
        return ngx_modelgw_store_usage_csv(s, &by, &f, out, c->pool);
    }

    if (strcmp(command, "spent") == 0) {
        names = text(c, "names");
        return ngx_modelgw_store_spent(s, by.bys[0], &names,
                                       number(c, "start"), on_account, c);
    }

    if (strcmp(command, "change") == 0) {
        return run_change(c, s);
    }

    if (strcmp(command, "clerk") == 0) {
        return run_clerk(c);
    }

    if (strcmp(command, "feed") == 0) {
        return run_feed(c, s);
    }

    return run_list(c, s, command, out);
}


/* as a job whose request is closed */

static void *
interrupt(void *data)
{
    (void) usleep(200000);

    ngx_modelgw_store_interrupt(data);

    return NULL;
}


static void
command(cli_t *c, char *line)
{
    pthread_t                   thread;
    ngx_int_t                   rc;
    ngx_str_t                   out;
    ngx_uint_t                  attached;
    ngx_modelgw_store_t        *s;
    ngx_modelgw_store_error_t   error;

    for (c->n = 0; c->n < CLI_FIELDS && line; c->n++) {
        c->fields[c->n] = strsep(&line, "\t\n");
    }

    c->pool = need(stub_pool_create());
    c->file = need(open_memstream(&c->out, &c->len));
    out.len = 0;

    attached = (strcmp(c->fields[0], "change") == 0
                || strcmp(c->fields[0], "feed") == 0);

    if (!cli_cluster) {
        s = cli_sqlite;

    } else if (attached) {
        s = need(ngx_modelgw_store_attach(cli_pq, CLI_NODE));

    } else {
        s = need(ngx_modelgw_store_open_cluster(&cli_conf, &error));
    }

    if (number(c, "interrupt")
        && pthread_create(&thread, NULL, interrupt, s) != 0)
    {
        exit(5);
    }

    rc = run(c, s, &out);

    if (number(c, "interrupt")) {
        (void) pthread_join(thread, NULL);
    }

    if (rc == NGX_ERROR) {
        ngx_modelgw_store_error(s, &error);
        fprintf(c->file, "%.*s", (int) error.len, error.data);
    }

    if (out.len && (rc == NGX_OK || rc == NGX_AGAIN)) {
        fwrite(out.data, 1, out.len, c->file);
    }

    if (cli_cluster) {
        ngx_modelgw_store_close(s);
    }

    fclose(c->file);
    printf("%d %zu\n", (int) rc, c->len);
    fwrite(c->out, 1, c->len, stdout);
    printf("\n");
    fflush(stdout);
    free(c->out);
    ngx_destroy_pool(c->pool);
}


int
main(int argc, char **argv)
{
    char                       *line;
    cli_t                       c;
    size_t                      size;
    ngx_modelgw_pq_error_t      pq;
    ngx_modelgw_store_error_t   error;

    ngx_pagesize = getpagesize();

    if (argc == 3 && strcmp(argv[1], "sqlite") == 0) {
        cli_sqlite = need(ngx_modelgw_store_open(argv[2], &error));

    } else if (argc == 4 && strcmp(argv[1], "pq") == 0) {
        cli_cluster = 1;
        cli_conf.conninfo = argv[2];
        cli_conf.password = argv[3];
        cli_conf.application = "engines_cli";

        if (ngx_modelgw_pq_load(&pq) != NGX_OK
            || (cli_pq = ngx_modelgw_pq_connect(&cli_conf, 5000, NULL, &pq))
               == NULL)
        {
            fprintf(stderr, "engines_cli: %.*s\n", (int) pq.len, pq.data);
            return 2;
        }

    } else {
        return 1;
    }

    line = NULL;
    size = 0;
    memset(&c, 0, sizeof(cli_t));

    while (getline(&line, &size, stdin) > 0) {
        command(&c, line);
    }

    free(line);

    if (cli_cluster) {
        ngx_modelgw_pq_close(cli_pq);

    } else {
        ngx_modelgw_store_close(cli_sqlite);
    }

    return 0;
}
