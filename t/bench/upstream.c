
/*
 * The benchmark's upstream: as fast as possible, so that the gateway is
 * measured, not the upstream.
 *
 *     upstream PORT DIR
 *
 * DIR has chat.json, chat.stream and so on, see protocols[]; embeddings have no
 * stream.  The path of a request chooses the protocol, "stream":true within the
 * first or the last KB of its body the kind.  A stream is one write; with "x-bench: each" in the
 * request, one write and one chunk for each event; with "x-bench: idle", the
 * first events of it and no more, until the gateway closes.
 *
 * Why not nginx: its "return" is limited to 4 KB, a static file does not
 * answer a POST without a redirect, and neither can write event by event.
 *
 * Bodies must have a Content-Length, as nginx's proxy module sends them, and
 * requests are not pipelined.  It waits if a socket's buffer is full: the peer
 * is always reading.
 */


#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>


#define EVENTS    512
#define HEAD      16384              /* of a request: line and headers */
#define NEAR      1024               /* searched for "stream" */
#define PIECE     65536
#define BEGUN     3                  /* events of an idle stream */
#define PROTOCOLS 4


typedef struct {
    char         *data;
    size_t        len;
} text_t;


typedef struct {
    text_t        whole;             /* headers and body */
    text_t       *events;            /* of a stream, the headers first */
    size_t        nevents;
} answer_t;


/* a partial request */

typedef struct {
    int           fd;
    size_t        len;               /* of head, including what follows it */
    size_t        rest;              /* bytes of the body to come */
    unsigned      in_body:1;
    unsigned      protocol:2;
    unsigned      stream:1;
    unsigned      each:1;
    unsigned      idle:1;
    char          head[HEAD];
} connection_t;


typedef struct {
    const char   *path;              /* in the request line */
    const char   *json;              /* files */
    const char   *stream;            /* NULL: none */
} protocol_t;


static const protocol_t  protocols[PROTOCOLS] = {
    { " /v1/chat/completions ", "chat.json", "chat.stream" },
    { " /v1/messages ", "messages.json", "messages.stream" },
    { " /v1/responses ", "responses.json", "responses.stream" },
    { " /v1/embeddings ", "embeddings.json", NULL }
};


static answer_t  answers[PROTOCOLS][2];  /* [protocol][stream] */


static void
fail(const char *what)
{
    perror(what);
    exit(1);
}


static void *
alloc(size_t size)
{
    void  *p;

    p = malloc(size);

    if (p == NULL) {
        fail("malloc()");
    }

    return p;
}


static text_t
load(const char *dir, const char *name)
{
    char    path[4096];
    FILE   *f;
    text_t  t;

    snprintf(path, sizeof(path), "%s/%s", dir, name);

    f = fopen(path, "rb");

    if (f == NULL) {
        fail(path);
    }

    t.data = alloc(1 << 20);
    t.len = fread(t.data, 1, 1 << 20, f);

    fclose(f);

    return t;
}


static text_t
joined(const char *head, text_t *body, const char *tail)
{
    text_t  t;
    size_t  n;

    n = strlen(head);

    t.len = n + body->len + strlen(tail);
    t.data = alloc(t.len + 1);

    memcpy(t.data, head, n);
    memcpy(t.data + n, body->data, body->len);
    strcpy(t.data + n + body->len, tail);

    return t;
}


