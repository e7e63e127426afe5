
/*
 * Joining: the random id of its journal says which node this is.  One process
 * at a time has a journal: the one that has started last.  It takes over by a
 * comparison of the epoch it has seen, so a late start cannot win over a newer
 * one; a process that finds another one in its place has lost, or is a copy.
 * Unless the epoch is lower than its own was: then the database has lost its
 * last commits, and knows an older process.
 *
 * The journal must be the one that the database knows: it has the position up
 * to which calls were shipped, with the same call.  An old copy of its file may
 * have gone on, without the database: what it has at that position, and before
 * it, was not shipped, and never would be.
 *
 * Each connection has an epoch of its own, also of one process: an exchange of
 * the connection before, which may be applied as late as it likes, would lend
 * what this node does not hear of.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_exchange_private.h"


#define NGX_MODELGW_EXCHANGE_LOOKS     4 /* it registers, starts, and again */
#define NGX_MODELGW_EXCHANGE_LEFT      1 /* nodes.state */
#define NGX_MODELGW_EXCHANGE_SERVER    130000  /* server_version_num */


typedef struct {
    uint64_t              num;           /* 0: not in the database */
    uint64_t              epoch;
    ngx_uint_t            mine;          /* 1: this process has started last */
    ngx_uint_t            nobody;        /* 1: of none, it was written off or
                                            has not started yet */
    ngx_uint_t            left;
    ngx_uint_t            drain;
    uint64_t              pos;
    uint64_t              call;          /* at pos */
} ngx_modelgw_exchange_node_t;


/* errors that do not pass by themselves; text has a "%V" for the server's */

typedef struct {
    const char           *state;         /* the start of an SQLSTATE */
    const char           *text;
} ngx_modelgw_exchange_reason_t;


