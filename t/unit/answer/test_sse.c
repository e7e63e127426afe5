
/*
 * Server-sent events.  Each stream is read at all chunk sizes and must give
 * the same as the slow reader below, written by WHATWG HTML 9.2.6 only; and
 * the raw bytes, joined, must be the stream.
 */


#include "unit.h"

#include "ngx_modelgw_sse.h"


#define MAX  (1024 * 1024)


typedef struct {
    u_char   data[MAX];
    size_t   len;
} text_t;


static text_t  expected, got, raw;


static void
put(text_t *t, const void *p, size_t len)
{
    assert_true(len <= MAX - t->len);

    if (len) {
        memcpy(t->data + t->len, p, len);
        t->len += len;
    }
}


/* an event as the tests compare them: name, 1E, data, 1F */

static void
put_event(text_t *t, ngx_str_t *name, text_t *data)
{
    put(t, name->data, name->len);
    put(t, "\x1e", 1);
    put(t, data->data, data->len);
    put(t, "\x1f", 1);
}


/* the slow reader */

static void
slow_line(ngx_str_t *line, ngx_str_t *name, text_t *data, ngx_uint_t *has_data)
{
    size_t     n;
    ngx_str_t  value;

    for (n = 0; n < line->len && line->data[n] != ':'; n++) { /* void */ }

    value.data = line->data + n;
    value.len = line->len - n;

    if (value.len) {
        value.data++;
        value.len--;
    }

    if (value.len && value.data[0] == ' ') {
        value.data++;
        value.len--;
    }

    if (n == 5 && memcmp(line->data, "event", 5) == 0) {
        *name = value;
    }

    if (n == 4 && memcmp(line->data, "data", 4) == 0) {

        if (*has_data) {
            put(data, "\n", 1);
        }

        put(data, value.data, value.len);
        *has_data = 1;
    }
}


static void
slow_read(text_t *out, u_char *p, size_t len)
{
    u_char         *last;
    ngx_str_t       line, name;
    ngx_uint_t      has_data;
    static text_t   data;

    last = p + len;

    if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        p += 3;
    }

    out->len = 0;
    data.len = 0;
    has_data = 0;
    ngx_str_null(&name);

    for ( ;; ) {
        line.data = p;

        while (p < last && *p != '\r' && *p != '\n') {
            p++;
        }

        if (p == last) {
            return;
        }

        line.len = p - line.data;

        p += (p[0] == '\r' && p + 1 < last && p[1] == '\n') ? 2 : 1;

        if (line.len) {
            slow_line(&line, &name, &data, &has_data);
            continue;
        }

        if (has_data) {
            put_event(out, &name, &data);
        }

        data.len = 0;
        has_data = 0;
        ngx_str_null(&name);
    }
}


/* the reader under test */

static void
take(text_t *out, ngx_modelgw_sse_event_t *ev)
{
    u_char         *state;
    ngx_int_t       n;
    ngx_str_t       line;
    static text_t   data;

    data.len = 0;
    state = NULL;

    for (n = 0; ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK; n++) {

        if (n) {
            put(&data, "\n", 1);
        }

        assert_true(line.data >= ev->raw.data);
        assert_true(line.data + line.len <= ev->raw.data + ev->raw.len);

        put(&data, line.data, line.len);
    }

    assert_int_equal(n, ev->lines);

    if (n && out) {
        put_event(out, &ev->name, &data);
    }
}


/* a piece is in a separate block of exactly its size */

static ngx_int_t
feed(ngx_modelgw_sse_t *sse, u_char *data, size_t len)
{
    u_char                   *piece, *pos, *last;
    ngx_int_t                 rc;
    ngx_modelgw_sse_event_t   ev;

    piece = unit_dup(data, len);
    pos = piece;
    last = piece + len;

    for ( ;; ) {
        rc = ngx_modelgw_sse_next(sse, &pos, last, &ev);

        if (rc != NGX_OK) {
            break;
        }

        if (ev.borrowed) {
            assert_true(ev.raw.data >= piece);
            assert_ptr_equal(ev.raw.data + ev.raw.len, pos);
        }

        put(&raw, ev.raw.data, ev.raw.len);
        take(&got, &ev);
    }

    if (rc == NGX_AGAIN) {
        assert_ptr_equal(pos, last);
    }

    unit_free(piece);

    return rc;
}