static void
load_json(answer_t *a, const char *dir, const char *name)
{
    char    head[256];
    text_t  body;

    body = load(dir, name);

    snprintf(head, sizeof(head),
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\nrequest-id: req_4711\r\n\r\n", body.len);

    a->whole = joined(head, &body, "");

    free(body.data);
}


static text_t
chunk(char *data, size_t len, const char *before)
{
    char    head[512];
    text_t  body;

    body.data = data;
    body.len = len;

    snprintf(head, sizeof(head), "%s%zx\r\n", before, len);

    return joined(head, &body, "\r\n");
}


static void
load_stream(answer_t *a, const char *dir, const char *name)
{
    char               *p, *end;
    text_t              body;

    static text_t       last = { "0\r\n\r\n", 5 };
    static const char   head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        "Transfer-Encoding: chunked\r\nCache-Control: no-cache\r\n"
        "request-id: req_4711\r\n\r\n";

    body = load(dir, name);

    a->whole = chunk(body.data, body.len, head);
    a->whole = joined("", &a->whole, "0\r\n\r\n");

    a->events = alloc(body.len * sizeof(text_t));

    for (p = body.data; p < body.data + body.len; p = end) {

        end = memmem(p, body.data + body.len - p, "\n\n", 2);
        end = end ? end + 2 : body.data + body.len;

        a->events[a->nevents] = chunk(p, end - p, a->nevents ? "" : head);
        a->nevents++;
    }

    a->events[a->nevents++] = last;

    free(body.data);
}


static int
put(int fd, text_t *t)
{
    char           *p;
    ssize_t         n;
    struct pollfd   pfd;

    for (p = t->data; p < t->data + t->len; p += n) {

        n = send(fd, p, t->data + t->len - p, MSG_NOSIGNAL);

        if (n != -1) {
            continue;
        }

        if (errno != EAGAIN) {
            return -1;
        }

        pfd.fd = fd;
        pfd.events = POLLOUT;

        (void) poll(&pfd, 1, 1000);

        n = 0;
    }

    return 0;
}


static int
answer(connection_t *c)
{
    size_t     i, n;
    answer_t  *a;

    a = &answers[c->protocol][c->stream];

    if ((!c->each && !c->idle) || !c->stream) {
        return put(c->fd, &a->whole);
    }

    n = c->idle ? BEGUN : a->nevents;

    for (i = 0; i < n; i++) {

        if (put(c->fd, &a->events[i]) != 0) {
            return -1;
        }
    }

    return 0;
}


static void
look(connection_t *c, char *p, size_t len)
{
    if (memmem(p, len, "\"stream\":true", 13) != NULL) {
        c->stream = 1;
    }
}


/*
 * The beginning of the body; NULL if the head is not complete.  It is parsed
 * only as far as our gateways require.
 */

static char *
read_head(connection_t *c)
{
    char    *p, *length;
    size_t   i;

    c->head[c->len] = '\0';

    p = strstr(c->head, "\r\n\r\n");

    if (p == NULL) {
        return NULL;
    }

    *p = '\0';

    length = strcasestr(c->head, "\r\nContent-Length:");

    c->in_body = 1;
    c->rest = length ? strtoul(length + 17, NULL, 10) : 0;
    c->each = (strcasestr(c->head, "\r\nx-bench: each") != NULL);
    c->idle = (strcasestr(c->head, "\r\nx-bench: idle") != NULL);
    c->stream = 0;
    c->protocol = 0;

    for (i = 0; i < PROTOCOLS; i++) {
        if (strstr(c->head, protocols[i].path) != NULL) {
            c->protocol = i;
        }
    }

    return p + 4;
}


/* len bytes of the body are at p; 1: it is whole */

static int
read_body(connection_t *c, char *p, size_t len)
{
    size_t  n;

    n = len < NEAR ? len : NEAR;

    look(c, p, n);
    look(c, p + len - n, n);

    c->rest = len < c->rest ? c->rest - len : 0;

    return c->rest == 0;
}


/* -1: close it */

static int
serve(connection_t *c)
{
    char         *p;
    ssize_t       n;

    static char   piece[PIECE];

    p = c->in_body ? piece : c->head + c->len;

    n = recv(c->fd, p, c->in_body ? PIECE : HEAD - 1 - c->len, 0);

    if (n <= 0) {
        return (n == -1 && errno == EAGAIN) ? 0 : -1;
    }

    if (!c->in_body) {
        c->len += n;

        p = read_head(c);

        if (p == NULL) {
            return c->len < HEAD - 1 ? 0 : -1;
        }

        n = c->head + c->len - p;
    }

    if (!read_body(c, p, n)) {
        return 0;
    }

    c->in_body = 0;
    c->len = 0;

    return answer(c);
}


static void
add(int ep, int fd, void *data)
{
    struct epoll_event  ev;

    ev.events = EPOLLIN;
    ev.data.ptr = data;

    if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) != 0) {
        fail("epoll_ctl()");
    }
}


static void
accept_all(int ep, int listening)
{
    int            fd, on;
    connection_t  *c;

    on = 1;

    while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) != -1) {

        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));

        c = alloc(sizeof(connection_t));
        c->fd = fd;
        c->len = 0;
        c->in_body = 0;

        add(ep, fd, c);
    }
}


static int
open_port(int port)
{
    int                 fd, on;
    struct sockaddr_in  sin;

    fd = socket(AF_INET, SOCK_STREAM|SOCK_NONBLOCK, 0);

    if (fd == -1) {
        fail("socket()");
    }

    on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons(port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    if (bind(fd, (struct sockaddr *) &sin, sizeof(sin)) != 0
        || listen(fd, 4096) != 0)
    {
        fail("bind()");
    }

    return fd;
}


int
main(int argc, char **argv)
{
    int                  i, n, ep, listening;
    connection_t        *c;
    struct epoll_event   events[EVENTS];

    if (argc != 3) {
        fprintf(stderr, "usage: %s PORT DIR\n", argv[0]);
        return 2;
    }

    for (i = 0; i < PROTOCOLS; i++) {
        load_json(&answers[i][0], argv[2], protocols[i].json);

        if (protocols[i].stream) {
            load_stream(&answers[i][1], argv[2], protocols[i].stream);
        }
    }

    listening = open_port(atoi(argv[1]));

    ep = epoll_create1(0);

    if (ep == -1) {
        fail("epoll_create1()");
    }

    add(ep, listening, NULL);

    for ( ;; ) {
        n = epoll_wait(ep, events, EVENTS, -1);

        for (i = 0; i < n; i++) {
            c = events[i].data.ptr;

            if (c == NULL) {
                accept_all(ep, listening);
                continue;
            }

            if (serve(c) != 0) {
                close(c->fd);
                free(c);
            }
        }
    }
}
