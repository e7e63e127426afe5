
/*
 * What the workers share about sign-ins to the admin interface: the secret of
 * sessions, tokens that have signed out, and failed attempts.
 *
 * A session is a signed cookie, see src/key/ngx_modelgw_session.h, and nothing
 * is kept of it.  So signing out must be remembered until the session expires.
 * It ends all sessions of the token, and a token has one record, so that no
 * client can push out those of others.  There is room for 1024 tokens within 12
 * hours; of more the one that signed out first is forgotten.
 *
 * The secret is made when nginx starts: a restart ends all sessions, a reload
 * none.
 *
 * Attempts are counted by address, of IPv6 by its first 64 bits, which one
 * client has.  Both arrays are short, and read for sign-ins and by operators
 * only: they are walked.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_session.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_SESSIONS_ENDED     1024
#define NGX_HTTP_MODELGW_SESSIONS_FAILURES  1024

#define NGX_HTTP_MODELGW_SESSIONS_ATTEMPTS  10   /* that fail, of an address */
#define NGX_HTTP_MODELGW_SESSIONS_WINDOW    60   /* seconds */


typedef struct {
    u_char                             digest[NGX_MODELGW_KEY_DIGEST];
    uint64_t                           expires;  /* of the last session that was
                                                    ended; 0: free */
} ngx_http_modelgw_ended_t;


typedef struct {
    u_char                             address[8];
    time_t                             since;    /* of the window; 0: free */
    ngx_uint_t                         n;
} ngx_http_modelgw_failures_t;


typedef struct {
    u_char                             secret[NGX_MODELGW_SESSION_SECRET];
    ngx_http_modelgw_ended_t           ended[NGX_HTTP_MODELGW_SESSIONS_ENDED];
    ngx_http_modelgw_failures_t
                               failures[NGX_HTTP_MODELGW_SESSIONS_FAILURES];
} ngx_http_modelgw_sessions_t;


static ngx_int_t ngx_http_modelgw_sessions_init(ngx_shm_zone_t *zone,
    void *data);
static ngx_http_modelgw_ended_t *ngx_http_modelgw_sessions_ended(
    ngx_http_modelgw_sessions_t *sessions, u_char *digest);