static ngx_int_t ngx_modelgw_exchange_check(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_check_rights(ngx_modelgw_exchange_t *x,
    ngx_modelgw_pq_result_t *result);
static ngx_int_t ngx_modelgw_exchange_look(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_node_t *node);
static ngx_int_t ngx_modelgw_exchange_look_cluster(ngx_modelgw_exchange_t *x,
    ngx_modelgw_pq_result_t *result);
static ngx_int_t ngx_modelgw_exchange_journal(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_node_t *node, void *data);
static ngx_int_t ngx_modelgw_exchange_register(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_start(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_node_t *node);
static ngx_int_t ngx_modelgw_exchange_leases(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_lease_pt handler, void *data);
static ngx_int_t ngx_modelgw_exchange_failed(ngx_modelgw_exchange_t *x);


/* what the threads of a node do to tables; prices, actions, topups only grow */

static const char  ngx_modelgw_exchange_rights[] =
    "SELECT current_setting('server_version_num')::integer,"
        " current_setting('server_encoding'), current_user::text,"
        " (SELECT string_agg(p.name || ' on modelgw.' || t.name, ', '"
            " ORDER BY t.name, p.name)"
        " FROM unnest(ARRAY['accounts', 'actions', 'budgets', 'calls',"
            " 'cluster', 'days', 'hours', 'keys', 'leases', 'limits', 'marks',"
            " 'nodes', 'prices', 'recalls', 'slots', 'topups']) AS t(name)"
        " CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'])"
            " AS p(name)"
        " WHERE NOT has_table_privilege('modelgw.' || t.name, p.name)"
            " AND NOT (p.name = 'UPDATE'"
                " AND t.name IN ('actions', 'prices', 'topups'))"
            " AND NOT (p.name = 'INSERT' AND t.name = 'cluster')"
            " AND NOT (p.name = 'DELETE'"
                " AND t.name IN ('actions', 'cluster', 'days', 'marks',"
                    " 'prices', 'topups')))";


/* $1 journal, $2 process */

static const char  ngx_modelgw_exchange_looked[] =
    "SELECT c.id, c.version, c.oldest, n.num, n.epoch, n.process = $2,"
        " n.process = '', n.state, n.drain, n.pos, n.call"
    " FROM modelgw.cluster c LEFT JOIN modelgw.nodes n ON n.journal = $1";


/*
 * Numbers are given one at a time: the lock comes first, then a statement that
 * sees what its last holder has done.  $1 journal, $2 name, $3 version.
 */

static const char  ngx_modelgw_exchange_registered[] =
    "INSERT INTO modelgw.nodes (num, journal, name, version, epoch, process,"
        " pos, joined, seen, state)"
    " SELECT coalesce(max(num), 0) + 1, $1, $2, $3, 0, '', 0,"
        " " NGX_MODELGW_EXCHANGE_NOW ", " NGX_MODELGW_EXCHANGE_NOW ", 0"
    " FROM modelgw.nodes ON CONFLICT (journal) DO NOTHING";


/*
 * $1 num, $2 epoch and $6 position as they were looked up, $3 process, $4 name,
 * $5 version
 */

static const char  ngx_modelgw_exchange_started[] =
    "UPDATE modelgw.nodes SET epoch = epoch + 1, process = $3, name = $4,"
        " version = $5, state = 0, seen = " NGX_MODELGW_EXCHANGE_NOW
    " WHERE num = $1 AND epoch = $2 AND pos = $6 RETURNING epoch, pos";


/* $1 num */

static const char  ngx_modelgw_exchange_lent[] =
    "SELECT account, granted, returned, forced, spent, held"
    " FROM modelgw.leases WHERE node = $1";


static const ngx_modelgw_exchange_reason_t  ngx_modelgw_exchange_reasons[] = {
    { "42501", "the database's role has too few rights: %V; see \"modelgwctl"
               " cluster init\"" },
    { "3F", "the database has no tables of a cluster (%V); run \"modelgwctl"
            " cluster init\"" },
    { "42P01", "the database has no tables of a cluster (%V); run \"modelgwctl"
               " cluster init\"" },
    { "42", "the database has other tables than this nginx knows (%V); see"
            " \"modelgwctl cluster upgrade\"" }
};


ngx_int_t
ngx_modelgw_exchange_join(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_lease_pt handler, void *data)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    ngx_modelgw_exchange_node_t  node;

    rc = ngx_modelgw_exchange_check(x);

    if (rc != NGX_OK) {
        return rc;
    }

    for (i = 0; i < NGX_MODELGW_EXCHANGE_LOOKS; i++) {

        rc = ngx_modelgw_exchange_look(x, &node);

        if (rc != NGX_OK) {
            return rc;
        }

        if (node.num == 0) {
            rc = ngx_modelgw_exchange_register(x);

            if (rc != NGX_DONE) {
                return rc;
            }

            continue;
        }

        rc = ngx_modelgw_exchange_journal(x, &node, data);

        if (rc != NGX_OK) {
            return rc;
        }

        if (node.left && node.drain && !x->fresh) {
            return NGX_BUSY;

        } else if (x->fresh || node.mine || node.nobody
                   || node.epoch < x->epoch)
        {
            rc = ngx_modelgw_exchange_start(x, &node);

            if (rc == NGX_OK) {
                return ngx_modelgw_exchange_leases(x, handler, data);
            }

        } else {
            ngx_modelgw_exchange_set_error(x, "another process works with a"
                                   " copy of this node's journal; end one of"
                                   " them, and run \"modelgwctl journal renew\""
                                   " for its file");
            return NGX_DECLINED;
        }

        if (rc != NGX_DONE) {
            return rc;
        }
    }

    ngx_modelgw_exchange_set_error(x, "other processes start at the same time");

    return NGX_AGAIN;
}


/* The server, and what the role may do. */

static ngx_int_t
ngx_modelgw_exchange_check(ngx_modelgw_exchange_t *x)
{
    ngx_int_t                     rc;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    if (ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_rights, &args,
                                  &result)
        != NGX_OK)
    {
        return ngx_modelgw_exchange_failed(x);
    }

    rc = ngx_modelgw_exchange_check_rights(x, result);

    ngx_modelgw_pq_clear(result);

    return rc;
}


