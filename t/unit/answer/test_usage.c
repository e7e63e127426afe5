
/*
 * Token usage merged from answers and events of all protocols, the kind of a
 * document, and the place of its model id.  Each document is scanned at all
 * chunk sizes.
 */


#include "unit.h"

#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_usage.h"


#define CHAT       NGX_MODELGW_CHAT
#define MESSAGES   NGX_MODELGW_MESSAGES
#define RESPONSES  NGX_MODELGW_RESPONSES
#define EMBED      NGX_MODELGW_EMBEDDINGS

#define OTHER      NGX_MODELGW_DOC_OTHER
#define STOP       NGX_MODELGW_DOC_STOP
#define ERROR      NGX_MODELGW_DOC_ERROR
#define USAGE      NGX_MODELGW_DOC_USAGE


/* the documents of a call, one after the other, and the usage at its end */

typedef struct {
    int64_t               input;
    int64_t               cache_read;
    int64_t               cache_write;
    int64_t               cache_write_1h;
    int64_t               output;
    int64_t               reasoning;
} tokens_t;


typedef struct {
    ngx_uint_t            protocol;
    const char           *docs[4];
    tokens_t              usage;
    ngx_uint_t            input_has_cache;
    ngx_uint_t            odd;
} case_t;


/* bits of usage.odd, in the order of ngx_modelgw_usage_t */

#define ODD_INPUT      0x01
#define ODD_READ       0x02
#define ODD_WRITE      0x04
#define ODD_WRITE_5M   0x08
#define ODD_WRITE_1H   0x10
#define ODD_OUTPUT     0x20
#define ODD_REASONING  0x40


#define START(usage)                                                          \
    "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":"      \
    "\"message\",\"model\":\"m\",\"content\":[],\"usage\":" usage "}}"

#define DELTA(usage)                                                          \
    "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"    \
    "\"usage\":" usage "}"

#define MESSAGE(usage)                                                        \
    "{\"id\":\"msg_1\",\"type\":\"message\",\"model\":\"m\",\"content\":"      \
    "[{\"type\":\"text\",\"text\":\"{\\\"usage\\\":{\\\"input_tokens\\\":1}}\"}"  \
    "],"                                                                      \
    "\"usage\":" usage "}"

#define CHUNK(usage)                                                          \
    "{\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{}}],"  \
    "\"usage\":" usage "}"


#define EMBEDDING(usage)                                                      \
    "{\"object\":\"list\",\"data\":[{\"usage\":{\"prompt_tokens\":1},"         \
    "\"embedding\":[0.5,-1e-3]}],\"model\":\"m\",\"usage\":" usage "}"