static uint64_t ngx_http_modelgw_sessions_now(void);
static ngx_http_modelgw_sessions_t *ngx_http_modelgw_sessions_lock(
    ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_sessions_unlock(
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_http_modelgw_failures_t *ngx_http_modelgw_sessions_failures(
    ngx_http_modelgw_sessions_t *sessions, struct sockaddr *sockaddr);


ngx_int_t
ngx_http_modelgw_sessions_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    size_t     size;
    ngx_str_t  name = ngx_string("modelgw_sessions");

    if (mmcf->operators == NULL) {
        return NGX_OK;
    }

    /* with what the slab pool itself needs */

    size = ngx_align(sizeof(ngx_http_modelgw_sessions_t), ngx_pagesize)
           + 8 * ngx_pagesize;

    mmcf->sessions_zone = ngx_shared_memory_add(cf, &name, size,
                                                &ngx_http_modelgw_module);
    if (mmcf->sessions_zone == NULL) {
        return NGX_ERROR;
    }

    mmcf->sessions_zone->init = ngx_http_modelgw_sessions_init;
    mmcf->sessions_zone->data = mmcf;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_sessions_init(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t              *shpool;
    ngx_http_modelgw_sessions_t  *sessions;

    if (data) {
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    sessions = ngx_slab_calloc(shpool, sizeof(ngx_http_modelgw_sessions_t));
    if (sessions == NULL) {
        return NGX_ERROR;
    }

    shpool->data = sessions;

    return ngx_modelgw_key_random(sessions->secret,
                                  NGX_MODELGW_SESSION_SECRET);
}


ngx_int_t
ngx_http_modelgw_sessions_write(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_session_t *session, u_char *text)
{
    ngx_http_modelgw_ended_t     *ended;
    ngx_http_modelgw_sessions_t  *sessions;

    session->expires = ngx_http_modelgw_sessions_now()
                       + NGX_HTTP_MODELGW_SESSION_TIME * 1000;

    sessions = ngx_http_modelgw_sessions_lock(mmcf);

    ended = ngx_http_modelgw_sessions_ended(sessions, session->digest);

    /* the clock of a worker may be some milliseconds late */

    if (ended && session->expires <= ended->expires) {
        session->expires = ended->expires + 1;
    }

    ngx_http_modelgw_sessions_unlock(mmcf);

    return ngx_modelgw_session_write(sessions->secret, session, text);
}


ngx_int_t
ngx_http_modelgw_sessions_read(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *text, ngx_modelgw_session_t *session)
{
    ngx_int_t                     rc;
    ngx_slab_pool_t              *shpool;
    ngx_http_modelgw_ended_t     *ended;
    ngx_http_modelgw_sessions_t  *sessions;

    shpool = (ngx_slab_pool_t *) mmcf->sessions_zone->shm.addr;
    sessions = shpool->data;

    /* the secret never changes */

    rc = ngx_modelgw_session_read(sessions->secret, text,
                                  ngx_http_modelgw_sessions_now(), session);
    if (rc != NGX_OK) {
        return rc;
    }

    (void) ngx_http_modelgw_sessions_lock(mmcf);

    ended = ngx_http_modelgw_sessions_ended(sessions, session->digest);

    if (ended && session->expires <= ended->expires) {
        rc = NGX_DECLINED;
    }

    ngx_http_modelgw_sessions_unlock(mmcf);

    return rc;
}


void
ngx_http_modelgw_sessions_end(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_session_t *session)
{
    uint64_t                      last;
    ngx_uint_t                    i;
    ngx_http_modelgw_ended_t     *ended;
    ngx_http_modelgw_sessions_t  *sessions;

    sessions = ngx_http_modelgw_sessions_lock(mmcf);

    ended = ngx_http_modelgw_sessions_ended(sessions, session->digest);

    if (ended == NULL) {
        ended = sessions->ended;

        for (i = 1; i < NGX_HTTP_MODELGW_SESSIONS_ENDED; i++) {

            if (sessions->ended[i].expires < ended->expires) {
                ended = &sessions->ended[i];
            }
        }

        ngx_memcpy(ended->digest, session->digest, NGX_MODELGW_KEY_DIGEST);
        ended->expires = 0;
    }

    last = ngx_http_modelgw_sessions_now()
           + NGX_HTTP_MODELGW_SESSION_TIME * 1000;

    ended->expires = ngx_max(ended->expires, last);
    ended->expires = ngx_max(ended->expires, session->expires);

    ngx_http_modelgw_sessions_unlock(mmcf);
}


/* returns the record of a token that has signed out, or NULL */

static ngx_http_modelgw_ended_t *
ngx_http_modelgw_sessions_ended(ngx_http_modelgw_sessions_t *sessions,
    u_char *digest)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_MODELGW_SESSIONS_ENDED; i++) {

        if (sessions->ended[i].expires
            && ngx_memcmp(sessions->ended[i].digest, digest,
                          NGX_MODELGW_KEY_DIGEST)
               == 0)
        {
            return &sessions->ended[i];
        }
    }

    return NULL;
}


static uint64_t
ngx_http_modelgw_sessions_now(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 + tp->msec;
}


time_t
ngx_http_modelgw_sessions_wait(ngx_http_modelgw_main_conf_t *mmcf,
    struct sockaddr *sockaddr)
{
    time_t                        wait;
    ngx_http_modelgw_failures_t  *f;

    f = ngx_http_modelgw_sessions_failures(
                                       ngx_http_modelgw_sessions_lock(mmcf),
                                       sockaddr);

    wait = (f->n < NGX_HTTP_MODELGW_SESSIONS_ATTEMPTS)
           ? 0
           : f->since + NGX_HTTP_MODELGW_SESSIONS_WINDOW - ngx_time();

    ngx_http_modelgw_sessions_unlock(mmcf);

    return ngx_max(wait, 0);
}


void
ngx_http_modelgw_sessions_failed(ngx_http_modelgw_main_conf_t *mmcf,
    struct sockaddr *sockaddr)
{
    ngx_http_modelgw_failures_t  *f;

    f = ngx_http_modelgw_sessions_failures(
                                       ngx_http_modelgw_sessions_lock(mmcf),
                                       sockaddr);

    if (f->n++ == 0) {
        f->since = ngx_time();
    }

    ngx_http_modelgw_sessions_unlock(mmcf);
}


static ngx_http_modelgw_sessions_t *
ngx_http_modelgw_sessions_lock(ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_slab_pool_t  *shpool;

    shpool = (ngx_slab_pool_t *) mmcf->sessions_zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    return shpool->data;
}


static void
ngx_http_modelgw_sessions_unlock(ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_slab_pool_t  *shpool;

    shpool = (ngx_slab_pool_t *) mmcf->sessions_zone->shm.addr;

    ngx_shmtx_unlock(&shpool->mutex);
}


/*
 * Returns the record of the address, or makes one of that which is the oldest.
 * An IPv4 address has a prefix that no IPv6 address has (RFC 6890: 100::/64 is
 * discarded).
 */

static ngx_http_modelgw_failures_t *
ngx_http_modelgw_sessions_failures(ngx_http_modelgw_sessions_t *sessions,
    struct sockaddr *sockaddr)
{
    time_t                        age;
    u_char                        address[8];
    ngx_uint_t                    i;
    struct sockaddr_in           *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6          *sin6;
#endif
    ngx_http_modelgw_failures_t  *f, *oldest;

    ngx_memcpy(address, "\1\0\0\0\0\0\0\0", 8);

    switch (sockaddr->sa_family) {

    case AF_INET:
        sin = (struct sockaddr_in *) sockaddr;
        ngx_memcpy(address + 4, &sin->sin_addr, 4);
        break;

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) sockaddr;

        if (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr)) {
            ngx_memcpy(address + 4, sin6->sin6_addr.s6_addr + 12, 4);

        } else {
            ngx_memcpy(address, sin6->sin6_addr.s6_addr, 8);
        }

        break;
#endif
    }

    oldest = sessions->failures;

    for (i = 0; i < NGX_HTTP_MODELGW_SESSIONS_FAILURES; i++) {
        f = &sessions->failures[i];

        if (f->since && ngx_memcmp(f->address, address, 8) == 0) {
            oldest = f;
            break;
        }

        if (f->since < oldest->since) {
            oldest = f;
        }
    }

    /* it is negative if the clock was set back */

    age = ngx_time() - oldest->since;

    if (i == NGX_HTTP_MODELGW_SESSIONS_FAILURES
        || age < 0
        || age >= NGX_HTTP_MODELGW_SESSIONS_WINDOW)
    {
        ngx_memcpy(oldest->address, address, 8);
        oldest->n = 0;
    }

    return oldest;
}
