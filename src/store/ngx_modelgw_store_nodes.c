
/*
 * The nodes of a cluster, for operators: these need its database, the file of
 * one machine has none.
 *
 * A node that is written off loses what it has borrowed, but for what it has
 * spent of it: it may still run, and is fenced by its epoch.  Locks are taken
 * in the order of an exchange: the node's row, its leases, accounts by name.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_stmt.h"
#include "ngx_modelgw_store_private.h"


/* what is read of a node, under the lock of its row */

typedef struct {
    int64_t                      num;
    int64_t                      draining;
    ngx_modelgw_ledger_name_t    state;  /* its word */
} ngx_modelgw_store_node_t;


static void ngx_modelgw_store_node_row(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt);
static ngx_int_t ngx_modelgw_store_node_find(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_node_t *node);
static ngx_int_t ngx_modelgw_store_node_once(ngx_modelgw_store_t *s,
    const char *sql, ngx_modelgw_store_node_t *node, int64_t second);
static void ngx_modelgw_store_node_state(ngx_modelgw_store_text_t *text,
    void *state, size_t len);
static void ngx_modelgw_store_node_copy(ngx_modelgw_ledger_name_t *name,
    ngx_modelgw_stmt_t *stmt, ngx_uint_t column);


#define NGX_MODELGW_NODES_NOW                                                 \
    "CAST(extract(epoch FROM now()) * 1000 AS BIGINT)"

/* the word of a node's state */

#define NGX_MODELGW_NODES_STATE                                               \
    "CASE WHEN state = 2 THEN 'written off' WHEN state = 1 THEN 'left'"       \
        " WHEN seen <= " NGX_MODELGW_NODES_NOW " - 3000 THEN 'away'"          \
        " WHEN drain THEN 'draining' ELSE 'member' END"

/* of accounts: budgets are lent besides, and are no money */

#define NGX_MODELGW_NODES_REST                                                \
    "(granted - returned - forced - spent)"


static const char  ngx_modelgw_store_nodes_cluster[] =
    "SELECT id, version, oldest, clerk, CAST(?1 AS BIGINT) FROM cluster";

