
/*
 * A call that a server of the upstream block has refused is sent to another.
 *
 * Servers, weights, backups, their failures and the number of tries are nginx's
 * concern.  But nginx never sends a POST again that a server may have read, and
 * rightly so: it would be billed twice.  What we know better is which answers
 * are free of charge: those of the group's "retry" line.
 *
 * nginx decides by u->conf->next_upstream when the header of an answer was
 * read.  So u->process_header is wrapped: for a refusal u->conf becomes a copy
 * that lets nginx try the next server after this status, also with what was
 * sent.  u->reinit_request, called before the next server gets the call, points
 * it back: a call that this one does not answer is not sent again.
 *
 *     tried     u->conf is the location's, retry->status is 0
 *     refused   u->conf is the copy, retry->status the server's; nginx looks
 *               for the next server.  If there is none, finalize_request() ends
 *               this, and the call has the refusal's status: it is free
 *
 * nginx's table of statuses has neither 529 nor 401, which are renamed for it;
 * the log gets the true ones back.
 *
 * A server that refuses is a failed one to nginx (max_fails), but for 401 and
 * 403.  If all were, nginx would answer without asking any of them, for
 * fail_timeout: so a refusal goes to the client unless there is another server
 * that nginx can use now.  The addresses of a name are one server: what it
 * refuses at one of them it refuses at all.
 *
 * Rejected: "proxy_next_upstream non_idempotent", which repeats calls after a
 * time-out as well.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"


struct ngx_http_modelgw_retry_s {
    ngx_http_upstream_conf_t      *conf;         /* of the location */
    ngx_http_upstream_conf_t      *copy;         /* NULL: none yet */
    ngx_http_upstream_srv_conf_t  *servers;
    ngx_chain_t                   *body;         /* after the header of the
                                                    request */
    ngx_uint_t                     state;        /* of the refusal, its place
                                                    in r->upstream_states */
    ngx_uint_t                     status;

    /* those of r->upstream, as they were */

    ngx_int_t                    (*process_header)(ngx_http_request_t *r);
    ngx_int_t                    (*reinit)(ngx_http_request_t *r);
    void                         (*finalize)(ngx_http_request_t *r,
                                             ngx_int_t rc);
    ngx_output_chain_filter_pt     output;
    void                          *output_ctx;
};


