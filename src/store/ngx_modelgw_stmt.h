
/*
 * A statement of operators: their queries and changes.
 *
 * A statement is prepared, its parameters are bound, its rows are read, and it
 * is finalized, also after a failure.  What is bound must not change until
 * then.  A parameter that is not bound is NULL, and one that the statement does
 * not have is ignored.
 */


#ifndef _NGX_MODELGW_STMT_H_INCLUDED_
#define _NGX_MODELGW_STMT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <sqlite3.h>

#include "ngx_modelgw_pq.h"
#include "ngx_modelgw_store.h"


#define NGX_MODELGW_STMT_NODE  16        /* the last parameter, of PostgreSQL
                                            only: the store's node */

typedef struct {
    ngx_modelgw_store_t         *store;
    sqlite3_stmt                *sqlite; /* NULL: of PostgreSQL */

    const char                  *sql;
    ngx_modelgw_pq_result_t     *result;
    ngx_uint_t                   row;
    ngx_uint_t                   rows;
    ngx_uint_t                   cursor;     /* its number; 0: none */
    ngx_uint_t                   executed;
    ngx_uint_t                   more;       /* to be fetched, maybe */
    ngx_uint_t                   invalid;    /* a text is not UTF-8 */
    ngx_modelgw_pq_param_t       params[NGX_MODELGW_STMT_NODE + 1];
    u_char                       numbers[NGX_MODELGW_STMT_NODE + 1]
                                        [sizeof(int64_t)];
} ngx_modelgw_stmt_t;


/* NGX_OK, NGX_ERROR (s->error is set; there is nothing to finalize) */
ngx_int_t ngx_modelgw_stmt_prepare(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_stmt_t *stmt);

/* i: 1 to 15.  _bind_str() binds NULL for a string of no bytes. */
void ngx_modelgw_stmt_bind_int(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    int64_t n);
void ngx_modelgw_stmt_bind_text(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    u_char *data, size_t len);
void ngx_modelgw_stmt_bind_blob(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    u_char *data, size_t len);
void ngx_modelgw_stmt_bind_str(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    ngx_str_t *str);
void ngx_modelgw_stmt_bind_name(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    ngx_modelgw_ledger_name_t *name);

/*
 * Reads the next row.
 *     NGX_OK, NGX_DONE (there is none, or no more), NGX_ERROR (s->error is set)
 */
ngx_int_t ngx_modelgw_stmt_next(ngx_modelgw_stmt_t *stmt);

/* After NGX_DONE: the number of rows that the statement has changed. */
ngx_uint_t ngx_modelgw_stmt_changes(ngx_modelgw_stmt_t *stmt);

/*
 * The columns of a row, from 0 on.  Of NULL the number is 0 and the string
 * empty.  A string is valid until the statement goes on.
 */
ngx_uint_t ngx_modelgw_stmt_null(ngx_modelgw_stmt_t *stmt, ngx_uint_t i);
int64_t ngx_modelgw_stmt_int(ngx_modelgw_stmt_t *stmt, ngx_uint_t i);
void ngx_modelgw_stmt_text(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    ngx_str_t *text);
void ngx_modelgw_stmt_blob(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    ngx_str_t *bytes);

/* One of zeros, which was not prepared, may be finalized, too. */
void ngx_modelgw_stmt_finalize(ngx_modelgw_stmt_t *stmt);


#endif /* _NGX_MODELGW_STMT_H_INCLUDED_ */