static void
read_at(ngx_pool_t *pool, u_char *data, size_t len, size_t chunk)
{
    size_t                    n, size;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_sse_event_t   ev;

    ngx_modelgw_sse_init(&sse, pool, MAX);

    got.len = 0;
    raw.len = 0;

    for (n = 0; n < len; n += size) {
        size = ngx_min(chunk, len - n);
        assert_int_equal(feed(&sse, data + n, size), NGX_AGAIN);
    }

    if (ngx_modelgw_sse_rest(&sse, &ev) == NGX_OK) {
        assert_true(ev.raw.len != 0);
        put(&raw, ev.raw.data, ev.raw.len);
        take(NULL, &ev);
    }

    assert_int_equal(ngx_modelgw_sse_rest(&sse, &ev), NGX_DECLINED);

    if (sse.start) {
        ngx_pfree(pool, sse.start);
    }
}


static void
check(ngx_pool_t *pool, const void *data, size_t len)
{
    size_t      chunk;
    ngx_uint_t  i;

    slow_read(&expected, (u_char *) data, len);

    for (i = 0; (chunk = unit_chunk(i, len)) != 0; i++) {
        read_at(pool, (u_char *) data, len, chunk);

        assert_int_equal(raw.len, len);
        assert_memory_equal(raw.data, data, len);

        assert_int_equal(got.len, expected.len);
        assert_memory_equal(got.data, expected.data, got.len);
    }
}


/* streams, and the events dispatched */

static struct {
    const char  *stream;
    const char  *events;
} cases[] = {
    { "", "" },
    { "data: x", "" },
    { "data: x\n", "" },
    { "data: x\n\n", "\x1ex\x1f" },
    { "data: x\r\r", "\x1ex\x1f" },
    { "data: x\r\n\r\n", "\x1ex\x1f" },
    { "data: x\r\n\r", "\x1ex\x1f" },
    { "data: x\r\n\n", "\x1ex\x1f" },
    { "data: x\n\r\n", "\x1ex\x1f" },
    { "data: x\n\r", "\x1ex\x1f" },
    { "data: x\r\ndata: y\r\n", "" },
    { "data: x\r\ndata: y\r\n\r\n", "\x1ex\ny\x1f" },
    { "data: x\rdata: y\r\n\r\ndata: z\r\r", "\x1ex\ny\x1f\x1ez\x1f" },
    { "data: x\n\ndata: y\n\n", "\x1ex\x1f\x1ey\x1f" },
    { "\n\r\r\n\ndata: x\n\n\n\n\ndata: y\n\n\n", "\x1ex\x1f\x1ey\x1f" },
    { "\r\r\r", "" },

    /* fields */

    { "data:x\n\n", "\x1ex\x1f" },
    { "data:  x \n\n", "\x1e x \x1f" },
    { "data\n\n", "\x1e\x1f" },
    { "data:\n\n", "\x1e\x1f" },
    { "data: \ndata\ndata:\n\n", "\x1e\n\n\x1f" },
    { "data :x\n\n", "" },
    { " data: x\n\n", "" },
    { "Data: x\n\n", "" },
    { "datax: x\n\ndat\n\nd", "" },
    { "data: a:b\n\n", "\x1e" "a:b\x1f" },
    { "event: e\ndata: x\n\n", "e\x1ex\x1f" },
    { "event:e\ndata: x\n\ndata: y\n\n", "e\x1ex\x1f\x1ey\x1f" },
    { "data: x\nevent: e\nevent: f\n\n", "f\x1ex\x1f" },
    { "event: e\nevent\ndata: x\n\n", "\x1ex\x1f" },
    { "event: e\n\ndata: x\n\n", "\x1ex\x1f" },
    { "id: 1\nretry: 2\nfoo: bar\nbaz\ndata: x\n\n", "\x1ex\x1f" },
    { "data: [DONE]\n\n", "\x1e[DONE]\x1f" },

    /* comments */

    { ": ping\n\n", "" },
    { ":\n\n:\r\n\r\n", "" },
    { ":data: x\ndata: y\n:\n\n", "\x1ey\x1f" },

    /* no line ends */

    { "data: \xe2\x80\xa8\xc2\x85\x0b\x0c\n\n",
      "\x1e\xe2\x80\xa8\xc2\x85\x0b\x0c\x1f" },

    /* the BOM: one, at the start */

    { "\xef\xbb\xbf", "" },
    { "\xef\xbb\xbf" "data: x\n\n", "\x1ex\x1f" },
    { "\xef\xbb\xbf\n\ndata: x\n\n", "\x1ex\x1f" },
    { "\xef\xbb\xbf\xef\xbb\xbf" "data: x\n\ndata: y\n\n", "\x1ey\x1f" },
    { "\n\xef\xbb\xbf" "data: x\n\ndata: y\n\n", "\x1ey\x1f" },
    { "\xef\xbb" "data: x\n\ndata: y\n\n", "\x1ey\x1f" },
    { "\xef" "data: x\n\ndata: y\n\n", "\x1ey\x1f" },
    { "\xef\n\ndata: y\n\n", "\x1ey\x1f" },
    { "\xef\xbb\n\ndata: y\n\n", "\x1ey\x1f" },
    { "data: x\n\n\xef\xbb\xbf" "data: y\n\n", "\x1ex\x1f" },

    { NULL, NULL }
};


