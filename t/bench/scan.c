
/*
 * The speed of the scanner: bodies of several kinds whole, a large one in
 * small chunks, stream events one by one; with each variant of the string
 * loop, and with yajl; the cost of marks, and of creating a scanner.
 *
 *     make bench-scan
 */


#include "stub.h"

#include <time.h>
#include <yajl/yajl_parse.h>

#include "ngx_modelgw_scan.h"


#define BEST_OF   40
#define TURNS     20
#define SECONDS   0.005


typedef struct {
    const char  *name;
    u_char      *data;
    size_t       len;
} doc_t;


static ngx_pool_t  *pool;
static ngx_str_t    denied[] = {
    ngx_string("models"), ngx_string("fallbacks"), ngx_string("route"),
    ngx_string("provider"), ngx_string("api_base"), ngx_string("base_url"),
    ngx_string("api_key"), ngx_string("custom_llm_provider"),
    ngx_string("user_config"), ngx_string("extra_headers")
};


static ngx_modelgw_scan_watch_t  request[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    { ngx_string("max_tokens"),
      NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    { ngx_string("stream_options"), NGX_MODELGW_SCAN_OBJECT
      |NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("stream_options.include_usage"), NGX_MODELGW_SCAN_BOOL }
};


static ngx_modelgw_scan_watch_t  event[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("choices"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("error"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.prompt_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.completion_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.prompt_tokens_details"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.prompt_tokens_details.cached_tokens"),
      NGX_MODELGW_SCAN_COUNT }
};


static ngx_modelgw_scan_conf_t  request_conf = {
    request, sizeof(request) / sizeof(request[0]), 1,
    denied, sizeof(denied) / sizeof(denied[0]), NULL, NULL, 0
};


static ngx_modelgw_scan_conf_t  event_conf = {
    event, sizeof(event) / sizeof(event[0]), 0, NULL, 0, NULL, NULL, 0
};


/* members that make a body cost more than its text */

static ngx_modelgw_scan_mark_t  marks[] = {
    { ngx_string("url"), ngx_null_string },
    { ngx_string("image_url"), ngx_null_string },
    { ngx_string("file_url"), ngx_null_string },
    { ngx_string("data"), ngx_null_string },
    { ngx_string("input_audio"), ngx_null_string },
    { ngx_string("file_id"), ngx_null_string },
    { ngx_string("file_data"), ngx_null_string },
    { ngx_string("media_type"), ngx_string("application/pdf") },
    { ngx_string("tools"), ngx_null_string },
    { ngx_string("type"), ngx_string("bash_") },
    { ngx_string("type"), ngx_string("text_editor_") },
    { ngx_string("type"), ngx_string("computer_") },
    { ngx_string("ttl"), ngx_string("1h") },
    { ngx_string("type"), ngx_string("web_search_2") },
    { ngx_string("type"), ngx_string("web_fetch_2") },
    { ngx_string("type"), ngx_string("code_execution_2") }
};


static const char  head[] =
    "{\"model\":\"family_a-large\",\"max_tokens\":32000,\"stream\":true,"
    "\"temperature\":1,\"metadata\":{\"user_id\":\"user_4711\"},";

static const char  *words[] = {
    "the ", "a ", "file ", "of ", "return ", "and ", "if ", "function ",
    "should ", "not ", "x = ", "value", "(self)", "->next", ", ", ". ", "; ",
    "configuration ", "use ", "error ", "in ", "path/to/module", "0x1f ", "it "
};

static const char  *escapes[] = {
    "\\n", "\\n\\n", "\\n    ", "\\n\\t\\t", "\\\"", "\\\"text\\\"",
    "\\\\n", "'"
};

static const char  *names[] = {
    "path", "pattern", "command", "limit", "offset", "content", "url", "mode",
    "description", "old_string", "timeout", "id"
};

static const char  chunk[] =
    "{\"id\":\"chatcmpl-AbCdEfGhIjKlMnOpQrStUvWx\",\"object\":\"chat.completion"
    ".chunk\",\"created\":1767225600,\"model\":\"large-2026-01-01\","
    "\"service_tier\":\"default\",\"choices\":[{\"index\":0,\"delta\":{"
    "\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null}],"
    "\"usage\":null}";


static double
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

    return ts.tv_sec + ts.tv_nsec / 1e9;
}


static void
put(doc_t *d, const char *text)
{
    size_t  len;

    len = strlen(text);
    memcpy(d->data + d->len, text, len);
    d->len += len;
}


static doc_t
begin(const char *name, size_t size)
{
    doc_t  d;

    d.name = name;
    d.len = 0;
    d.data = malloc(2 * size + 65536);

    if (d.data == NULL) {
        exit(1);
    }

    put(&d, head);

    return d;
}


