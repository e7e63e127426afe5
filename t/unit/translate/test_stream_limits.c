
/*
 * Limits and failures of a translated stream: blocks, kept bytes and memory
 * are bounded however long it is; texts are borrowed only where they may be; a
 * failing sink, and documents that no scanner has read, do no harm.
 */


#include "unit_answer.h"


static ngx_int_t
feed(answer_t *a, const char *events)
{
    char       *stream;
    ngx_int_t   rc;

    stream = unit_quoted(events);
    rc = answer_feed(a, (u_char *) stream, ngx_strlen(stream));
    unit_free(stream);

    return rc;
}


/* so many blocks, and no more; indices used again count, too */

static void
many_blocks(void **state)
{
    char         event[256];
    answer_t     a;
    ngx_uint_t   i, same;
    ngx_pool_t  *pool;

    for (same = 0; same < 2; same++) {
        pool = unit_pool_create();
        answer_init(&a, pool, FULL, 0, MAX);

        assert_int_equal(feed(&a, START), NGX_OK);

        for (i = 0; i < NGX_MODELGW_STREAM_MAX_BLOCKS; i++) {
            snprintf(event, sizeof(event), BEGIN_TOOL("%d", "t"),
                     same ? 3 : (int) i * 900000);
            assert_int_equal(feed(&a, event), NGX_OK);
        }

        a.len = 0;

        snprintf(event, sizeof(event), ARGS("%d", "x"), same ? 3 : 0);
        assert_int_equal(feed(&a, event), NGX_OK);
        assert_true(a.len > 0);

        a.len = 0;
        assert_int_equal(feed(&a, BEGIN_TEXT("3")), NGX_DECLINED);
        assert_int_equal(a.len, 0);

        answer_free(&a);
        ngx_destroy_pool(pool);
    }
}


/* the sum of what is kept is bounded; nothing is written above the limit */

static void
kept_is_bounded(void **state)
{
    size_t       len;
    answer_t     a;
    ngx_uint_t   i, n, max;
    ngx_pool_t  *pool;

    static struct {
        ngx_uint_t   max;                /* that is enough */
        ngx_uint_t   reasoning;
        const char  *before;
        const char  *event;
    } bounds[] = {
        { 8, FULL, BEGIN_THINK("0") THINK("0", "abcde"), THINK("0", "fgh") },
        { 8, FULL, BEGIN_THINK("0") THINK("0", "abcde"), SIGN("0", "fgh") },
        { 8, FULL, BEGIN_THINK("0") THINK("0", "abcde") BEGIN_THINK("1"),
          THINK("1", "fgh") },
        { 3, FULL, BEGIN_TOOL("0", "t"), BEGIN("0", "{'type':'thinking',"
          "'thinking':'abc'}") },
        { 4, FULL, "", BEGIN("0", "{'type':'thinking','thinking':'abc',"
          "'signature':'d'}") },
        { 7, CONTENT, "", BEGIN("0", "{'type':'tool_use','id':'t','name':'f',"
          "'input':{'a':1}}") },
        { 2, CONTENT, "", EV("{'type':'message_delta','delta':{'stop_reason':"
          "'refusal','stop_details':{'explanation':'no'}}}") },
    };

    for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {

        for (n = 0; n < 2; n++) {
            max = bounds[i].max - n;

            pool = unit_pool_create();
            answer_init(&a, pool, bounds[i].reasoning, 0, max);

            assert_int_equal(feed(&a, START), NGX_OK);
            assert_int_equal(feed(&a, bounds[i].before), NGX_OK);
            len = a.len;
            assert_int_equal(feed(&a, bounds[i].event),
                             n ? NGX_DECLINED : NGX_OK);

            if (n) {
                assert_int_equal(a.len, len);
            }

            answer_free(&a);
            ngx_destroy_pool(pool);
        }
    }
}


/* bytes that the pool has from malloc() */

static size_t
pool_size(ngx_pool_t *pool)
{
    size_t             n;
    ngx_pool_t        *p;
    ngx_pool_large_t  *l;

    n = 0;

    for (p = pool; p; p = p->d.next) {
        n += p->d.end - (u_char *) p;

        for (l = (p == pool) ? p->large : NULL; l; l = l->next) {
            n += (l->alloc != NULL);
        }
    }

    return n;
}


#define LONG_BLOCKS                                                           \
    BEGIN_THINK("0") THINK("0", "some text that is kept") SIGN("0", "and so") \
    END("0") TEXT("1", "and one that is not")                                 \
    BEGIN("2", "{'type':'redacted_thinking','data':'d'}") END("2") PING

#define LONG_REASONS                                                          \
    EV("{'type':'message_delta','delta':{'stop_details':{'explanation':"      \
       "'no'}}}")


/* 100,000 events and more, and the pool is as large as after the first ones */