static ngx_int_t
ngx_modelgw_exchange_check_rights(ngx_modelgw_exchange_t *x,
    ngx_modelgw_pq_result_t *result)
{
    ngx_str_t  encoding, role, rights;

    ngx_modelgw_pq_text(result, 0, 1, &encoding);
    ngx_modelgw_pq_text(result, 0, 2, &role);
    ngx_modelgw_pq_text(result, 0, 3, &rights);

    if (ngx_modelgw_pq_int(result, 0, 0) < NGX_MODELGW_EXCHANGE_SERVER) {
        ngx_modelgw_exchange_set_error(x, "the server is older than"
                                       " PostgreSQL 13");
        return NGX_DECLINED;
    }

    if (encoding.len != 4 || ngx_strncmp(encoding.data, "UTF8", 4) != 0) {
        ngx_modelgw_exchange_set_error(x, "the database has the encoding %V,"
                                       " UTF8 is needed", &encoding);
        return NGX_DECLINED;
    }

    if (rights.len) {
        ngx_modelgw_exchange_set_error(x, "the database's role \"%V\" has too"
                                       " few rights, it lacks %V", &role,
                                       &rights);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_exchange_look(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_node_t *node)
{
    ngx_int_t                     rc;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    ngx_modelgw_exchange_text(&args, x->journal);
    ngx_modelgw_exchange_text(&args, x->process);

    if (ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_looked, &args,
                                  &result)
        != NGX_OK)
    {
        return ngx_modelgw_exchange_failed(x);
    }

    rc = ngx_modelgw_exchange_look_cluster(x, result);

    if (rc == NGX_OK) {
        node->num = ngx_modelgw_pq_int(result, 0, 3);
        node->epoch = ngx_modelgw_pq_int(result, 0, 4);
        node->mine = ngx_modelgw_pq_int(result, 0, 5);
        node->nobody = ngx_modelgw_pq_int(result, 0, 6);
        node->left = (ngx_modelgw_pq_int(result, 0, 7)
                      == NGX_MODELGW_EXCHANGE_LEFT);
        node->drain = ngx_modelgw_pq_int(result, 0, 8);
        node->pos = ngx_modelgw_pq_int(result, 0, 9);
        node->call = ngx_modelgw_pq_int(result, 0, 10);
    }

    ngx_modelgw_pq_clear(result);

    return rc;
}


/* Whether it is the cluster of the journal, with tables that are known here. */

static ngx_int_t
ngx_modelgw_exchange_look_cluster(ngx_modelgw_exchange_t *x,
    ngx_modelgw_pq_result_t *result)
{
    int64_t    version, oldest;
    ngx_str_t  id;

    if (ngx_modelgw_pq_rows(result) != 1) {
        ngx_modelgw_exchange_set_error(x, "the database's table"
                                       " modelgw.cluster is empty");
        return NGX_DECLINED;
    }

    ngx_modelgw_pq_text(result, 0, 0, &id);
    version = ngx_modelgw_pq_int(result, 0, 1);
    oldest = ngx_modelgw_pq_int(result, 0, 2);

    if (id.len == 0 || id.len >= NGX_MODELGW_RANDOM_ID
        || (x->cluster[0]
            && (ngx_strlen(x->cluster) != id.len
                || ngx_strncmp(x->cluster, id.data, id.len) != 0)))
    {
        ngx_modelgw_exchange_set_error(x, "the database is of another cluster"
                                       " than this node's journal: \"%V\", not"
                                       " \"%s\"", &id, x->cluster);
        return NGX_DECLINED;
    }

    if (ngx_modelgw_exchange_known(x, oldest) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (version < NGX_MODELGW_SCHEMA_VERSION) {
        ngx_modelgw_exchange_set_error(x, "the database's tables are of version"
                                       " %L, this nginx needs %d; run"
                                       " \"modelgwctl cluster upgrade\"",
                                       version, NGX_MODELGW_SCHEMA_VERSION);
        return NGX_DECLINED;
    }

    if (x->cluster[0] == '\0') {
        ngx_cpystrn((u_char *) x->cluster, id.data, id.len + 1);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_exchange_known(ngx_modelgw_exchange_t *x, int64_t oldest)
{
    if (oldest > NGX_MODELGW_SCHEMA_VERSION) {
        ngx_modelgw_exchange_set_error(x, "this nginx knows version %d of the"
                                       " database's tables, and %L is the"
                                       " oldest that may be used; upgrade this"
                                       " node", NGX_MODELGW_SCHEMA_VERSION,
                                       oldest);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/*
 * Whether the journal is the one whose calls the database has.  A call that it
 * does not have any more was acknowledged long ago.
 */

static ngx_int_t
ngx_modelgw_exchange_journal(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_node_t *node, void *data)
{
    uint64_t  id;

    if (node->pos > x->end) {
        ngx_modelgw_exchange_set_error(x, "the journal was set back, the"
                               " database has later calls of it; put the right"
                               " file back, or run \"modelgwctl journal"
                               " renew\"");
        return NGX_DECLINED;
    }

    if (node->call == 0) {
        return NGX_OK;
    }

    if (x->call(data, node->pos, &id) != NGX_OK) {
        ngx_modelgw_exchange_set_error(x, "the journal cannot be read");
        return NGX_AGAIN;
    }

    if (id == 0 || id == node->call) {
        return NGX_OK;
    }

    ngx_modelgw_exchange_set_error(x, "the journal was set back and has gone"
                           " on, or a copy of it has: the database has another"
                           " call at position %uL; put the right file back, or"
                           " run \"modelgwctl journal renew\"", node->pos);
    return NGX_DECLINED;
}


/* NGX_DONE: it is to be looked up */

static ngx_int_t
ngx_modelgw_exchange_register(ngx_modelgw_exchange_t *x)
{
    ngx_modelgw_exchange_args_t  args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    if (ngx_modelgw_exchange_add(x, "BEGIN", &args) != NGX_OK
        || ngx_modelgw_exchange_add(x, "SELECT one FROM modelgw.cluster"
                                    " FOR UPDATE", &args)
           != NGX_OK)
    {
        return NGX_AGAIN;
    }

    ngx_modelgw_exchange_text(&args, x->journal);
    ngx_modelgw_exchange_text(&args, x->name);
    ngx_modelgw_exchange_int(&args, NGX_MODELGW_SCHEMA_VERSION);

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_registered, &args)
        != NGX_OK
        || ngx_modelgw_exchange_add(x, "COMMIT", &args) != NGX_OK)
    {
        return NGX_AGAIN;
    }

    if (ngx_modelgw_pq_run(x->pq, NGX_MODELGW_EXCHANGE_TIMEOUT, NULL, 0,
                           &x->error)
        != NGX_OK)
    {
        return ngx_modelgw_exchange_failed(x);
    }

    return NGX_DONE;
}


/*
 * NGX_DONE: another one was faster, or a late exchange has ended: it is to be
 * looked up again
 */

static ngx_int_t
ngx_modelgw_exchange_start(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_node_t *node)
{
    ngx_int_t                     rc;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    ngx_modelgw_exchange_int(&args, node->num);
    ngx_modelgw_exchange_int(&args, node->epoch);
    ngx_modelgw_exchange_text(&args, x->process);
    ngx_modelgw_exchange_text(&args, x->name);
    ngx_modelgw_exchange_int(&args, NGX_MODELGW_SCHEMA_VERSION);
    ngx_modelgw_exchange_int(&args, node->pos);

    if (ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_started, &args,
                                  &result)
        != NGX_OK)
    {
        return ngx_modelgw_exchange_failed(x);
    }

    rc = NGX_DONE;

    if (ngx_modelgw_pq_rows(result) == 1) {
        x->num = node->num;
        x->epoch = ngx_modelgw_pq_int(result, 0, 0);
        x->pos = ngx_modelgw_pq_int(result, 0, 1);

        rc = NGX_OK;
    }

    ngx_modelgw_pq_clear(result);

    return rc;
}


static ngx_int_t
ngx_modelgw_exchange_leases(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_lease_pt handler, void *data)
{
    ngx_int_t                     rc;
    ngx_str_t                     name;
    ngx_uint_t                    i;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    ngx_modelgw_exchange_int(&args, x->num);

    if (ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_lent, &args, &result)
        != NGX_OK)
    {
        return ngx_modelgw_exchange_failed(x);
    }

    rc = NGX_OK;

    for (i = 0; i < ngx_modelgw_pq_rows(result) && rc == NGX_OK; i++) {
        ngx_modelgw_pq_text(result, i, 0, &name);

        rc = handler(data, &name, ngx_modelgw_pq_int(result, i, 1),
                     ngx_modelgw_pq_int(result, i, 2),
                     ngx_modelgw_pq_int(result, i, 3),
                     ngx_modelgw_pq_int(result, i, 4),
                     ngx_modelgw_pq_int(result, i, 5));
    }

    ngx_modelgw_pq_clear(result);

    if (rc == NGX_OK) {
        x->fresh = 0;
    }

    return rc;
}


/* NGX_DECLINED, with a sentence, if it fails each time; else NGX_AGAIN */

static ngx_int_t
ngx_modelgw_exchange_failed(ngx_modelgw_exchange_t *x)
{
    ngx_str_t               text;
    ngx_uint_t              i;
    ngx_modelgw_pq_error_t  error;

    error = x->error;

    text.data = error.data;
    text.len = error.len;

    for (i = 0; i < sizeof(ngx_modelgw_exchange_reasons)
                    / sizeof(ngx_modelgw_exchange_reason_t); i++)
    {
        if (ngx_strncmp(error.state, ngx_modelgw_exchange_reasons[i].state,
                        ngx_strlen(ngx_modelgw_exchange_reasons[i].state))
            == 0)
        {
            ngx_modelgw_exchange_set_error(x,
                                 ngx_modelgw_exchange_reasons[i].text, &text);
            return NGX_DECLINED;
        }
    }

    return NGX_AGAIN;
}