static case_t  cases[] = {

    /* embeddings: input only, reported by either of two counts */

    { EMBED, { EMBEDDING("{\"prompt_tokens\":8,\"total_tokens\":8}") },
      { 8, -1, -1, -1, 0, -1 }, 0, 0 },

    { EMBED, { EMBEDDING("{\"total_tokens\":9}") },
      { 9, -1, -1, -1, 0, -1 }, 0, 0 },

    { EMBED, { EMBEDDING("{\"prompt_tokens\":7,\"completion_tokens\":5}") },
      { 7, -1, -1, -1, 0, -1 }, 0, 0 },

    { EMBED, { EMBEDDING("{\"prompt_tokens\":0,\"total_tokens\":0}") },
      { 0, -1, -1, -1, 0, -1 }, 0, 0 },

    { EMBED, { EMBEDDING("{\"prompt_tokens\":\"7\",\"total_tokens\":1.5}") },
      { -1, -1, -1, -1, -1, -1 }, 0, 0 },

    { EMBED, { EMBEDDING("null") },
      { -1, -1, -1, -1, -1, -1 }, 0, 0 },

    /* a 0 of input does not replace a count */

    { MESSAGES, { START("{\"input_tokens\":100,\"output_tokens\":1}"),
      DELTA("{\"input_tokens\":0,\"output_tokens\":5}") },
      { 100, -1, -1, -1, 5, -1 }, 0, 0 },

    { MESSAGES, { START("{\"input_tokens\":0,\"output_tokens\":1}"),
      DELTA("{\"input_tokens\":100,\"output_tokens\":0}") },
      { 100, -1, -1, -1, 0, -1 }, 0, 0 },

    { MESSAGES, { START("{\"input_tokens\":9,\"cache_read_input_tokens\":8,"
      "\"cache_creation_input_tokens\":7,\"cache_creation\":{"
      "\"ephemeral_1h_input_tokens\":6}}"),
      DELTA("{\"input_tokens\":0,\"cache_read_input_tokens\":0,"
      "\"cache_creation_input_tokens\":0,\"cache_creation\":{"
      "\"ephemeral_1h_input_tokens\":0},\"output_tokens\":5}") },
      { 9, 8, 7, 6, 5, -1 }, 0, 0 },

    { MESSAGES, { START("{\"input_tokens\":9,\"cache_read_input_tokens\":8,"
      "\"cache_creation_input_tokens\":7,\"cache_creation\":{"
      "\"ephemeral_1h_input_tokens\":6}}"),
      DELTA("{\"cache_read_input_tokens\":0,"
      "\"cache_creation_input_tokens\":0,\"output_tokens\":5}") },
      { 9, 8, 7, 6, 5, -1 }, 0, 0 },

    /* a cache field next to input: a 0 counts */

    { MESSAGES, { START("{\"input_tokens\":9,\"cache_read_input_tokens\":8,"
      "\"cache_creation_input_tokens\":7,\"cache_creation\":{"
      "\"ephemeral_1h_input_tokens\":6}}"),
      DELTA("{\"cache_read_input_tokens\":0,"
      "\"cache_creation_input_tokens\":0,\"cache_creation\":{"
      "\"ephemeral_1h_input_tokens\":0},\"input_tokens\":24}") },
      { 24, 0, 0, 0, -1, -1 }, 0, 0 },

    { MESSAGES, { START("{\"input_tokens\":100,"
      "\"cache_read_input_tokens\":60}"),
      DELTA("{\"input_tokens\":0,\"cache_read_input_tokens\":0}") },
      { 40, 60, -1, -1, -1, -1 }, 1, 0 },

    /* a lifetime that is reported later is a part of the total */

    { MESSAGES, { START("{\"input_tokens\":9,"
      "\"cache_creation_input_tokens\":100}"),
      DELTA("{\"cache_creation\":{\"ephemeral_1h_input_tokens\":100}}") },
      { 9, -1, 100, 100, -1, -1 }, 0, 0 },

    { MESSAGES, { START("{\"input_tokens\":9,"
      "\"cache_creation_input_tokens\":100}"),
      DELTA("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":0,"
      "\"ephemeral_1h_input_tokens\":20}}") },
      { 9, -1, 100, 20, -1, -1 }, 0, 0 },

    { MESSAGES, { START("{\"input_tokens\":9,\"cache_creation\":{"
      "\"ephemeral_1h_input_tokens\":100}}"),
      DELTA("{\"cache_creation\":{\"ephemeral_1h_input_tokens\":40}}") },
      { 9, -1, 40, 40, -1, -1 }, 0, 0 },

    /* a 0 that replaces nothing does not make an odd count valid, either */

    { MESSAGES, { START("{\"input_tokens\":1200.0}"),
      DELTA("{\"input_tokens\":0,\"output_tokens\":50}") },
      { -1, -1, -1, -1, 50, -1 }, 0, ODD_INPUT },

    /* output and chat: the last one counts, 0 or not */

    { MESSAGES, { START("{\"output_tokens\":3}"),
      DELTA("{\"output_tokens\":0}") }, { -1, -1, -1, -1, 0, -1 }, 0, 0 },

    { CHAT, { CHUNK("{\"prompt_tokens\":10,\"completion_tokens\":2}"),
      CHUNK("{\"prompt_tokens\":0,\"completion_tokens\":0}") },
      { 0, -1, -1, -1, 0, -1 }, 0, 0 },

    /* compatible APIs count cached input as chat does, and may correct it */

    { MESSAGES, { START("{\"input_tokens\":100,\"output_tokens\":1}"),
      "{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5,"
      "\"cache_read_input_tokens\":60}}" },
      { 40, 60, -1, -1, 5, -1 }, 1, 0 },

    { MESSAGES, { START("{\"input_tokens\":0,"
      "\"cache_read_input_tokens\":100}"),
      "{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5,"
      "\"cache_read_input_tokens\":10}}" },
      { 0, 10, -1, -1, 5, -1 }, 1, 0 },

    /* messages: an answer */

    { MESSAGES, { MESSAGE("{\"input_tokens\":12,\"output_tokens\":34}") },
      { 12, -1, -1, -1, 34, -1 }, 0, 0 },

    { MESSAGES, { MESSAGE("{\"input_tokens\":1,\"cache_read_input_tokens\":2,"
      "\"cache_creation_input_tokens\":30,\"cache_creation\":{"
      "\"ephemeral_5m_input_tokens\":10,\"ephemeral_1h_input_tokens\":20},"
      "\"output_tokens\":5,\"output_tokens_details\":{\"thinking_tokens\":4},"
      "\"server_tool_use\":{\"input_tokens\":99},\"service_tier\":\"x\"}") },
      { 1, 2, 30, 20, 5, 4 }, 0, 0 },

    { MESSAGES, { MESSAGE("{\"input_tokens\":0,\"output_tokens\":999999999,"
      "\"cache_read_input_tokens\":0}") },
      { 0, 0, -1, -1, 999999999, -1 }, 0, 0 },

    { MESSAGES, { "{\"usage\":{\"output_tokens\":2,\"input_tokens\":1},"
      "\"model\":\"m\"}" }, { 1, -1, -1, -1, 2, -1 }, 0, 0 },

    /* null: absent; wrong types, too large: no count, but odd */

    { MESSAGES, { MESSAGE("{\"input_tokens\":null,\"output_tokens\":3,"
      "\"cache_creation\":null}") }, { -1, -1, -1, -1, 3, -1 }, 0, 0 },
    { MESSAGES, { MESSAGE("{\"input_tokens\":\"5\",\"output_tokens\":3}") },
      { -1, -1, -1, -1, 3, -1 }, 0, ODD_INPUT },
    { MESSAGES, { MESSAGE("{\"input_tokens\":-5,\"output_tokens\":3}") },
      { -1, -1, -1, -1, 3, -1 }, 0, ODD_INPUT },
    { MESSAGES, { MESSAGE("{\"input_tokens\":5.0,\"output_tokens\":3e2}") },
      { -1, -1, -1, -1, -1, -1 }, 0, ODD_INPUT|ODD_OUTPUT },
    { MESSAGES, { MESSAGE("{\"input_tokens\":1000000000,\"output_tokens\":"
      "99999999999999999999}") }, { -1, -1, -1, -1, -1, -1 }, 0,
      ODD_INPUT|ODD_OUTPUT },
    { MESSAGES, { MESSAGE("{\"input_tokens\":[5],\"output_tokens\":{\"x\":5},"
      "\"cache_creation\":[{\"ephemeral_1h_input_tokens\":5}]}") },
      { -1, -1, -1, -1, -1, -1 }, 0,
      ODD_INPUT|ODD_OUTPUT|ODD_WRITE_5M|ODD_WRITE_1H },
    { MESSAGES, { MESSAGE("{\"input_tokens\":5,\"output_tokens\":true,"
      "\"cache_read_input_tokens\":\"a string that is long\","
      "\"cache_creation\":{\"ephemeral_5m_input_tokens\":-1},"
      "\"output_tokens_details\":7}") }, { 5, -1, -1, -1, -1, -1 }, 0,
      ODD_OUTPUT|ODD_READ|ODD_WRITE_5M|ODD_REASONING },
    { MESSAGES, { MESSAGE("null") }, { -1, -1, -1, -1, -1, -1 }, 0, 0 },
    { MESSAGES, { MESSAGE("[{\"input_tokens\":5}]") },
      { -1, -1, -1, -1, -1, -1 }, 0,
      ODD_INPUT|ODD_READ|ODD_WRITE|ODD_OUTPUT },
    { MESSAGES, { MESSAGE("{\"input_tokens\":\"5\",\"output_tokens\":3,"
      "\"input_tokens\":6}") }, { 6, -1, -1, -1, 3, -1 }, 0, 0 },

    /* what was odd is valid once it is reported as a count; null is ignored */

    { MESSAGES, { START("{\"input_tokens\":\"9\",\"output_tokens\":1.5,"
      "\"cache_read_input_tokens\":-8}"),
      DELTA("{\"input_tokens\":7,\"output_tokens\":5}") },
      { 7, -1, -1, -1, 5, -1 }, 0, ODD_READ },
    { MESSAGES, { START("{\"input_tokens\":9,\"output_tokens\":1}"),
      DELTA("{\"input_tokens\":\"7\",\"output_tokens\":null}") },
      { 9, -1, -1, -1, 1, -1 }, 0, ODD_INPUT },
    { MESSAGES, { START("{\"input_tokens\":\"9\",\"output_tokens\":1}"),
      DELTA("{\"input_tokens\":null,\"output_tokens\":3}") },
      { -1, -1, -1, -1, 3, -1 }, 0, ODD_INPUT },
    { MESSAGES, { "{}" }, { -1, -1, -1, -1, -1, -1 }, 0, 0 },
    { MESSAGES, { "{\"input_tokens\":7}" }, { -1, -1, -1, -1, -1, -1 }, 0, 0 },
    { MESSAGES, { "{\"x\":{\"usage\":{\"input_tokens\":7}}}" },
      { -1, -1, -1, -1, -1, -1 }, 0, 0 },

    /* a part that is larger than the total */

    { MESSAGES, { MESSAGE("{\"cache_creation\":{\"ephemeral_1h_input_tokens\":"
      "20}}") }, { -1, -1, 20, 20, -1, -1 }, 0, 0 },

    /* both lifetimes without a total, or with one less than their sum */

    { MESSAGES, { MESSAGE("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":"
      "30}}") }, { -1, -1, 30, -1, -1, -1 }, 0, 0 },
    { MESSAGES, { MESSAGE("{\"cache_creation_input_tokens\":null,"
      "\"cache_creation\":{\"ephemeral_5m_input_tokens\":30,"
      "\"ephemeral_1h_input_tokens\":20}}") },
      { -1, -1, 50, 20, -1, -1 }, 0, 0 },
    { MESSAGES, { MESSAGE("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":"
      "30,\"ephemeral_1h_input_tokens\":20},\"cache_creation_input_tokens\":"
      "49}") }, { -1, -1, 50, 20, -1, -1 }, 0, 0 },
    { MESSAGES, { MESSAGE("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":"
      "30,\"ephemeral_1h_input_tokens\":20},\"cache_creation_input_tokens\":"
      "60}") }, { -1, -1, 60, 20, -1, -1 }, 0, 0 },
    { MESSAGES, { MESSAGE("{\"input_tokens\":100,\"cache_creation\":{"
      "\"ephemeral_5m_input_tokens\":30}}") },
      { 70, -1, 30, -1, -1, -1 }, 1, 0 },

    /* the last report of them counts, also if it is lower */

    { MESSAGES, { START("{\"input_tokens\":9,\"cache_read_input_tokens\":8,"
      "\"cache_creation_input_tokens\":7,\"cache_creation\":{"
      "\"ephemeral_5m_input_tokens\":1,\"ephemeral_1h_input_tokens\":6},"
      "\"output_tokens\":9}"),
      DELTA("{\"input_tokens\":3,\"cache_read_input_tokens\":2,"
      "\"cache_creation_input_tokens\":4,\"output_tokens\":1}") },
      { 3, 2, 4, 4, 1, -1 }, 0, 0 },
    { MESSAGES, { START("{\"input_tokens\":9,\"cache_creation_input_tokens\":"
      "100}"),
      DELTA("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":30,"
      "\"ephemeral_1h_input_tokens\":20}}") },
      { 9, -1, 50, 20, -1, -1 }, 0, 0 },
    { MESSAGES, { START("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":"
      "30,\"ephemeral_1h_input_tokens\":20}}"),
      DELTA("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":3}}") },
      { -1, -1, 23, 20, -1, -1 }, 0, 0 },
    { MESSAGES, { START("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":"
      "30,\"ephemeral_1h_input_tokens\":20}}"),
      DELTA("{\"cache_creation_input_tokens\":0,\"cache_creation\":{"
      "\"ephemeral_5m_input_tokens\":0,\"ephemeral_1h_input_tokens\":0}}") },
      { -1, -1, 50, 20, -1, -1 }, 0, 0 },
    { MESSAGES, { START("{\"cache_creation\":{\"ephemeral_5m_input_tokens\":"
      "30,\"ephemeral_1h_input_tokens\":20}}"),
      DELTA("{\"cache_creation_input_tokens\":null,\"cache_creation\":null,"
      "\"input_tokens\":5}") }, { 5, -1, 50, 20, -1, -1 }, 0, 0 },

    /* messages: streams; what is present replaces, what is absent keeps */

    { MESSAGES, { START("{\"input_tokens\":10,\"output_tokens\":1}"),
      DELTA("{\"output_tokens\":20}") }, { 10, -1, -1, -1, 20, -1 }, 0, 0 },
    { MESSAGES, { START("{\"input_tokens\":9,\"cache_read_input_tokens\":5,"
      "\"cache_creation_input_tokens\":2,\"output_tokens\":1}"),
      DELTA("{\"input_tokens\":9,\"cache_read_input_tokens\":5,"
      "\"cache_creation_input_tokens\":2,\"output_tokens\":16}") },
      { 9, 5, 2, -1, 16, -1 }, 0, 0 },
    { MESSAGES, { START("{\"input_tokens\":9,\"cache_read_input_tokens\":0,"
      "\"cache_creation_input_tokens\":0,\"output_tokens\":0}"),
      DELTA("{\"cache_read_input_tokens\":3,\"output_tokens\":20}") },
      { 9, 3, 0, -1, 20, -1 }, 0, 0 },
    { MESSAGES, { START("{\"input_tokens\":10,\"cache_creation\":{"
      "\"ephemeral_1h_input_tokens\":7},\"cache_creation_input_tokens\":8}"),
      DELTA("{\"output_tokens\":2}"), DELTA("{\"output_tokens\":5}") },
      { 10, -1, 8, 7, 5, -1 }, 0, 0 },
    { MESSAGES, { START("{\"input_tokens\":10,\"output_tokens\":1}"),
      DELTA("{\"input_tokens\":11,\"output_tokens\":0}"),
      "{\"type\":\"message_stop\"}" }, { 11, -1, -1, -1, 0, -1 }, 0, 0 },
    { MESSAGES, { START("{\"input_tokens\":10,\"output_tokens\":1}"),
      DELTA("{\"input_tokens\":\"invalid\"}") },
      { 10, -1, -1, -1, 1, -1 }, 0, ODD_INPUT },
    { MESSAGES, { START("{\"input_tokens\":10,\"output_tokens\":1}"),
      DELTA("null") }, { 10, -1, -1, -1, 1, -1 }, 0, 0 },
    { MESSAGES, { START("{\"input_tokens\":10,\"output_tokens_details\":{"
      "\"thinking_tokens\":3}}") }, { 10, -1, -1, -1, -1, 3 }, 0, 0 },
    { MESSAGES, { "{\"type\":\"message_start\",\"message\":{\"model\":\"m\"}}",
      DELTA("{\"input_tokens\":3,\"output_tokens\":2}") },
      { 3, -1, -1, -1, 2, -1 }, 0, 0 },

    /* chat: the prompt has the cached part in it */

    { CHAT, { CHUNK("{\"prompt_tokens\":1000,\"completion_tokens\":50,"
      "\"total_tokens\":1050,\"prompt_tokens_details\":{\"cached_tokens\":300,"
      "\"cache_write_tokens\":200,\"audio_tokens\":0},"
      "\"completion_tokens_details\":{\"reasoning_tokens\":40}}") },
      { 500, 300, 200, -1, 50, 40 }, 0, 0 },
    { CHAT, { CHUNK("{\"prompt_tokens\":7,\"completion_tokens\":5}") },
      { 7, -1, -1, -1, 5, -1 }, 0, 0 },
    { CHAT, { CHUNK("{\"prompt_tokens\":7,\"completion_tokens\":0,"
      "\"prompt_tokens_details\":null,\"completion_tokens_details\":null}") },
      { 7, -1, -1, -1, 0, -1 }, 0, 0 },
    { CHAT, { CHUNK("{\"prompt_tokens\":7,\"prompt_tokens_details\":{"
      "\"cached_tokens\":null}}") }, { 7, -1, -1, -1, -1, -1 }, 0, 0 },
    { CHAT, { CHUNK("{\"prompt_tokens\":7,\"prompt_tokens_details\":{"
      "\"cached_tokens\":9}}") }, { 0, 9, -1, -1, -1, -1 }, 0, 0 },
    { CHAT, { CHUNK("{\"prompt_tokens\":7.5,\"completion_tokens\":\"1\"}") },
      { -1, -1, -1, -1, -1, -1 }, 0, ODD_INPUT|ODD_OUTPUT },
    { CHAT, { CHUNK("{\"prompt_tokens\":7,\"completion_tokens\":2}"),
      CHUNK("{\"prompt_tokens\":7,\"completion_tokens\":-2,"
      "\"prompt_tokens_details\":\"x\",\"completion_tokens_details\":{"
      "\"reasoning_tokens\":[]}}") }, { 7, -1, -1, -1, 2, -1 }, 0,
      ODD_OUTPUT|ODD_READ|ODD_WRITE|ODD_REASONING },
    { CHAT, { CHUNK("7"), CHUNK("{\"prompt_tokens\":7,"
      "\"completion_tokens\":2}") }, { 7, -1, -1, -1, 2, -1 }, 0, 0 },
    { CHAT, { CHUNK("null") }, { -1, -1, -1, -1, -1, -1 }, 0, 0 },

    /* on every chunk: the last one counts */

    { CHAT, { CHUNK("{\"prompt_tokens\":10,\"completion_tokens\":1,"
      "\"prompt_tokens_details\":{\"cached_tokens\":4}}"), CHUNK("null"),
      CHUNK("{\"prompt_tokens\":10,\"completion_tokens\":9,"
      "\"prompt_tokens_details\":{\"cached_tokens\":4}}") },
      { 6, 4, -1, -1, 9, -1 }, 0, 0 },

    /* in parts */

    { CHAT, { CHUNK("{\"prompt_tokens\":10}"),
      CHUNK("{\"prompt_tokens_details\":{\"cached_tokens\":4}}"),
      CHUNK("{\"completion_tokens\":2}") }, { 6, 4, -1, -1, 2, -1 }, 0, 0 },

    { 0, { NULL }, { 0, 0, 0, 0, 0, 0 }, 0, 0 }
};