static void
test_cases(void **state)
{
    ngx_uint_t  i;

    for (i = 0; cases[i].stream; i++) {
        check(*state, cases[i].stream, strlen(cases[i].stream));
        unit_assert_str(got.data, got.len, cases[i].events);
    }
}


static void
test_nul(void **state)
{
    static const char  stream[] = "data: x\0y\n\0: z\n\ndata:\0\n\n\0\n\n";

    check(*state, stream, sizeof(stream) - 1);

    assert_int_equal(got.len, 8);
    assert_memory_equal(got.data, "\x1ex\0y\x1f\x1e\0\x1f", 8);
}


/* all streams of six of these parts, at all chunk sizes */

static void
test_all_short(void **state)
{
    char        stream[16];
    size_t      len;
    ngx_uint_t  i, n, code;

    static char  *parts[] = { "data", ":", "\r", "\n" };

    for (i = 0; i < 4 * 4 * 4 * 4 * 4 * 4; i++) {
        len = 0;

        for (n = 0, code = i; n < 6; n++, code /= 4) {

            if (strlen(parts[code % 4]) + len > sizeof(stream)) {
                break;
            }

            memcpy(stream + len, parts[code % 4], strlen(parts[code % 4]));
            len += strlen(parts[code % 4]);
        }

        slow_read(&expected, (u_char *) stream, len);

        for (n = 1; n <= len; n++) {
            read_at(*state, (u_char *) stream, len, n);

            assert_int_equal(raw.len, len);
            assert_memory_equal(raw.data, stream, len);
            assert_int_equal(got.len, expected.len);
            assert_memory_equal(got.data, expected.data, got.len);
        }
    }
}


static void
test_random(void **state)
{
    char        stream[2048];
    size_t      len, n;
    uint32_t    seed;
    ngx_uint_t  i;

    static char  *parts[] = { "data", "data: ", "event: ", ":", "x", " ", "\r",
                              "\n", "\r\n", "\n\n", "\r\n\r\n", "\r\r",
                              "\xef\xbb\xbf", "id: 7", "{\"a\":1}",
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789012345678901234567890123456"
    };

    seed = 1;

    for (i = 0; i < 400; i++) {
        len = 0;

        for ( ;; ) {
            seed = seed * 1103515245 + 12345;
            n = (seed >> 16) % (sizeof(parts) / sizeof(parts[0]));

            if (len + strlen(parts[n]) > sizeof(stream)) {
                break;
            }

            memcpy(stream + len, parts[n], strlen(parts[n]));
            len += strlen(parts[n]);
        }

        check(*state, stream, len);
    }
}


static void
test_borrowed(void **state)
{
    u_char                   *pos, *last;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_sse_event_t   ev;

    static u_char  stream[] = "event: e\ndata: x\n\n: c\n\ndata: y\n";

    ngx_modelgw_sse_init(&sse, *state, MAX);

    pos = stream;
    last = stream + sizeof(stream) - 1;

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev), NGX_OK);
    assert_ptr_equal(ev.raw.data, stream);
    assert_int_equal(ev.borrowed, 1);
    assert_int_equal(ev.lines, 1);
    unit_assert_str(ev.name.data, ev.name.len, "e");
    unit_assert_str(ev.raw.data, ev.raw.len, "event: e\ndata: x\n\n");

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev), NGX_OK);
    assert_int_equal(ev.borrowed, 1);
    assert_int_equal(ev.lines, 0);
    unit_assert_str(ev.raw.data, ev.raw.len, ": c\n\n");

    assert_null(sse.start);

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev), NGX_AGAIN);

    pos = (u_char *) "\ndata: z\n\n";
    last = pos + 10;

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev), NGX_OK);
    assert_int_equal(ev.borrowed, 0);
    unit_assert_str(ev.raw.data, ev.raw.len, "data: y\n\n");

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev), NGX_OK);
    assert_int_equal(ev.borrowed, 1);

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev), NGX_AGAIN);
    assert_int_equal(ngx_modelgw_sse_rest(&sse, &ev), NGX_DECLINED);
}


/* where events end; a CR LF belongs to one event if it comes in one piece */