/* repeats the text inside one string */

static doc_t
text_doc(const char *name, const char *text, size_t size)
{
    doc_t  d;

    d = begin(name, size);
    put(&d, "\"messages\":[{\"role\":\"user\",\"content\":\"");

    while (d.len < size) {
        put(&d, text);
    }

    put(&d, "\"}]}");

    return d;
}


/* repeats the text as elements of an array */

static doc_t
array_doc(const char *name, const char *text, size_t size)
{
    doc_t  d;

    d = begin(name, size);
    put(&d, "\"messages\":[");
    put(&d, text);

    while (d.len < size) {
        put(&d, ",");
        put(&d, text);
    }

    put(&d, "]}");

    return d;
}


static size_t
any(size_t n)
{
    static uint32_t  seed = 1;

    seed = seed * 1103515245 + 12345;

    return (seed >> 16) % n;
}


#define any_of(list)  list[any(sizeof(list) / sizeof(list[0]))]


/* text of about that many bytes, with an escape every 30 to 60 */

static void
put_text(doc_t *d, size_t size)
{
    size_t  end, next;

    for (end = d->len + size; d->len < end; /* void */ ) {
        next = d->len + 30 + any(30);

        while (d->len < next) {
            put(d, any_of(words));
        }

        put(d, any_of(escapes));
    }
}


static void
put_tool(doc_t *d)
{
    size_t  n;

    put(d, "{\"name\":\"");
    put(d, any_of(names));
    put(d, "\",\"description\":\"");
    put_text(d, 100 + any(500));
    put(d, "\",\"input_schema\":{\"type\":\"object\",\"properties\":{");

    for (n = 2 + any(5); n; n--) {
        put(d, "\"");
        put(d, any_of(names));
        put(d, any(3) ? "\":{\"type\":\"string\",\"description\":\""
                      : "\":{\"type\":\"number\",\"minimum\":0,"
                        "\"description\":\"");
        put_text(d, any(60));
        put(d, "\"},");
    }

    put(d, "\"verbose\":{\"type\":\"boolean\",\"default\":false}},"
           "\"required\":[\"path\"],\"additionalProperties\":false}}");
}


static doc_t
tools_doc(const char *name, size_t size)
{
    doc_t  d;

    d = begin(name, size);
    put(&d, "\"tools\":[");
    put_tool(&d);

    while (d.len < size) {
        put(&d, ",");
        put_tool(&d);
    }

    put(&d, "]}");

    return d;
}


/* half tools, half conversation */

static doc_t
agent_doc(const char *name, size_t size)
{
    doc_t  d;

    d = tools_doc(name, size / 2);
    d.len--;
    put(&d, ",\"system\":[{\"type\":\"text\",\"text\":\"");
    put_text(&d, size / 8);
    put(&d, "\"}],\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}");

    while (d.len < size) {
        put(&d, ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\","
                "\"id\":\"toolu_01A09q90qw90lq917835lq9\",\"name\":\"Edit\","
                "\"input\":{\"path\":\"src/parse.c\",\"text\":\"");
        put_text(&d, 50 + any(1000));
        put(&d, "\"}}]},{\"role\":\"user\",\"content\":\"");
        put_text(&d, any(200));
        put(&d, "\"}");
    }

    put(&d, "]}");

    return d;
}


static doc_t
code_doc(const char *name, size_t size)
{
    doc_t  d;

    d = begin(name, size);
    put(&d, "\"messages\":[{\"role\":\"user\",\"content\":\"");
    put_text(&d, size);
    put(&d, "\"}]}");

    return d;
}


static doc_t
numbers_doc(const char *name, size_t size)
{
    char   number[64];
    doc_t  d;

    d = begin(name, size);
    put(&d, "\"input\":[0");

    while (d.len < size) {
        sprintf(number, ",%s%d.%0*d", any(2) ? "-" : "", (int) any(20),
                (int) (1 + any(9)), (int) any(10000));
        put(&d, number);
    }

    put(&d, "]}");

    return d;
}


static ngx_modelgw_scan_t *
scanner(ngx_modelgw_scan_conf_t *conf, ngx_modelgw_skip_pt skip)
{
    ngx_modelgw_scan_t  *s;

    conf->skip = skip;

    s = ngx_modelgw_scan_create(pool, conf);

    if (s == NULL) {
        exit(1);
    }

    return s;
}


