
/*
 * Text of statements that sum up calls, of SQLite and of PostgreSQL.
 */


#ifndef _NGX_MODELGW_STORE_SUMS_H_INCLUDED_
#define _NGX_MODELGW_STORE_SUMS_H_INCLUDED_


/*
 * The sums that "hours" and "days" have of calls: their columns, what they are
 * of rows of "calls", and how they are added to a row that exists.
 */

#define NGX_MODELGW_STORE_SUMS                                                \
    " calls, errors, input, cache_read, cache_write, cache_write_1h, output," \
    " reasoning, cost, duration, first_bytes, first_byte "

#define NGX_MODELGW_STORE_SUMS_OF_CALLS                                       \
    " count(*) AS calls,"                                                     \
    " sum(CASE WHEN status BETWEEN 200 AND 299 THEN 0 ELSE 1 END) AS errors," \
    " sum(input) AS input, sum(cache_read) AS cache_read,"                    \
    " sum(cache_write) AS cache_write,"                                       \
    " sum(cache_write_1h) AS cache_write_1h, sum(output) AS output,"          \
    " sum(reasoning) AS reasoning, sum(cost) AS cost,"                        \
    " sum(ended - time) AS duration, count(first_byte) AS first_bytes,"       \
    " coalesce(sum(first_byte), 0) AS first_byte "

/* the same, not summed up: what a row of "calls" adds to each */

#define NGX_MODELGW_STORE_SUMS_OF_CALL                                        \
    " 1, CASE WHEN status BETWEEN 200 AND 299 THEN 0 ELSE 1 END, input,"      \
    " cache_read, cache_write, cache_write_1h, output, reasoning, cost,"      \
    " ended - time, CASE WHEN first_byte IS NULL THEN 0 ELSE 1 END,"          \
    " coalesce(first_byte, 0) "

#define ngx_modelgw_store_sums_set(to, sign, from)                            \
    " calls = " to "calls " sign from "calls,"                                \
    " errors = " to "errors " sign from "errors,"                             \
    " input = " to "input " sign from "input,"                                \
    " cache_read = " to "cache_read " sign from "cache_read,"                 \
    " cache_write = " to "cache_write " sign from "cache_write,"              \
    " cache_write_1h = " to "cache_write_1h " sign from "cache_write_1h,"     \
    " output = " to "output " sign from "output,"                             \
    " reasoning = " to "reasoning " sign from "reasoning,"                    \
    " cost = " to "cost " sign from "cost,"                                   \
    " duration = " to "duration " sign from "duration,"                       \
    " first_bytes = " to "first_bytes " sign from "first_bytes,"              \
    " first_byte = " to "first_byte " sign from "first_byte "


#endif /* _NGX_MODELGW_STORE_SUMS_H_INCLUDED_ */