static void
test_borders(void **state)
{
    size_t                    n;
    u_char                   *pos, *last;
    const char               *p;
    ngx_uint_t                i;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_sse_event_t   ev;

    static struct {
        const char  *stream;
        const char  *lens;               /* a digit for each event */
    } c[] = {
        { "a\n\nb\n\n", "33" },
        { "a\r\n\r\nb\r\n\r\n", "55" },
        { "a\r\rb\r\r", "33" },
        { "a\n\r\nb\r\n\n", "44" },
        { "\n\na\n\n\n\nb\n\n\n", "55" },
        { "\xef\n\n\xef\xbb\n\n", "34" },
        { "\xef\xbb\xbf\n\na\n\n", "8" },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        ngx_modelgw_sse_init(&sse, *state, MAX);

        n = strlen(c[i].stream);
        pos = unit_dup(c[i].stream, n);
        last = pos + n;

        for (p = c[i].lens; *p; p++) {
            assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev),
                             NGX_OK);
            assert_int_equal(ev.raw.len, *p - '0');
        }

        assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, last, &ev),
                         NGX_AGAIN);
        unit_free(last - n);
    }
}


static void
test_max_event(void **state)
{
    size_t                    n, chunk, max;
    ngx_int_t                 rc;
    ngx_uint_t                i;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_sse_event_t   ev;

    static char  stream[] = "data: 123456789012345678901234567890\n\n";

    for (max = sizeof(stream) - 4; max < sizeof(stream) + 2; max++) {

        for (i = 0; (chunk = unit_chunk(i, sizeof(stream) - 1)) != 0; i++) {
            ngx_modelgw_sse_init(&sse, *state, max);
            got.len = 0;
            raw.len = 0;
            rc = NGX_AGAIN;

            for (n = 0; n < sizeof(stream) - 1 && rc == NGX_AGAIN; n += chunk) {
                rc = feed(&sse, (u_char *) stream + n,
                          ngx_min(chunk, sizeof(stream) - 1 - n));
            }

            if (max >= sizeof(stream) - 1) {
                assert_int_equal(rc, NGX_AGAIN);
                assert_int_equal(raw.len, sizeof(stream) - 1);
                continue;
            }

            assert_int_equal(rc, NGX_DECLINED);
            assert_int_equal(raw.len, 0);

            /* and it stays so, although data were collected */

            assert_int_equal(feed(&sse, (u_char *) "\n\ndata: x\n\n", 11),
                             NGX_DECLINED);

            if (ngx_modelgw_sse_rest(&sse, &ev) == NGX_OK) {
                assert_memory_equal(ev.raw.data, stream, ev.raw.len);
            }
        }
    }
}


/*
 * 4 MB byte by byte: quadratic work would take seconds; and memory is bounded.
 */

static void
test_long_event(void **state)
{
    u_char                    ch, *pos;
    size_t                    i;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_sse_event_t   ev;

    ngx_modelgw_sse_init(&sse, *state, NGX_MODELGW_SSE_MAX_EVENT);

    for (i = 0; i < NGX_MODELGW_SSE_MAX_EVENT; i++) {
        ch = "data: "[ngx_min(i, 5)];

        if (i >= NGX_MODELGW_SSE_MAX_EVENT - 2) {
            ch = LF;

        } else if (i % 1000 == 999) {
            ch = CR;
        }

        pos = &ch;

        if (ngx_modelgw_sse_next(&sse, &pos, &ch + 1, &ev) != NGX_AGAIN) {
            break;
        }
    }

    assert_int_equal(i, NGX_MODELGW_SSE_MAX_EVENT - 1);
    assert_int_equal(ev.raw.len, NGX_MODELGW_SSE_MAX_EVENT);
    assert_int_equal(sse.size, NGX_MODELGW_SSE_MAX_EVENT);

    pos = &ch;
    ch = 'd';

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, &ch + 1, &ev),
                     NGX_AGAIN);
    assert_int_equal(sse.size, 4096);
}


/* memory held while a stream waits for its next event */

static void
test_waiting(void **state)
{
    u_char                    text[] = "data: a\n\ndata: b\n\n", *pos;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_sse_event_t   ev;

    ngx_modelgw_sse_init(&sse, *state, NGX_MODELGW_SSE_MAX_EVENT);

    pos = text;

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, text + 4, &ev),
                     NGX_AGAIN);
    assert_int_equal(sse.size, 4096);

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, text + 18, &ev), NGX_OK);
    assert_int_equal(ev.borrowed, 0);

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, text + 18, &ev), NGX_OK);
    assert_int_equal(ev.borrowed, 1);

    assert_int_equal(ngx_modelgw_sse_next(&sse, &pos, text + 18, &ev),
                     NGX_AGAIN);
    assert_int_equal(sse.size, 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_cases),
        unit_case(test_nul),
        unit_case(test_all_short),
        unit_case(test_random),
        unit_case(test_borrowed),
        unit_case(test_borders),
        unit_case(test_max_event),
        unit_case(test_long_event),
        unit_case(test_waiting),
    };

    return cmocka_run_group_tests_name("sse", tests, NULL, NULL);
}