static void
scan(ngx_modelgw_scan_t *s, doc_t *d, size_t piece)
{
    u_char     text[NGX_MODELGW_SCAN_FAULT_LEN];
    size_t     n;
    ngx_str_t  fault;

    ngx_modelgw_scan_reset(s);

    for (n = 0; n < d->len; n += piece) {
        (void) ngx_modelgw_scan_feed(s, d->data + n,
                                     ngx_min(piece, d->len - n));
    }

    if (ngx_modelgw_scan_done(s) != NGX_OK) {
        fault.data = text;
        (void) ngx_modelgw_scan_fault(s, &fault);
        printf("%s: %.*s\n", d->name, (int) fault.len, fault.data);
        exit(1);
    }
}


static void
yajl(doc_t *d, size_t piece)
{
    size_t                  n;
    yajl_handle             h;
    static yajl_callbacks   none;

    h = yajl_alloc(&none, NULL, NULL);

    for (n = 0; n < d->len; n += piece) {
        if (yajl_parse(h, d->data + n, ngx_min(piece, d->len - n))
            != yajl_status_ok)
        {
            printf("%s: yajl refuses\n", d->name);
            exit(1);
        }
    }

    if (yajl_complete_parse(h) != yajl_status_ok) {
        exit(1);
    }

    yajl_free(h);
}


/* seconds that one document takes, at best; s NULL: yajl */

static double
measure(ngx_modelgw_scan_t *s, doc_t *d, size_t piece, double seconds)
{
    double      best, start, took;
    ngx_uint_t  i, k, n;

    best = 0;

    /* the clock costs more than a small document */

    for (i = 0; i < (seconds ? BEST_OF : 3); i++) {
        start = now();
        n = 0;

        do {
            for (k = 0; k <= 16384 / d->len; k++) {
                if (s) {
                    scan(s, d, piece);

                } else {
                    yajl(d, piece);
                }
            }

            n += k;
            took = now() - start;
        } while (took < seconds);

        if (i == 0 || took / n < best) {
            best = took / n;
        }
    }

    return best;
}


static void
bench_kinds(void)
{
    doc_t                        docs[10];
    ngx_uint_t                   i, n, k, nd;
    ngx_modelgw_skip_variant_t  *v;

    nd = 0;
    docs[nd++] = text_doc("base64, 1 MB",
                          "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHEl"
                          "EQVQI12P4/8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAAB",
                          1 << 20);
    docs[nd++] = agent_doc("agent, 20 KB", 20 << 10);
    docs[nd++] = agent_doc("agent, 200 KB", 200 << 10);
    docs[nd++] = tools_doc("tools only, 20 KB", 20 << 10);
    docs[nd++] = code_doc("code, 200 KB", 200 << 10);
    docs[nd++] = text_doc("Chinese, 200 KB",
                          "\xe5\xbf\xab\xe9\x80\x9f\xe7\x9a\x84\xe6\xa3\x95"
                          "\xe8\x89\xb2\xe7\x8b\x90\xe7\x8b\xb8\xef\xbc\x8c"
                          "\xe8\xb7\xb3\xe8\xbf\x87\xe6\x87\x92\xe7\x8b\x97"
                          "\xe3\x80\x82 API \xe5\xaf\x86\xe9\x92\xa5\\n",
                          200 << 10);
    docs[nd++] = text_doc("Russian, 200 KB",
                          "\xd1\x81\xd1\x8a\xd0\xb5\xd1\x88\xd1\x8c "
                          "\xd0\xb5\xd1\x89\xd1\x91 \xd1\x8d\xd1\x82\xd0\xb8"
                          "\xd1\x85 \xd0\xbc\xd1\x8f\xd0\xb3\xd0\xba\xd0\xb8"
                          "\xd1\x85, \xd0\xb1\xd1\x83\xd0\xbb\xd0\xbe\xd0\xba ",
                          200 << 10);
    docs[nd++] = text_doc("\\uXXXX text, 200 KB",
                          "\\u5feb\\u901f\\u7684\\u68d5\\u8272\\u72d0\\u72f8"
                          "\\uff0c\\u8df3\\u8fc7 \\ud83d\\ude00", 200 << 10);
    docs[nd++] = array_doc("indented, 200 KB",
                           "{\n      \"type\": \"text\",\n      \"cache\": {\n"
                           "        \"kind\": \"short\",\n        \"n\": 12\n"
                           "      },\n      \"list\": [\n        true,\n"
                           "        \"word\"\n      ]\n    }", 200 << 10);
    docs[nd++] = numbers_doc("numbers, 200 KB", 200 << 10);

    v = ngx_modelgw_skip_variants(&n);

    printf("MB/s%-18s", "");

    for (k = 0; k < n; k++) {
        printf("%10s", (char *) v[k].name.data);
    }

    printf("%10s\n", "yajl");

    for (i = 0; i < nd; i++) {
        printf("%-22s", docs[i].name);

        for (k = 0; k < n; k++) {
            printf("%10.0f", docs[i].len / 1e6
                   / measure(scanner(&request_conf, v[k].skip), &docs[i],
                             docs[i].len, SECONDS));
            fflush(stdout);
        }

        printf("%10.0f\n", docs[i].len / 1e6
               / measure(NULL, &docs[i], docs[i].len, SECONDS));

        free(docs[i].data);
    }
}


