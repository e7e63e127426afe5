
/*
 * Loading libpq, and connecting.
 *
 * libpq is loaded by dlopen(), into a table of functions that have the types of
 * the build's libpq-fe.h.  It is never unloaded.
 *
 * libpq applies connect_timeout in its blocking functions only, and there goes
 * on to the next host when it has passed.  So hosts of a list are tried here,
 * one at a time: one that is silent must not hide those after it.
 *
 * Rejected: linking libpq (it needs the libraries of Kerberos and LDAP, for an
 * nginx that has no cluster).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>

#include "ngx_modelgw_pq_private.h"


#define NGX_MODELGW_PQ_LIBRARY     "libpq.so.5"
#define NGX_MODELGW_PQ_VERSION     140000  /* pipelines are new in 14 */
#define NGX_MODELGW_PQ_OPTIONS     80    /* of a connection; libpq has 45 */
#define NGX_MODELGW_PQ_HOST        256   /* bytes of a name, address or path */
#define NGX_MODELGW_PQ_PASSWORD    1024  /* bytes */

#define ngx_modelgw_pq_entry(name)                                            \
    { #name, offsetof(ngx_modelgw_pq_library_t, name) },


typedef struct {
    const char           *name;
    size_t                offset;
} ngx_modelgw_pq_function_t;


typedef struct {
    const char           *keywords[NGX_MODELGW_PQ_OPTIONS];
    const char           *values[NGX_MODELGW_PQ_OPTIONS];
    ngx_uint_t            n;
    char                  host[NGX_MODELGW_PQ_HOST];
    char                  address[NGX_MODELGW_PQ_HOST];
    char                  port[NGX_MODELGW_PQ_HOST];
    char                  password[NGX_MODELGW_PQ_PASSWORD]; /* "": none */
} ngx_modelgw_pq_target_t;


typedef struct {
    const char           *name;
    const char           *value;
} ngx_modelgw_pq_option_t;


static ngx_int_t ngx_modelgw_pq_parse(ngx_modelgw_pq_conf_t *conf,
    PQconninfoOption **options, ngx_modelgw_pq_error_t *error);
static const char *ngx_modelgw_pq_parse_error(const char *conninfo,
    const char *text);
static ngx_int_t ngx_modelgw_pq_check_options(PQconninfoOption *options,
    ngx_modelgw_pq_error_t *error);
static char *ngx_modelgw_pq_option(PQconninfoOption *options,
    const char *name);
static ngx_uint_t ngx_modelgw_pq_hosts(PQconninfoOption *options);
static ngx_uint_t ngx_modelgw_pq_elements(const char *list);
static ngx_int_t ngx_modelgw_pq_element(const char *list, ngx_uint_t i,
    char *buf);
static ngx_uint_t ngx_modelgw_pq_local(const char *host);
static ngx_int_t ngx_modelgw_pq_password(ngx_modelgw_pq_conf_t *conf,
    char *buf, ngx_modelgw_pq_error_t *error);
static void ngx_modelgw_pq_target(ngx_modelgw_pq_target_t *t,
    ngx_modelgw_pq_conf_t *conf, PQconninfoOption *options, ngx_uint_t i);
static void ngx_modelgw_pq_target_add(ngx_modelgw_pq_target_t *t,
    const char *name, const char *value);
static void ngx_modelgw_pq_connect_any(ngx_modelgw_pq_t *pq,
    ngx_modelgw_pq_conf_t *conf, PQconninfoOption *options,
    ngx_modelgw_pq_target_t *t, uint64_t deadline,
    ngx_modelgw_pq_error_t *error);
static ngx_int_t ngx_modelgw_pq_open(ngx_modelgw_pq_t *pq,
    ngx_modelgw_pq_target_t *t, uint64_t deadline,
    ngx_modelgw_pq_error_t *error);
static void ngx_modelgw_pq_notice(void *data, const PGresult *result);


ngx_modelgw_pq_library_t   ngx_modelgw_pq_library;

static void               *ngx_modelgw_pq_handle;


static const ngx_modelgw_pq_function_t  ngx_modelgw_pq_functions[] = {
    NGX_MODELGW_PQ_FUNCTIONS(ngx_modelgw_pq_entry)
};


/*
 * If the conninfo does not say otherwise.  The books are in the server that can
 * be written to.  GSSAPI would ask a key distribution center, and wait for it.
 */

static const ngx_modelgw_pq_option_t  ngx_modelgw_pq_defaults[] = {
    { "connect_timeout", "5" },
    { "keepalives_idle", "10" },
    { "tcp_user_timeout", "10000" },
    { "target_session_attrs", "read-write" },
    { "gssencmode", "disable" }
};


/* what a conninfo must not have, and why */

static const ngx_modelgw_pq_option_t  ngx_modelgw_pq_refused[] = {
    { "password", "has a password, which is to be put into a file, named by"
                  " password=file:/path" },
    { "sslpassword", "has a password of the client's key; use a key without"
                     " one" },
    { "service", "names a service, whose file could have a password or another"
                 " host" }
};


/*
 * Plans are kept: with default planning each statement of an account cost
 * 0.6 to 1.3 ms, as it was planned again.  They may be made while tables are
 * small, and must do for large ones: no scan of a table, nor of a bitmap, which
 * has no order, so that all rows would be sorted for the first ones.  What a
 * scan of a table is said to cost without them would have each statement
 * compiled (jit), for a second.  A process that hangs within a transaction must
 * not hold its locks.
 */

static const char  ngx_modelgw_pq_settings[] =
    "SET plan_cache_mode = force_generic_plan;"
    "SET enable_seqscan = off;"
    "SET enable_bitmapscan = off;"
    "SET jit = off;"
    "SET statement_timeout = 0;"
    "SET idle_in_transaction_session_timeout = '10s';"
    "SET search_path = modelgw;"
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL"
        " READ COMMITTED";


ngx_int_t
ngx_modelgw_pq_load(ngx_modelgw_pq_error_t *error)
{
    void        *handle, *function;
    ngx_uint_t   i;

    if (ngx_modelgw_pq_handle) {
        return NGX_OK;
    }

    handle = dlopen(NGX_MODELGW_PQ_LIBRARY, RTLD_NOW|RTLD_LOCAL);
    if (handle == NULL) {
        ngx_modelgw_pq_set_error(error, "%s (Debian: apt-get install libpq5)",
                                 dlerror());
        return NGX_ERROR;
    }

    for (i = 0; i < sizeof(ngx_modelgw_pq_functions)
                    / sizeof(ngx_modelgw_pq_function_t); i++)
    {
        function = dlsym(handle, ngx_modelgw_pq_functions[i].name);
        if (function == NULL) {
            ngx_modelgw_pq_set_error(error, NGX_MODELGW_PQ_LIBRARY " has no"
                                     " %s(), version 14 is needed",
                                     ngx_modelgw_pq_functions[i].name);
            goto failed;
        }

        ngx_memcpy((u_char *) &libpq + ngx_modelgw_pq_functions[i].offset,
                   &function, sizeof(function));
    }

    if (libpq.PQlibVersion() < NGX_MODELGW_PQ_VERSION) {
        ngx_modelgw_pq_set_error(error, NGX_MODELGW_PQ_LIBRARY " is of version"
                                 " %i, 14 is needed",
                                 (ngx_int_t) libpq.PQlibVersion() / 10000);
        goto failed;
    }

    /* nginx has done it */

    libpq.PQinitOpenSSL(0, 0);

    ngx_modelgw_pq_handle = handle;

    return NGX_OK;

failed:

    dlclose(handle);

    return NGX_ERROR;
}


ngx_int_t
ngx_modelgw_pq_check(ngx_modelgw_pq_conf_t *conf,
    ngx_modelgw_pq_error_t *error)
{
    struct stat        st;
    PQconninfoOption  *options;

    if (ngx_modelgw_pq_load(error) != NGX_OK
        || ngx_modelgw_pq_parse(conf, &options, error) != NGX_OK)
    {
        return NGX_ERROR;
    }

    libpq.PQconninfoFree(options);

    if (conf->password == NULL) {
        return NGX_OK;
    }

    if (stat(conf->password, &st) == -1) {
        ngx_modelgw_pq_set_error(error, "the file of the password \"%s\" cannot"
                                 " be read: %s", conf->password,
                                 strerror(errno));
        return NGX_ERROR;
    }

    if (!S_ISREG(st.st_mode)) {
        ngx_modelgw_pq_set_error(error, "the password's \"%s\" is not a file",
                                 conf->password);
        return NGX_ERROR;
    }

    if (st.st_mode & (S_IRWXG|S_IRWXO)) {
        ngx_modelgw_pq_set_error(error, "the file of the password \"%s\" is"
                                 " open to other users; use chmod 0600",
                                 conf->password);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_pq_parse(ngx_modelgw_pq_conf_t *conf, PQconninfoOption **options,
    ngx_modelgw_pq_error_t *error)
{
    char  *text;

    text = NULL;
    *options = libpq.PQconninfoParse(conf->conninfo, &text);

    if (*options == NULL) {
        ngx_modelgw_pq_set_error(error, "%s",
                                 ngx_modelgw_pq_parse_error(conf->conninfo,
                                                            text));
        libpq.PQfreemem(text);
        return NGX_ERROR;
    }

    if (ngx_modelgw_pq_check_options(*options, error) != NGX_OK) {
        libpq.PQconninfoFree(*options);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* libpq repeats the word that it cannot read, which may be of a password */

static const char *
ngx_modelgw_pq_parse_error(const char *conninfo, const char *text)
{
    if (text == NULL) {
        return "no memory";
    }

    if (strstr(conninfo, "password") == NULL && strchr(conninfo, '@') == NULL) {
        return text;
    }

    return "the conninfo cannot be read, and may have a password, which is to"
           " be put into a file, named by password=file:/path";
}


static ngx_int_t
ngx_modelgw_pq_check_options(PQconninfoOption *options,
    ngx_modelgw_pq_error_t *error)
{
    char        *host, *address, *port, *mode;
    char         name[NGX_MODELGW_PQ_HOST], number[NGX_MODELGW_PQ_HOST];
    ngx_uint_t   i, n, verify;

    for (i = 0; i < sizeof(ngx_modelgw_pq_refused)
                    / sizeof(ngx_modelgw_pq_option_t); i++)
    {
        if (ngx_modelgw_pq_option(options, ngx_modelgw_pq_refused[i].name)) {
            ngx_modelgw_pq_set_error(error, "the conninfo %s",
                                     ngx_modelgw_pq_refused[i].value);
            return NGX_ERROR;
        }
    }

    host = ngx_modelgw_pq_option(options, "host");
    address = ngx_modelgw_pq_option(options, "hostaddr");
    port = ngx_modelgw_pq_option(options, "port");
    mode = ngx_modelgw_pq_option(options, "sslmode");

    n = ngx_modelgw_pq_hosts(options);

    if ((host && address && ngx_modelgw_pq_elements(host) != n)
        || (port && ngx_modelgw_pq_elements(port) != 1
            && ngx_modelgw_pq_elements(port) != n))
    {
        ngx_modelgw_pq_set_error(error, "the conninfo has lists of different"
                                 " lengths in host, hostaddr or port");
        return NGX_ERROR;
    }

    verify = (mode && ngx_strcmp(mode, "verify-full") == 0);

    for (i = 0; i < n; i++) {

        if (ngx_modelgw_pq_element(host, i, name) != NGX_OK
            || ngx_modelgw_pq_element(port, 0, number) != NGX_OK)
        {
            ngx_modelgw_pq_set_error(error, "the conninfo has too long a host"
                                     " or port");
            return NGX_ERROR;
        }

        /* the address is where it connects to */

        if (ngx_modelgw_pq_element(address, i, number) != NGX_OK) {
            ngx_modelgw_pq_set_error(error, "the conninfo has too long a"
                                     " hostaddr");
            return NGX_ERROR;
        }

        if (name[0] == '\0' && number[0] == '\0') {
            ngx_modelgw_pq_set_error(error, "the conninfo names no host; a"
                                     " socket is named by its directory,"
                                     " host=/var/run/postgresql");
            return NGX_ERROR;
        }

        if (!verify && !ngx_modelgw_pq_local(number[0] ? number : name)) {
            ngx_modelgw_pq_set_error(error, "the connection to \"%s\" could be"
                                     " read or changed on its way; the conninfo"
                                     " needs sslmode=verify-full",
                                     name[0] ? name : number);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static char *
ngx_modelgw_pq_option(PQconninfoOption *options, const char *name)
{
    for ( /* void */ ; options->keyword; options++) {
        if (ngx_strcmp(options->keyword, name) == 0) {
            return options->val;
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_modelgw_pq_hosts(PQconninfoOption *options)
{
    char  *address;

    address = ngx_modelgw_pq_option(options, "hostaddr");

    return ngx_modelgw_pq_elements(address ? address
                                   : ngx_modelgw_pq_option(options, "host"));
}


static ngx_uint_t
ngx_modelgw_pq_elements(const char *list)
{
    ngx_uint_t  n;

    n = 1;

    while (list && *list) {
        n += (*list++ == ',');
    }

    return n;
}


/* The i-th one, in NGX_MODELGW_PQ_HOST bytes: NGX_OK, NGX_ERROR: too long. */

static ngx_int_t
ngx_modelgw_pq_element(const char *list, ngx_uint_t i, char *buf)
{
    size_t  len;

    buf[0] = '\0';

    if (list == NULL) {
        return NGX_OK;
    }

    for ( /* void */ ; i; i--) {
        list += strcspn(list, ",") + 1;
    }

    len = strcspn(list, ",");

    if (len >= NGX_MODELGW_PQ_HOST) {
        return NGX_ERROR;
    }

    ngx_cpystrn((u_char *) buf, (u_char *) list, len + 1);

    return NGX_OK;
}


static ngx_uint_t
ngx_modelgw_pq_local(const char *host)
{
    struct in_addr   in;
    struct in6_addr  in6;

    if (host[0] == '/' || host[0] == '@'
        || ngx_strcmp(host, "localhost") == 0)
    {
        return 1;
    }

    if (inet_pton(AF_INET, host, &in) == 1) {
        return (ntohl(in.s_addr) >> 24) == 127;
    }

    return inet_pton(AF_INET6, host, &in6) == 1 && IN6_IS_ADDR_LOOPBACK(&in6);
}


ngx_modelgw_pq_t *
ngx_modelgw_pq_connect(ngx_modelgw_pq_conf_t *conf, ngx_msec_t timeout,
    volatile ngx_atomic_t *stop, ngx_modelgw_pq_error_t *error)
{
    uint64_t                  deadline;
    PQconninfoOption         *options;
    ngx_modelgw_pq_t         *pq;
    ngx_modelgw_pq_target_t   target;

    deadline = ngx_modelgw_pq_now() + timeout;

    if (ngx_modelgw_pq_load(error) != NGX_OK
        || ngx_modelgw_pq_parse(conf, &options, error) != NGX_OK)
    {
        return NULL;
    }

    pq = calloc(1, sizeof(ngx_modelgw_pq_t));
    if (pq == NULL) {
        ngx_modelgw_pq_set_error(error, "no memory for a connection");
        libpq.PQconninfoFree(options);
        return NULL;
    }

    pq->stop = stop;

    if (ngx_modelgw_pq_password(conf, target.password, error) == NGX_OK) {
        ngx_modelgw_pq_connect_any(pq, conf, options, &target, deadline,
                                   error);
    }

    ngx_explicit_memzero(target.password, NGX_MODELGW_PQ_PASSWORD);
    libpq.PQconninfoFree(options);

    if (pq->conn == NULL) {
        free(pq);
        return NULL;
    }

    return pq;
}


static ngx_int_t
ngx_modelgw_pq_password(ngx_modelgw_pq_conf_t *conf, char *buf,
    ngx_modelgw_pq_error_t *error)
{
    int      fd, err;
    ssize_t  n;

    buf[0] = '\0';

    if (conf->password == NULL) {
        return NGX_OK;
    }

    fd = open(conf->password, O_RDONLY|O_CLOEXEC);

    n = (fd == -1) ? -1 : read(fd, buf, NGX_MODELGW_PQ_PASSWORD);
    err = errno;

    if (fd != -1) {
        (void) close(fd);
    }

    if (n == -1) {
        ngx_modelgw_pq_set_error(error, "the file of the password \"%s\" cannot"
                                 " be read: %s", conf->password,
                                 strerror(err));
        return NGX_ERROR;
    }

    if (n == NGX_MODELGW_PQ_PASSWORD) {
        ngx_modelgw_pq_set_error(error, "the password in \"%s\" is too long",
                                 conf->password);
        return NGX_ERROR;
    }

    buf[n] = '\0';
    buf[strcspn(buf, "\r\n")] = '\0';

    if (buf[0] == '\0') {
        ngx_modelgw_pq_set_error(error, "there is no password in \"%s\"",
                                 conf->password);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Tries each host; pq->conn is NULL if none accepts, and error is of all. */

static void
ngx_modelgw_pq_connect_any(ngx_modelgw_pq_t *pq, ngx_modelgw_pq_conf_t *conf,
    PQconninfoOption *options, ngx_modelgw_pq_target_t *t, uint64_t deadline,
    ngx_modelgw_pq_error_t *error)
{
    char                    *each;
    size_t                   len;
    u_char                   text[NGX_MODELGW_PQ_ERROR];
    uint64_t                 now, left;
    ngx_int_t                seconds;
    ngx_uint_t               i, n;

    each = ngx_modelgw_pq_option(options, "connect_timeout");
    seconds = atoi(each ? each : ngx_modelgw_pq_defaults[0].value);

    n = ngx_modelgw_pq_hosts(options);
    len = 0;

    for (i = 0; i < n; i++) {

        ngx_modelgw_pq_target(t, conf, options, i);

        now = ngx_modelgw_pq_now();
        left = (deadline > now) ? (deadline - now) / (n - i) : 0;

        if (seconds > 0) {
            left = ngx_min(left, (uint64_t) seconds * 1000);
        }

        if (ngx_modelgw_pq_open(pq, t, now + left, error) == NGX_OK) {
            return;
        }

        ngx_memcpy(text + len, error->data,
                   ngx_min(error->len, NGX_MODELGW_PQ_ERROR - len));
        len += ngx_min(error->len, NGX_MODELGW_PQ_ERROR - len);

        if (i + 1 < n && len + 2 < NGX_MODELGW_PQ_ERROR) {
            text[len++] = ';';
            text[len++] = ' ';
        }
    }

    ngx_memcpy(error->data, text, len);
    error->len = len;
}


/* the parameters of the connection to the i-th host */

static void
ngx_modelgw_pq_target(ngx_modelgw_pq_target_t *t, ngx_modelgw_pq_conf_t *conf,
    PQconninfoOption *options, ngx_uint_t i)
{
    char              *port;
    ngx_uint_t         k;
    PQconninfoOption  *o;

    t->n = 0;

    for (k = 0; k < sizeof(ngx_modelgw_pq_defaults)
                    / sizeof(ngx_modelgw_pq_option_t); k++)
    {
        ngx_modelgw_pq_target_add(t, ngx_modelgw_pq_defaults[k].name,
                                  ngx_modelgw_pq_defaults[k].value);
    }

    ngx_modelgw_pq_target_add(t, "application_name", conf->application);

    /* of two values, libpq takes the last one that is not empty */

    for (o = options; o->keyword; o++) {
        if (ngx_strcmp(o->keyword, "host") != 0
            && ngx_strcmp(o->keyword, "hostaddr") != 0
            && ngx_strcmp(o->keyword, "port") != 0)
        {
            ngx_modelgw_pq_target_add(t, o->keyword, o->val);
        }
    }

    /* their lengths were checked */

    port = ngx_modelgw_pq_option(options, "port");

    (void) ngx_modelgw_pq_element(ngx_modelgw_pq_option(options, "host"), i,
                                  t->host);
    (void) ngx_modelgw_pq_element(ngx_modelgw_pq_option(options, "hostaddr"),
                                  i, t->address);
    (void) ngx_modelgw_pq_element(port,
                                  ngx_modelgw_pq_elements(port) > 1 ? i : 0,
                                  t->port);

    ngx_modelgw_pq_target_add(t, "host", t->host);
    ngx_modelgw_pq_target_add(t, "hostaddr", t->address);
    ngx_modelgw_pq_target_add(t, "port", t->port);
    ngx_modelgw_pq_target_add(t, "password", t->password);
    ngx_modelgw_pq_target_add(t, "client_encoding", "UTF8");

    t->keywords[t->n] = NULL;
    t->values[t->n] = NULL;
}


/* one more than fits is dropped, as no libpq has so many options */

static void
ngx_modelgw_pq_target_add(ngx_modelgw_pq_target_t *t, const char *name,
    const char *value)
{
    if (value && *value && t->n < NGX_MODELGW_PQ_OPTIONS - 1) {
        t->keywords[t->n] = name;
        t->values[t->n++] = value;
    }
}


static ngx_int_t
ngx_modelgw_pq_open(ngx_modelgw_pq_t *pq, ngx_modelgw_pq_target_t *t,
    uint64_t deadline, ngx_modelgw_pq_error_t *error)
{
    short                      events, revents;
    PostgresPollingStatusType  status;

    pq->conn = libpq.PQconnectStartParams(t->keywords, t->values, 0);

    if (pq->conn == NULL) {
        ngx_modelgw_pq_set_error(error, "no memory for a connection");
        return NGX_ERROR;
    }

    if (libpq.PQstatus(pq->conn) == CONNECTION_BAD) {
        ngx_modelgw_pq_set_error(error, "%s",
                                 libpq.PQerrorMessage(pq->conn));
        goto failed;
    }

    libpq.PQsetNoticeReceiver(pq->conn, ngx_modelgw_pq_notice, NULL);

    status = PGRES_POLLING_WRITING;

    while (status != PGRES_POLLING_OK) {

        events = (status == PGRES_POLLING_READING) ? POLLIN : POLLOUT;

        if (ngx_modelgw_pq_wait(pq, events, deadline, &revents, error)
            != NGX_OK)
        {
            ngx_modelgw_pq_set_error(error, "connection to \"%s\" failed:"
                                     " no answer in time",
                                     t->host[0] ? t->host : t->address);
            goto failed;
        }

        status = libpq.PQconnectPoll(pq->conn);

        if (status == PGRES_POLLING_FAILED) {
            ngx_modelgw_pq_set_error(error, "%s",
                                     libpq.PQerrorMessage(pq->conn));
            goto failed;
        }
    }

    if (libpq.PQsetnonblocking(pq->conn, 1) == 0
        && libpq.PQsendQuery(pq->conn, ngx_modelgw_pq_settings))
    {
        if (ngx_modelgw_pq_finish(pq, deadline, NULL, error) == NGX_OK) {
            return NGX_OK;
        }

    } else {
        (void) ngx_modelgw_pq_lost(pq, error);
    }

failed:

    libpq.PQfinish(pq->conn);

    pq->conn = NULL;
    pq->dead = 0;

    return NGX_ERROR;
}


/* libpq would write them to stderr */

static void
ngx_modelgw_pq_notice(void *data, const PGresult *result)
{
}
