
/*
 * Usage and cost over two pipes, for test_cost.py.
 *
 * in:   "<protocol> <input> <output> <cache_read> <cache_write>
 *       <cache_write_1h> <length>\n" and so many bytes of a JSON document; the
 *       protocol is "chat" or "messages", the numbers are prices in pico-euro a
 *       token.  The documents of a call follow each other: "more" in place of a
 *       protocol keeps the usage of the one before
 * out:  one line: the outcome and the cost in nano-euro, as a charge by that
 *       usage without a hold, and the tokens it is for: input, cache_read,
 *       cache_write, cache_write_1h, output, reasoning
 */


#include "stub.h"

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_skip.h"


typedef struct {
    ngx_uint_t            protocol;
    ngx_modelgw_usage_t   usage;
    ngx_modelgw_price_t   price;
} cost_call_t;


static void *
need(void *p)
{
    if (p == NULL) {
        exit(3);
    }

    return p;
}


static void
scan(cost_call_t *call, u_char *doc, size_t len)
{
    ngx_pool_t                  *pool;
    ngx_uint_t                   n;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_scan_conf_t      conf;
    ngx_modelgw_skip_variant_t  *variants;

    variants = ngx_modelgw_skip_variants(&n);
    ngx_modelgw_usage_conf(&conf, call->protocol, variants[0].skip);

    pool = need(stub_pool_create());
    s = need(ngx_modelgw_scan_create(pool, &conf));

    if (ngx_modelgw_scan_feed(s, doc, len) != NGX_OK
        || ngx_modelgw_scan_done(s) != NGX_OK)
    {
        exit(4);
    }

    (void) ngx_modelgw_usage_merge(&call->usage, call->protocol, s);

    ngx_destroy_pool(pool);
}


static void
answer(cost_call_t *call)
{
    ngx_modelgw_seen_t     seen;
    ngx_modelgw_charge_t   charge;

    ngx_modelgw_usage_end(&call->usage, call->protocol);

    ngx_modelgw_seen_init(&seen);
    ngx_modelgw_seen_usage(&seen, &call->usage);
    seen.status = 200;

    ngx_modelgw_charge(&call->price, INT64_MAX, 1, &seen, &charge);

    if (charge.cost != ngx_modelgw_cost(&call->price, &charge.tokens)) {
        exit(5);
    }

    printf("%s %ld %ld %ld %ld %ld %ld %ld\n",
           ngx_modelgw_outcome_name(charge.outcome), (long) charge.cost,
           (long) charge.tokens.input, (long) charge.tokens.cache_read,
           (long) charge.tokens.cache_write,
           (long) charge.tokens.cache_write_1h, (long) charge.tokens.output,
           (long) charge.tokens.reasoning);
}


int
main(void)
{
    char                  word[16];
    size_t                len;
    u_char               *doc;
    cost_call_t           call;
    ngx_modelgw_price_t  *p;

    ngx_memzero(&call, sizeof(call));
    p = &call.price;

    while (scanf("%15s %lu %lu %lu %lu %lu %zu", word, &p->input, &p->output,
                 &p->cache_read, &p->cache_write, &p->cache_write_1h, &len)
           == 7)
    {
        doc = need(malloc(len + 1));

        if (getchar() != '\n' || fread(doc, 1, len, stdin) != len) {
            return 3;
        }

        if (strcmp(word, "more") != 0) {
            call.protocol = (strcmp(word, "chat") == 0) ? NGX_MODELGW_CHAT
                                                        : NGX_MODELGW_MESSAGES;
            ngx_modelgw_usage_init(&call.usage);
        }

        scan(&call, doc, len);
        answer(&call);
        free(doc);
    }

    return 0;
}