static void
bench_chunks(ngx_modelgw_skip_pt skip)
{
    doc_t          big, half, one;
    double         a, b;
    size_t         i;
    static size_t  pieces[] = { 1, 16, 1400, 4096, 65536, 32 << 20 };

    big = text_doc("32 MB", "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAA",
                   32 << 20);
    half = text_doc("16 MB", "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAA",
                    16 << 20);

    one = text_doc("1 MB", "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNby",
                   1 << 20);

    printf("\none string of 32 MB      MB/s   cost to 16 MB   yajl, 1 MB\n");

    for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        a = measure(scanner(&request_conf, skip), &big, pieces[i], 0);
        b = measure(scanner(&request_conf, skip), &half, pieces[i], 0);

        printf("chunks of %8zu B %10.0f %11.2f", pieces[i],
               big.len / 1e6 / a, a / b);

        if (pieces[i] < 1400) {
            printf("\n");
            continue;
        }

        printf("%15.0f\n", one.len / 1e6
                           / measure(NULL, &one, pieces[i], 0));
    }
}


static void
bench_events(ngx_modelgw_skip_pt skip)
{
    doc_t   d;
    double  ours, theirs;

    d.name = "event";
    d.data = (u_char *) chunk;
    d.len = strlen(chunk);

    ours = measure(scanner(&event_conf, skip), &d, d.len, SECONDS);
    theirs = measure(NULL, &d, d.len, SECONDS);

    printf("\nstream event of %zu B: %.0f ns, reset included; yajl %.0f ns\n",
           d.len, ours * 1e9, theirs * 1e9);
}


static void
bench_marks(ngx_modelgw_skip_pt skip)
{
    doc_t                    docs[4];
    double                   a, b;
    ngx_uint_t               i, k;
    ngx_modelgw_scan_t      *plain, *marked;
    ngx_modelgw_scan_conf_t  conf;

    docs[0] = agent_doc("agent, 1 KB", 1 << 10);
    docs[1] = agent_doc("agent, 20 KB", 20 << 10);
    docs[2] = agent_doc("agent, 200 KB", 200 << 10);
    docs[3] = array_doc("indented, 200 KB",
                        "{\n  \"type\": \"text\",\n  \"cache\": {}\n}",
                        200 << 10);

    conf = request_conf;
    conf.marks = marks;
    conf.nmarks = sizeof(marks) / sizeof(marks[0]);

    printf("\n%-22s%10s%10s%10s\n", "MB/s, marks", "none", "16", "cost");

    for (i = 0; i < 4; i++) {
        plain = scanner(&request_conf, skip);
        marked = scanner(&conf, skip);
        a = b = 1;

        /* alternately: the machine varies by more than the difference */

        for (k = 0; k < TURNS; k++) {
            a = ngx_min(a, measure(plain, &docs[i], docs[i].len, SECONDS / 10));
            b = ngx_min(b, measure(marked, &docs[i], docs[i].len,
                                   SECONDS / 10));
        }

        printf("%-22s%10.0f%10.0f%9.1f%%\n", docs[i].name,
               docs[i].len / 1e6 / a, docs[i].len / 1e6 / b,
               100 * (b / a - 1));

        free(docs[i].data);
    }
}


static void
bench_make(void)
{
    double                    start;
    ngx_pool_t               *own;
    ngx_uint_t                i;
    ngx_modelgw_scan_plan_t  *plan;

    plan = ngx_modelgw_scan_plan(pool, &request_conf);

    if (plan == NULL) {
        exit(1);
    }

    start = now();

    for (i = 0; i < 100000; i++) {
        own = stub_pool_create();

        if (own == NULL || ngx_modelgw_scan_make(own, plan) == NULL) {
            exit(1);
        }

        ngx_destroy_pool(own);
    }

    printf("\na pool and a scanner in it: %.0f ns\n", (now() - start) * 1e4);
}


int
main(void)
{
    ngx_uint_t                   n;
    ngx_modelgw_skip_variant_t  *v;

    pool = stub_pool_create();

    if (pool == NULL) {
        return 1;
    }

    v = ngx_modelgw_skip_variants(&n);

    bench_kinds();
    bench_chunks(v[0].skip);
    bench_events(v[0].skip);
    bench_marks(v[0].skip);
    bench_make();

    return 0;
}