static ngx_modelgw_store_field_t  ngx_modelgw_store_nodes_cluster_fields[] = {
    { ngx_string("id"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("version"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("oldest"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("clerk"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("self"), NGX_MODELGW_FIELD_NUMBER }
};


static const char  ngx_modelgw_store_nodes_sql[] =
    "SELECT num, name, " NGX_MODELGW_NODES_STATE ", joined, seen,"
    " version, CAST(coalesce((SELECT sum(" NGX_MODELGW_NODES_REST ")"
        " FROM leases WHERE node = num AND account NOT LIKE '#%'), 0)"
        " AS BIGINT),"
    " CAST(coalesce((SELECT sum(held) FROM leases"
        " WHERE node = num AND account NOT LIKE '#%'), 0) AS BIGINT),"
    " greatest(journal_end - pos, 0), keys_version"
    " FROM nodes ORDER BY num";

static ngx_modelgw_store_field_t  ngx_modelgw_store_nodes_fields[] = {
    { ngx_string("num"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("name"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("state"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("joined"), NGX_MODELGW_FIELD_TIME },
    { ngx_string("seen"), NGX_MODELGW_FIELD_TIME },
    { ngx_string("version"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("lent"), NGX_MODELGW_FIELD_AMOUNT },
    { ngx_string("held"), NGX_MODELGW_FIELD_AMOUNT },
    { ngx_string("behind"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("keys_version"), NGX_MODELGW_FIELD_NUMBER }
};

#define ngx_modelgw_store_nodes_n(fields)                                     \
    (sizeof(fields) / sizeof(ngx_modelgw_store_field_t))


/*
 * What the node has left goes back to the accounts (free), but where it is
 * charged: then it is gone, by a call of each account.  Positions of these are
 * negative: the node's own are not.  ?2: 1: it is charged.
 */

static const char  ngx_modelgw_store_nodes_force[] =
    "WITH l AS (SELECT account, " NGX_MODELGW_NODES_REST " AS rest"
        " FROM leases WHERE node = ?1 AND " NGX_MODELGW_NODES_REST " > 0),"
    " a AS (SELECT name FROM accounts"
        " WHERE name IN (SELECT account FROM l) ORDER BY name FOR UPDATE),"
    " u AS (UPDATE accounts SET free = free + l.rest FROM l, a"
        " WHERE accounts.name = l.account AND a.name = l.account"
        " AND (?2 = 0 OR l.account LIKE '#%'))"
    " UPDATE leases SET forced = forced + l.rest FROM l"
    " WHERE leases.node = ?1 AND leases.account = l.account";

static const char  ngx_modelgw_store_nodes_charge[] =
    "INSERT INTO calls SELECT ?1,"
    " (SELECT least(coalesce(min(pos), 0), 0) FROM calls WHERE node = ?1) - n,"
    " (" NGX_MODELGW_NODES_NOW " + n) * 1024 + ?1 % 1024,"
    " " NGX_MODELGW_NODES_NOW ", " NGX_MODELGW_NODES_NOW ", '', account, '',"
    " 0, 0, 0, 0, 0, 0, rest, 'unanswered', 'lost', 0, '', NULL, 0, 0"
    " FROM (SELECT account, " NGX_MODELGW_NODES_REST " AS rest,"
        " row_number() OVER (ORDER BY account) AS n FROM leases"
        " WHERE node = ?1 AND account NOT LIKE '#%'"
        " AND " NGX_MODELGW_NODES_REST " > 0) AS l";


ngx_int_t
ngx_modelgw_store_nodes(ngx_modelgw_store_t *s, uint64_t self, ngx_str_t *out,
    ngx_pool_t *pool)
{
    ngx_int_t                  rc;
    ngx_modelgw_out_t          json;
    ngx_modelgw_stmt_t         stmt;
    ngx_modelgw_out_piece_t    piece;
    ngx_modelgw_store_rows_t   rows;

    if (ngx_modelgw_stmt_prepare(s, ngx_modelgw_store_nodes_cluster, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, self);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);

    rc = ngx_modelgw_stmt_next(&stmt);

    if (rc == NGX_OK) {
        ngx_modelgw_out_text(&json, "{\"cluster\":");
        ngx_modelgw_store_object(&json, &stmt,
                                 ngx_modelgw_store_nodes_cluster_fields,
                                 ngx_modelgw_store_nodes_n(
                                     ngx_modelgw_store_nodes_cluster_fields));
        ngx_modelgw_out_text(&json, ",\"nodes\":[");
    }

    ngx_modelgw_stmt_finalize(&stmt);

    if (rc == NGX_DONE) {
        return ngx_modelgw_store_fail_text(s, "failed: there is no cluster");
    }

    if (rc != NGX_OK
        || ngx_modelgw_stmt_prepare(s, ngx_modelgw_store_nodes_sql, &stmt)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memzero(&rows, sizeof(ngx_modelgw_store_rows_t));

    rows.limit = NGX_MAX_INT_T_VALUE;
    rows.separator = ",";

    if (ngx_modelgw_store_rows(s, &json, &stmt, ngx_modelgw_store_node_row,
                               &rows)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_finish(s, &json, "]}", out);
}


static void
ngx_modelgw_store_node_row(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt)
{
    ngx_modelgw_store_object(out, stmt, ngx_modelgw_store_nodes_fields,
                             ngx_modelgw_store_nodes_n(
                                 ngx_modelgw_store_nodes_fields));
}


ngx_int_t
ngx_modelgw_store_node_set(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t                  rc;
    ngx_modelgw_store_node_t   node;

    rc = ngx_modelgw_store_node_find(s, change, &node);

    if (rc != NGX_OK) {
        action->result = NGX_MODELGW_CHANGE_MISSING;
        return (rc == NGX_DECLINED) ? NGX_OK : NGX_ERROR;
    }

    if (node.draining == (int64_t) change->closed) {
        action->result = NGX_MODELGW_CHANGE_KNOWN;
        return NGX_OK;
    }

    if (ngx_modelgw_store_node_once(s, "UPDATE nodes SET drain = (?2 = 1)"
                                       " WHERE num = ?1", &node,
                                    change->closed)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (change->closed) {
        ngx_str_set(&action->name, "node.drain");

    } else {
        ngx_str_set(&action->name, "node.rejoin");
    }

    ngx_modelgw_store_node_state(&action->before, node.state.data,
                                 node.state.len);

    if (change->closed) {
        ngx_modelgw_store_node_state(&action->after, "draining", 8);

    } else {
        ngx_modelgw_store_node_state(&action->after, "member", 6);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_node_write_off(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t                  rc;
    ngx_modelgw_out_t          out;
    ngx_modelgw_stmt_t         stmt;
    ngx_modelgw_store_node_t   node;

    rc = ngx_modelgw_store_node_find(s, change, &node);

    if (rc != NGX_OK) {
        action->result = NGX_MODELGW_CHANGE_MISSING;
        return (rc == NGX_DECLINED) ? NGX_OK : NGX_ERROR;
    }

    /* fenced before its leases are read */

    if (ngx_modelgw_store_node_once(s, "UPDATE nodes SET epoch = epoch + 1,"
                                       " process = '', state = 2"
                                       " WHERE num = ?1", &node, 0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_ready(s, "SELECT CAST(coalesce(sum("
                                   NGX_MODELGW_NODES_REST "), 0) AS BIGINT)"
                                   " FROM leases WHERE node = ?1"
                                   " AND account NOT LIKE '#%' AND "
                                   NGX_MODELGW_NODES_REST " > 0", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, node.num);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        change->amount = ngx_modelgw_stmt_int(&stmt, 0);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    if (rc != NGX_OK
        || (change->correction
            && ngx_modelgw_store_node_once(s, ngx_modelgw_store_nodes_charge,
                                           &node, 0)
               != NGX_OK)
        || ngx_modelgw_store_node_once(s, ngx_modelgw_store_nodes_force, &node,
                                       change->correction)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&action->name, "node.write_off");

    ngx_modelgw_store_node_state(&action->before, node.state.data,
                                 node.state.len);

    ngx_modelgw_store_text(&out, &action->after);
    ngx_modelgw_out_text(&out, "{\"state\":\"written off\",\"amount\":");
    ngx_modelgw_amount_out(&out, change->amount);

    if (change->correction) {
        ngx_modelgw_out_text(&out, ",\"charged\":true}");

    } else {
        ngx_modelgw_out_text(&out, ",\"charged\":false}");
    }

    return NGX_OK;
}


/*
 * NGX_OK        *node is set, and locked; change->owner is its name
 * NGX_DECLINED  there is no such node
 * NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_node_find(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_node_t *node)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    node->num = ngx_atoi(change->id.data, change->id.len);

    if (ngx_modelgw_store_ready(s, "SELECT CAST(drain AS INTEGER), name, "
                                   NGX_MODELGW_NODES_STATE
                                   " FROM nodes WHERE num = ?1 FOR UPDATE",
                                &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, node->num);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        node->draining = ngx_modelgw_stmt_int(&stmt, 0);

        ngx_modelgw_store_node_copy(&change->owner, &stmt, 1);
        ngx_modelgw_store_node_copy(&node->state, &stmt, 2);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


static void
ngx_modelgw_store_node_copy(ngx_modelgw_ledger_name_t *name,
    ngx_modelgw_stmt_t *stmt, ngx_uint_t column)
{
    ngx_str_t  text;

    ngx_modelgw_stmt_text(stmt, column, &text);

    name->len = ngx_min(text.len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(name->data, text.data, name->len);
}


/* ?1: the node's number */

static ngx_int_t
ngx_modelgw_store_node_once(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_store_node_t *node, int64_t second)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, node->num);
    ngx_modelgw_stmt_bind_int(&stmt, 2, second);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


static void
ngx_modelgw_store_node_state(ngx_modelgw_store_text_t *text, void *state,
    size_t len)
{
    ngx_str_t          word;
    ngx_modelgw_out_t  out;

    word.data = state;
    word.len = len;

    ngx_modelgw_store_text(&out, text);
    ngx_modelgw_out_text(&out, "{\"state\":");
    ngx_modelgw_out_string(&out, &word);
    ngx_modelgw_out_text(&out, "}");
}