static ngx_modelgw_scan_conf_t  conf;


static ngx_modelgw_scan_t *
scanner(ngx_pool_t *pool, ngx_uint_t protocol)
{
    ngx_uint_t                   n;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_skip_variant_t  *v;

    v = ngx_modelgw_skip_variants(&n);

    memset(&conf, 0xa5, sizeof(conf));
    ngx_modelgw_usage_conf(&conf, protocol, v[0].skip);

    s = ngx_modelgw_scan_create(pool, &conf);
    assert_non_null(s);

    return s;
}


static void
scan(ngx_modelgw_scan_t *s, const char *doc, size_t chunk)
{
    size_t   n, size, len;
    u_char  *piece;

    len = strlen(doc);

    ngx_modelgw_scan_reset(s);

    for (n = 0; n < len; n += size) {
        size = ngx_min(chunk, len - n);

        piece = unit_dup(doc + n, size);
        assert_int_equal(ngx_modelgw_scan_feed(s, piece, size), NGX_OK);
        unit_free(piece);
    }

    assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);
}


static void
test_merge(void **state)
{
    case_t               *c;
    size_t                chunk;
    ngx_uint_t            i, n;
    ngx_modelgw_scan_t   *s;
    ngx_modelgw_usage_t   usage;

    for (c = cases; c->protocol; c++) {
        s = scanner(*state, c->protocol);

        for (i = 0; (chunk = unit_chunk(i, 4096)) != 0; i++) {
            ngx_modelgw_usage_init(&usage);
            usage.input_has_cache = c->input_has_cache;

            for (n = 0; n < 4 && c->docs[n]; n++) {
                scan(s, c->docs[n], chunk);
                ngx_modelgw_usage_merge(&usage, c->protocol, s);
            }

            assert_int_equal(usage.odd, c->odd);
            assert_int_equal(usage.input, c->usage.input);
            assert_int_equal(usage.cache_read, c->usage.cache_read);
            assert_int_equal(usage.cache_write, c->usage.cache_write);
            assert_int_equal(usage.cache_write_1h, c->usage.cache_write_1h);
            assert_int_equal(usage.output, c->usage.output);
            assert_int_equal(usage.reasoning, c->usage.reasoning);
        }
    }
}