static ngx_int_t ngx_http_modelgw_retry_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_modelgw_retry_process_header(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_retry_possible(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_retry_another(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_uint_t ngx_http_modelgw_retry_another_locked(ngx_http_request_t *r,
    ngx_http_upstream_rr_peers_t *list);
static ngx_uint_t ngx_http_modelgw_retry_asked_locked(ngx_http_request_t *r,
    ngx_http_upstream_rr_peers_t *list, ngx_str_t *server);
static ngx_uint_t ngx_http_modelgw_retry_same(ngx_str_t *a, ngx_str_t *b);
static ngx_int_t ngx_http_modelgw_retry_next(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_refusal_t *refusal);
static ngx_int_t ngx_http_modelgw_retry_reinit(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_retry_output(void *data, ngx_chain_t *in);
static void ngx_http_modelgw_retry_finalize(ngx_http_request_t *r,
    ngx_int_t rc);
static void ngx_http_modelgw_retry_end(ngx_http_request_t *r,
    ngx_http_modelgw_retry_t *retry);


/*
 * The blocks are ready: nginx calls init_main_conf() of the upstream module
 * before that of a filter.  That peer.data is a list of nginx is known by the
 * name in it, which is that of the block until the list is put in a "zone".
 */

void
ngx_http_modelgw_retry_init(ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                      i;
    ngx_http_modelgw_group_t      **group;
    ngx_http_modelgw_srv_conf_t    *mscf;
    ngx_http_upstream_srv_conf_t   *us;
    ngx_http_upstream_rr_peers_t   *peers;

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {

        us = group[i]->servers;
        mscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_modelgw_module);

        if (group[i]->retry == 0 || mscf->peer_init) {
            continue;
        }

        peers = us->peer.data;

        mscf->balanced = (peers && peers->name == &us->host);
        mscf->peer_init = us->peer.init;
        us->peer.init = ngx_http_modelgw_retry_peer;
    }
}


/* the proxy module has made the request; no server was chosen yet */

static ngx_int_t
ngx_http_modelgw_retry_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_http_upstream_t          *u;
    ngx_http_modelgw_ctx_t       *ctx;
    ngx_http_modelgw_retry_t     *retry;
    ngx_http_modelgw_srv_conf_t  *mscf;

    mscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_modelgw_module);

    if (mscf->peer_init(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    u = r->upstream;
    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    /* HTTP/2 to upstreams, of nginx 1.29.4, has frames in another filter */

    if (u->peer.tries < 2
        || u->output.output_filter != ngx_chain_writer
        || r != r->main
        || ctx == NULL
        || ctx->state != NGX_HTTP_MODELGW_FORWARDED
        || ngx_http_modelgw_ctx_group(ctx)->retry == 0
        || (u->conf->next_upstream & NGX_HTTP_UPSTREAM_FT_OFF))
    {
        return NGX_OK;
    }

    retry = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_retry_t));
    if (retry == NULL) {
        return NGX_ERROR;
    }

    retry->conf = u->conf;
    retry->servers = us;
    retry->body = u->request_bufs->next;

    retry->process_header = u->process_header;
    retry->reinit = u->reinit_request;
    retry->finalize = u->finalize_request;

    u->process_header = ngx_http_modelgw_retry_process_header;
    u->reinit_request = ngx_http_modelgw_retry_reinit;
    u->finalize_request = ngx_http_modelgw_retry_finalize;

    ctx->upstream.retry = retry;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_retry_process_header(ngx_http_request_t *r)
{
    ngx_int_t                    rc;
    ngx_http_upstream_t         *u;
    ngx_http_modelgw_ctx_t      *ctx;
    ngx_http_modelgw_retry_t    *retry;
    ngx_http_modelgw_refusal_t  *refusal;

    u = r->upstream;
    ctx = ngx_http_modelgw_get_ctx(r);
    retry = ctx->upstream.retry;

    u->process_header = retry->process_header;

    rc = u->process_header(r);

    /* the proxy module has set another one after the status line */

    retry->process_header = u->process_header;
    u->process_header = ngx_http_modelgw_retry_process_header;

    if (rc != NGX_OK) {
        return rc;
    }

    refusal = ngx_http_modelgw_group_refusal(ngx_http_modelgw_ctx_group(ctx),
                                             u->headers_in.status_n);

    if (refusal == NULL || !ngx_http_modelgw_retry_possible(r, ctx)) {
        return NGX_OK;
    }

    return ngx_http_modelgw_retry_next(r, ctx, refusal);
}


/*
 * The checks of ngx_http_upstream_test_next(), and ours: a client that has left
 * needs no answer.
 */

static ngx_uint_t
ngx_http_modelgw_retry_possible(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_msec_t            timeout;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    timeout = u->conf->next_upstream_timeout;

    return u->peer.tries > 1
           && !(timeout && ngx_current_msec - u->peer.start_time >= timeout)
           && !r->request_body_no_buffering
           && !r->connection->error
           && ngx_http_modelgw_retry_another(r, ctx->upstream.retry->servers);
}


/* whether nginx can use another server now; 1 if we cannot know */

static ngx_uint_t
ngx_http_modelgw_retry_another(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_uint_t                     another;
    ngx_http_modelgw_srv_conf_t   *mscf;
    ngx_http_upstream_rr_peers_t  *list, *backup;

    mscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_modelgw_module);

    if (!mscf->balanced) {
        return 1;
    }

    list = us->peer.data;
    backup = list->next;

    ngx_http_upstream_rr_peers_rlock(list);

    if (backup) {
        ngx_http_upstream_rr_peers_rlock(backup);
    }

    another = ngx_http_modelgw_retry_another_locked(r, list);

    if (backup) {
        ngx_http_upstream_rr_peers_unlock(backup);
    }

    ngx_http_upstream_rr_peers_unlock(list);

    return another;
}


/* as in ngx_http_upstream_get_peer() */

static ngx_uint_t
ngx_http_modelgw_retry_another_locked(ngx_http_request_t *r,
    ngx_http_upstream_rr_peers_t *list)
{
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    for (peers = list; peers; peers = peers->next) {

        for (peer = peers->peer; peer; peer = peer->next) {

            if (peer->down
                || (peer->max_conns && peer->conns >= peer->max_conns)
                || (peer->max_fails
                    && peer->fails >= peer->max_fails
                    && ngx_time() - peer->checked <= peer->fail_timeout))
            {
                continue;
            }

            if (!ngx_http_modelgw_retry_asked_locked(r, list, &peer->server)) {
                return 1;
            }
        }
    }

    return 0;
}


/* whether one of the addresses of a server had the call */

static ngx_uint_t
ngx_http_modelgw_retry_asked_locked(ngx_http_request_t *r,
    ngx_http_upstream_rr_peers_t *list, ngx_str_t *server)
{
    ngx_uint_t                     i;
    ngx_http_upstream_state_t     *state;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    state = r->upstream_states->elts;

    for (peers = list; peers; peers = peers->next) {

        for (peer = peers->peer; peer; peer = peer->next) {

            if (!ngx_http_modelgw_retry_same(&peer->server, server)) {
                continue;
            }

            for (i = 0; i < r->upstream_states->nelts; i++) {

                if (state[i].peer
                    && ngx_http_modelgw_retry_same(state[i].peer, &peer->name))
                {
                    return 1;
                }
            }
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_modelgw_retry_same(ngx_str_t *a, ngx_str_t *b)
{
    return a->len == b->len && ngx_memcmp(a->data, b->data, a->len) == 0;
}


static ngx_int_t
ngx_http_modelgw_retry_next(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_refusal_t *refusal)
{
    ngx_http_upstream_t       *u;
    ngx_http_modelgw_retry_t  *retry;

    u = r->upstream;
    retry = ctx->upstream.retry;

    if (retry->copy == NULL) {
        retry->copy = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));
        if (retry->copy == NULL) {
            return NGX_ERROR;
        }
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "server %V of group \"%V\" refused with %ui, the next one "
                  "is tried", u->peer.name,
                  &ngx_http_modelgw_ctx_group(ctx)->name, refusal->status);

    *retry->copy = *retry->conf;
    retry->copy->next_upstream |= NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT
                                  |refusal->mask;

    retry->state = r->upstream_states->nelts - 1;
    retry->status = refusal->status;

    u->conf = retry->copy;
    u->headers_in.status_n = refusal->as;

    /*
     * a server may refuse before it was asked: nginx calls reinit_request only
     * after a request that it has sent
     */

    u->request_sent = 1;

    ngx_http_modelgw_settle_status(ctx, refusal->status);

    return NGX_OK;
}


/*
 * nginx rewinds the request next: memory to the start of its bufs, and a file
 * as if all of it was sent.  But a body with bytes replaced is parts of both,
 * so the header goes alone, and the body is added as it leaves.
 */

static ngx_int_t
ngx_http_modelgw_retry_reinit(ngx_http_request_t *r)
{
    ngx_http_upstream_t       *u;
    ngx_http_modelgw_ctx_t    *ctx;
    ngx_http_modelgw_retry_t  *retry;

    u = r->upstream;
    ctx = ngx_http_modelgw_get_ctx(r);
    retry = ctx->upstream.retry;

    if (retry->reinit(r) != NGX_OK) {
        return NGX_ERROR;
    }

    retry->process_header = u->process_header;
    u->process_header = ngx_http_modelgw_retry_process_header;

    ngx_http_modelgw_retry_end(r, retry);

    u->request_bufs->next = NULL;

    retry->output = u->output.output_filter;
    retry->output_ctx = u->output.filter_ctx;

    u->output.output_filter = ngx_http_modelgw_retry_output;
    u->output.filter_ctx = r;

    return NGX_OK;
}


/*
 * ngx_output_chain() passes on a single buf in memory at once: its context is
 * as it was.  The proxy module has sent copies of the bufs, and only these have
 * its flags.
 */

static ngx_int_t
ngx_http_modelgw_retry_output(void *data, ngx_chain_t *in)
{
    ngx_http_request_t *r = data;

    ngx_chain_t               *cl, *ln;
    ngx_http_upstream_t       *u;
    ngx_http_modelgw_ctx_t    *ctx;
    ngx_http_modelgw_retry_t  *retry;

    u = r->upstream;
    ctx = ngx_http_modelgw_get_ctx(r);
    retry = ctx->upstream.retry;

    u->output.output_filter = retry->output;
    u->output.filter_ctx = retry->output_ctx;

    /* from here on the next server may get it: it is no longer refused */
    ngx_http_modelgw_settle_status(ctx, 0);

    ln = r->request_body->bufs;

    for (cl = retry->body; cl && ln; cl = cl->next, ln = ln->next) {
        cl->buf->pos = ln->buf->pos;
        cl->buf->file_pos = ln->buf->file_pos;
    }

    u->request_bufs->next = retry->body;

    return ngx_output_chain(&u->output, u->request_bufs);
}


static void
ngx_http_modelgw_retry_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_modelgw_ctx_t    *ctx;
    ngx_http_modelgw_retry_t  *retry;

    ctx = ngx_http_modelgw_get_ctx(r);
    retry = ctx->upstream.retry;

    ngx_http_modelgw_retry_end(r, retry);

    retry->finalize(r, rc);
}


static void
ngx_http_modelgw_retry_end(ngx_http_request_t *r,
    ngx_http_modelgw_retry_t *retry)
{
    ngx_http_upstream_state_t  *us;

    if (retry->status == 0) {
        return;
    }

    us = r->upstream_states->elts;
    us[retry->state].status = retry->status;

    r->upstream->conf = retry->conf;
    retry->status = 0;
}