static void
long_stream(void **state)
{
    size_t       size;
    char        *blocks, *texts, *p;
    answer_t     a;
    ngx_uint_t   i;

    blocks = unit_quoted(LONG_BLOCKS LONG_REASONS);
    texts = unit_quoted(TEXT("1", "text") ARGS("1", "{") LONG_REASONS
                        THINK("0", "x") SIGN("0", "s") PING
                        EV("{'type':'what'}"));

    answer_init(&a, *state, FULL, 1, MAX);
    a.drop = 1;

    assert_int_equal(feed(&a, START), NGX_OK);
    assert_int_equal(feed(&a, blocks), NGX_OK);
    assert_int_equal(feed(&a, texts), NGX_OK);

    size = pool_size(*state);

    for (i = 0; i < 15000; i++) {
        p = (i < 500) ? blocks : texts;
        assert_int_equal(answer_feed(&a, (u_char *) p, ngx_strlen(p)), NGX_OK);
    }

    assert_true(a.events > 100000);
    assert_int_equal(pool_size(*state), size);

    assert_int_equal(feed(&a, STOP), NGX_DONE);

    answer_free(&a);
    unit_free(blocks);
    unit_free(texts);
}


/* large blocks are kept, written and freed, many times */

static void
large_blocks(void **state)
{
    size_t       size;
    char        *text, *event;
    answer_t     a;
    ngx_uint_t   i;

    text = malloc(300001);
    event = malloc(400000);
    assert_non_null(text);
    assert_non_null(event);

    memset(text, 'x', 300000);
    text[300000] = '\0';

    answer_init(&a, *state, FULL, 1, 1024 * 1024);
    a.drop = 1;
    size = 0;

    assert_int_equal(feed(&a, START), NGX_OK);

    for (i = 0; i < 100; i++) {
        assert_int_equal(feed(&a, BEGIN_THINK("0")), NGX_OK);

        snprintf(event, 400000, THINK("0", "%s"), text);
        assert_int_equal(feed(&a, event), NGX_OK);
        assert_int_equal(feed(&a, event), NGX_OK);

        a.len = 0;
        assert_int_equal(feed(&a, END("0")), NGX_OK);
        assert_true(a.len > 600000);

        if (i == 3) {
            size = pool_size(*state);
        }
    }

    assert_true(pool_size(*state) - size < 8192);

    free(text);
    free(event);
    answer_free(&a);
}


/*
 * Only bytes of the caller are borrowed: the texts of events that are received
 * whole.
 */

static void
borrowed(void **state)
{
    char      *stream;
    size_t     len;
    answer_t   a;

    stream = unit_quoted(START TEXT("0", "abc") BEGIN_THINK("1")
                         THINK("1", "defg") BEGIN_TOOL("2", "t")
                         ARGS("2", "hi") END("1")
                         "data: {'type':'content_block_delta',\n"
                         "data: 'index':0,'delta':{'type':'text_delta','text':"
                         "'jkl'}}\n\n" FINISH);
    len = ngx_strlen(stream);

    answer_init(&a, *state, FULL, 0, MAX);
    assert_int_equal(answer_stream(&a, (u_char *) stream, len, len), NGX_DONE);
    assert_int_equal(a.borrowed, 3 + 4 + 2);
    answer_free(&a);

    answer_init(&a, *state, FULL, 0, MAX);
    assert_int_equal(answer_stream(&a, (u_char *) stream, len, 1), NGX_DONE);
    assert_int_equal(a.borrowed, 0);
    answer_free(&a);

    unit_free(stream);
}


/* a failing sink is called once, and the codec goes on */

static void
broken_sink(void **state)
{
    answer_t  a;

    answer_init(&a, *state, FULL, 1, MAX);

    assert_int_equal(feed(&a, START TEXT("0", "a")), NGX_OK);
    assert_int_equal(a.out.failed, 0);

    a.broken = 1;
    assert_int_equal(feed(&a, BEGIN_THINK("1") THINK("1", "b") END("1")
                          BEGIN_TOOL("2", "t") END("2") FINISH), NGX_DONE);
    assert_int_equal(a.out.failed, 1);

    answer_free(&a);
}


/* any documents, not only those that the scanner accepts */

static void
nonsense(void **state)
{
    char        *data;
    answer_t     a;
    ngx_str_t    text, name;
    ngx_uint_t   i, j;

    static const char  *names[] = {
        "", "message_start", "content_block_start", "content_block_delta",
        "content_block_stop", "message_delta", "ping", "error", "x"
    };

    static const char  *docs[] = {
        "", "null", "7", "[]", "'type'", "{", "[{", "{}", "{'type'", "{'type':",
        "{'type':'error'", "{'index':0,'index':1}", "{'delta':{'delta':[[[[]]]]"
        "},'index':5,'content_block':{'type':'tool_use','id':[],'name':{}}}",
        "{'index':1,'content_block':{'type':'thinking'},'delta':{'type':"
        "'signature_delta','signature':'x'}}"
    };

    for (i = 0; i < sizeof(docs) / sizeof(docs[0]); i++) {
        data = unit_quoted(docs[i]);

        answer_init(&a, *state, FULL, 1, 100);
        (void) feed(&a, START);

        for (j = 0; j < sizeof(names) / sizeof(names[0]); j++) {
            text = unit_str(data);
            name = unit_str(names[j]);
            (void) ngx_modelgw_stream_event(a.stream, &text, &name, 0);
        }

        (void) ngx_modelgw_stream_end(a.stream);

        answer_free(&a);
        unit_free(data);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(kept_is_bounded),
        unit_case(long_stream),
        unit_case(large_blocks),
        unit_case(borrowed),
        unit_case(broken_sink),
        unit_case(nonsense),
    };

    return cmocka_run_group_tests_name("chunk_limits", tests, NULL, NULL);
}