static void
test_kind_and_model(void **state)
{
    off_t                 from, to;
    size_t                chunk;
    ngx_int_t             rc;
    ngx_uint_t            i, n, kind;
    const char           *model;
    ngx_modelgw_scan_t   *s;
    ngx_modelgw_usage_t   usage;

    static struct {
        ngx_uint_t   protocol;
        const char  *doc;
        ngx_uint_t   kind;
        const char  *model;
    } c[] = {
        { MESSAGES, MESSAGE("{}"), OTHER, "\"m\"" },
        { MESSAGES, START("{}"), OTHER, "\"m\"" },
        { MESSAGES, DELTA("{}"), OTHER, NULL },
        { MESSAGES, "{\"type\":\"message_stop\"}", STOP, NULL },
        { MESSAGES, "{\"type\":\"message\\u005fstop\"}", STOP, NULL },
        { MESSAGES, "{\"type\":\"message_stopped\"}", OTHER, NULL },
        { MESSAGES, "{\"type\":\"ping\"}", OTHER, NULL },
        { MESSAGES, "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
          "{\"type\":\"error\",\"model\":\"x\",\"text\":\"error\"}}", OTHER,
          NULL },
        { MESSAGES, "{\"type\":\"error\",\"error\":{\"type\":\"x\"}}", ERROR,
          NULL },
        { MESSAGES, "{\"type\":\"error\"}", ERROR, NULL },
        { MESSAGES, "{\"error\":{}}", ERROR, NULL },
        { MESSAGES, "{\"error\":null}", OTHER, NULL },
        { MESSAGES, "{\"error\":\"x\"}", OTHER, NULL },
        { MESSAGES, "{\"type\":7,\"model\":7}", OTHER, NULL },
        { MESSAGES, "{\"model\" : \"a\\u0062\" }", OTHER, "\"a\\u0062\"" },
        { MESSAGES, "{\"message\":{\"x\":{\"model\":\"a\"}}}", OTHER, NULL },
        { MESSAGES, "{\"message\":{\"model\":\"a\"},\"model\":\"b\"}", OTHER,
          "\"b\"" },
        { MESSAGES, "{\"input_tokens\":5}", OTHER, NULL },

        { CHAT, CHUNK("null"), OTHER, "\"m\"" },
        { CHAT, CHUNK("{\"prompt_tokens\":1}"), OTHER, "\"m\"" },
        { CHAT, "{\"choices\":[],\"usage\":{\"prompt_tokens\":1},\"model\":"
          "\"m\"}", USAGE, "\"m\"" },
        { CHAT, "{\"usage\":{},\"choices\":[ ]}", USAGE, NULL },
        { CHAT, "{\"choices\":[],\"usage\":null}", OTHER, NULL },
        { CHAT, "{\"choices\":[],\"prompt_filter_results\":[{}]}", OTHER,
          NULL },
        { CHAT, "{\"choices\":{},\"usage\":{}}", OTHER, NULL },
        { CHAT, "{\"usage\":{}}", OTHER, NULL },
        { CHAT, "{\"choices\":[[]],\"usage\":{}}", OTHER, NULL },
        { CHAT, "{\"error\":{\"message\":\"x\"}}", ERROR, NULL },
        { CHAT, "{\"error\":\"x\"}", ERROR, NULL },
        { CHAT, "{\"error\":null,\"choices\":[{}]}", OTHER, NULL },
        { CHAT, "{\"error\":false}", OTHER, NULL },
        { CHAT, "{\"choices\":[],\"usage\":{},\"error\":{}}", ERROR, NULL },
        { CHAT, "{\"type\":\"message_stop\"}", OTHER, NULL },
        { CHAT, "{\"message\":{\"model\":\"x\"}}", OTHER, NULL },
    };

    for (n = 0; n < sizeof(c) / sizeof(c[0]); n++) {
        s = scanner(*state, c[n].protocol);

        for (i = 0; (chunk = unit_chunk(i, strlen(c[n].doc))) != 0; i++) {
            scan(s, c[n].doc, chunk);

            ngx_modelgw_usage_init(&usage);
            kind = ngx_modelgw_usage_merge(&usage, c[n].protocol, s);
            assert_int_equal(kind, c[n].kind);

            model = c[n].model;
            rc = ngx_modelgw_usage_model(&usage, c[n].protocol, s, &from, &to);
            assert_int_equal(rc, model ? NGX_OK : NGX_DECLINED);

            if (model) {
                unit_assert_str((u_char *) c[n].doc + from, to - from, model);
            }
        }
    }
}


#define REPORT                                                                \
    "{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":30,"   \
    "\"cache_write_tokens\":20},\"output_tokens\":9,"                         \
    "\"output_tokens_details\":{\"reasoning_tokens\":4}}"

#define EVENT(type)                                                           \
    "{\"type\":\"" type "\",\"sequence_number\":7,\"model\":\"x\",\"usage\":"  \
    "{\"input_tokens\":1,\"output_tokens\":1},\"response\":{\"id\":\"r\","     \
    "\"model\":\"m\",\"output\":[],\"error\":{\"code\":\"c\"},\"usage\":"     \
    REPORT "},\"error\":{}}"

#define NONE  { -1, -1, -1, -1, -1, -1 }
#define ALL   { 50, 30, 20, 0, 9, 4 }


/* in events only "response" counts, and only in the last one */

static void
test_responses(void **state)
{
    off_t                      from, to;
    size_t                     chunk;
    ngx_int_t                  rc;
    ngx_uint_t                 i, n, kind;
    ngx_modelgw_scan_t        *s;
    ngx_modelgw_usage_t        usage;
    ngx_modelgw_scan_value_t  *v;

    static struct {
        ngx_uint_t   events;
        const char  *doc;
        ngx_uint_t   kind;
        const char  *model;
        tokens_t     usage;
        ngx_uint_t   final;
    } c[] = {
        { 1, EVENT("response.completed"), STOP, "\"m\"", ALL, 1 },
        { 1, EVENT("response.incomplete"), STOP, "\"m\"", ALL, 1 },
        { 1, EVENT("response.failed"), NGX_MODELGW_DOC_FAILED, "\"m\"", ALL,
          1 },
        { 1, EVENT("response.c\\u006fmpleted"), STOP, "\"m\"", ALL, 1 },
        { 1, EVENT("response.created"), OTHER, "\"m\"", NONE, 0 },
        { 1, EVENT("response.output_item.added"), NGX_MODELGW_DOC_BEGIN,
          "\"m\"", NONE, 0 },
        { 1, EVENT("response.output_item.done"), NGX_MODELGW_DOC_ITEM,
          "\"m\"", NONE, 0 },
        { 1, EVENT("response.output_text.delta"), NGX_MODELGW_DOC_DELTA,
          "\"m\"", NONE, 0 },
        { 1, EVENT("response.output_text.done"), NGX_MODELGW_DOC_DONE,
          "\"m\"", NONE, 0 },
        { 1, EVENT(".done"), OTHER, "\"m\"", NONE, 0 },
        { 1, EVENT("response.completed.delta"), NGX_MODELGW_DOC_DELTA,
          "\"m\"", NONE, 0 },
        { 1, EVENT("error"), ERROR, "\"m\"", NONE, 0 },
        { 1, EVENT(".delta"), OTHER, "\"m\"", NONE, 0 },
        { 1, EVENT(""), OTHER, "\"m\"", NONE, 0 },
        { 1, "{\"error\":{}}", ERROR, NULL, NONE, 0 },
        { 1, "{\"error\":\"x\"}", ERROR, NULL, NONE, 0 },
        { 1, "{\"error\":null}", OTHER, NULL, NONE, 0 },
        { 1, "{\"model\":\"m\",\"usage\":" REPORT "}", OTHER, NULL, NONE, 0 },
        { 1, "{\"type\":7,\"response\":{\"usage\":" REPORT "}}", OTHER, NULL,
          NONE, 0 },
        { 1, "{\"type\":\"response.completed\",\"response\":{\"usage\":null}}",
          STOP, NULL, NONE, 0 },
        { 1, "{\"type\":\"response.completed\",\"usage\":" REPORT "}", STOP,
          NULL, NONE, 0 },
        { 1, "{\"type\":\"response.completed\",\"response\":{\"usage\":"
          "{\"input_tokens\":5,\"output_tokens\":0}}}", STOP, NULL,
          { 5, -1, -1, -1, 0, -1 }, 1 },

        { 0, "{\"model\":\"m\",\"error\":null,\"usage\":" REPORT "}", OTHER,
          "\"m\"", ALL, 1 },
        { 0, "{\"type\":\"response.completed\",\"model\":\"m\",\"response\":"
          "{\"model\":\"x\",\"usage\":" REPORT "}}", OTHER, "\"m\"", NONE, 0 },
        { 0, "{\"type\":\"error\"}", OTHER, NULL, NONE, 0 },
        { 0, "{\"error\":{},\"usage\":" REPORT "}", ERROR, NULL, ALL, 1 },
    };

    for (n = 0; n < sizeof(c) / sizeof(c[0]); n++) {
        s = scanner(*state, RESPONSES);

        for (i = 0; (chunk = unit_chunk(i, strlen(c[n].doc))) != 0; i++) {
            scan(s, c[n].doc, chunk);

            ngx_modelgw_usage_init(&usage);
            usage.events = c[n].events;

            kind = ngx_modelgw_usage_merge(&usage, RESPONSES, s);
            ngx_modelgw_usage_end(&usage, RESPONSES);

            assert_int_equal(kind, c[n].kind);
            assert_int_equal(usage.final, c[n].final);
            assert_int_equal(usage.odd, 0);
            assert_int_equal(usage.input, c[n].usage.input);
            assert_int_equal(usage.cache_read, c[n].usage.cache_read);
            assert_int_equal(usage.cache_write, c[n].usage.cache_write);
            assert_int_equal(usage.output, c[n].usage.output);
            assert_int_equal(usage.reasoning, c[n].usage.reasoning);

            rc = ngx_modelgw_usage_model(&usage, RESPONSES, s, &from, &to);
            assert_int_equal(rc, c[n].model ? NGX_OK : NGX_DECLINED);

            if (c[n].model) {
                unit_assert_str((u_char *) c[n].doc + from, to - from,
                                c[n].model);
            }
        }
    }

    usage.events = 1;

    scan(s, EVENT("x"), 4096);

    v = ngx_modelgw_usage_part(&usage, s, NGX_MODELGW_PART_SEQUENCE);
    unit_assert_str(v->text, v->len, "7");

    v = ngx_modelgw_usage_part(&usage, s, NGX_MODELGW_PART_ID);
    unit_assert_str(v->text, v->len, "r");

    v = ngx_modelgw_usage_part(&usage, s, NGX_MODELGW_PART_OUTPUT);
    assert_int_equal(v->to - v->from, 2);

    v = ngx_modelgw_usage_part(&usage, s, NGX_MODELGW_PART_ERROR);
    assert_int_equal(v->to - v->from, 12);

    v = ngx_modelgw_usage_part(&usage, s, NGX_MODELGW_PART_ITEM);
    assert_int_equal(v->type, NGX_MODELGW_SCAN_ABSENT);

    scan(s, "{\"sequence_number\":1.5,\"item\":{}}", 4096);

    v = ngx_modelgw_usage_part(&usage, s, NGX_MODELGW_PART_SEQUENCE);
    assert_int_equal(v->type, NGX_MODELGW_SCAN_ABSENT);

    v = ngx_modelgw_usage_part(&usage, s, NGX_MODELGW_PART_ITEM);
    assert_int_equal(v->to - v->from, 2);
}


/* which document reported the output */

static void
test_final(void **state)
{
    ngx_uint_t            i, n;
    ngx_modelgw_scan_t   *s;
    ngx_modelgw_usage_t   usage;

    static struct {
        ngx_uint_t   protocol;
        const char  *docs[2];
        ngx_uint_t   final;
    } c[] = {
        { MESSAGES, { MESSAGE("{\"output_tokens\":5}"), NULL }, 1 },
        { MESSAGES, { START("{\"output_tokens\":5}"), NULL }, 0 },
        { MESSAGES, { START("{\"output_tokens\":5}"),
          DELTA("{\"output_tokens\":0}") }, 1 },
        { MESSAGES, { START("{\"output_tokens\":5}"),
          DELTA("{\"input_tokens\":5}") }, 0 },
        { MESSAGES, { DELTA("{\"output_tokens\":null}"), NULL }, 0 },
        { MESSAGES, { DELTA("{\"output_tokens\":5}"),
          DELTA("{\"output_tokens\":\"5\"}") }, 0 },
        { MESSAGES, { DELTA("{\"output_tokens\":\"5\"}"),
          DELTA("{\"output_tokens\":5}") }, 1 },
        { MESSAGES, { DELTA("{\"output_tokens\":5}"),
          "{\"type\":\"message_stop\"}" }, 1 },

        { CHAT, { CHUNK("{\"completion_tokens\":5}"), NULL }, 0 },
        { CHAT, { "{\"choices\":[],\"usage\":{\"completion_tokens\":5}}",
          NULL }, 1 },
        { CHAT, { "{\"usage\":{\"completion_tokens\":5},\"choices\":[ ]}",
          CHUNK("null") }, 1 },
        { CHAT, { "{\"usage\":{\"completion_tokens\":5}}", NULL }, 1 },
        { CHAT, { "{\"choices\":[],\"usage\":{\"prompt_tokens\":5}}",
          NULL }, 0 },
        { CHAT, { "{\"choices\":[],\"usage\":null}", NULL }, 0 },
        { CHAT, { CHUNK("null"), "{\"choices\":[]}" }, 0 },
        { CHAT, { "{\"usage\":{\"completion_tokens\":5}}",
          "{\"usage\":{\"completion_tokens\":5.5}}" }, 0 },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        s = scanner(*state, c[i].protocol);
        ngx_modelgw_usage_init(&usage);
        assert_int_equal(usage.final, 0);

        for (n = 0; n < 2 && c[i].docs[n]; n++) {
            scan(s, c[i].docs[n], 4096);
            ngx_modelgw_usage_merge(&usage, c[i].protocol, s);
        }

        if (usage.final != c[i].final) {
            print_error("%s\n", c[i].docs[0]);
            fail();
        }
    }
}


/* the end makes what chat has reported with its choices final */

static void
test_end(void **state)
{
    ngx_uint_t            i;
    ngx_modelgw_scan_t   *s;
    ngx_modelgw_usage_t   usage;

    static struct {
        ngx_uint_t   protocol;
        const char  *doc;
        ngx_uint_t   final;
    } c[] = {
        { CHAT, CHUNK("{\"completion_tokens\":5}"), 1 },
        { CHAT, CHUNK("{\"completion_tokens\":\"5\"}"), 0 },
        { CHAT, CHUNK("{\"prompt_tokens\":5}"), 0 },
        { MESSAGES, START("{\"output_tokens\":5}"), 0 },
        { MESSAGES, MESSAGE("{\"output_tokens\":5}"), 1 },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        s = scanner(*state, c[i].protocol);
        scan(s, c[i].doc, 4096);

        ngx_modelgw_usage_init(&usage);
        ngx_modelgw_usage_merge(&usage, c[i].protocol, s);
        ngx_modelgw_usage_end(&usage, c[i].protocol);

        assert_int_equal(usage.final, c[i].final);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_merge),
        unit_case(test_kind_and_model),
        unit_case(test_responses),
        unit_case(test_final),
        unit_case(test_end),
    };

    return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
