
/*
 * Which choices of a chat stream have ended, event by event.
 */


#include "unit.h"

#include "ngx_modelgw_text.h"


#define CHOICE(index)  "{\"index\":" index ",\"finish_reason\":\"stop\"}"
#define EVENT(choices)  "{\"id\":\"x\",\"choices\":[" choices "]}"


static void
event(ngx_modelgw_choices_t *choices, ngx_modelgw_tape_t *tape, const char *p)
{
    ngx_modelgw_tape_reset(tape);

    assert_int_equal(ngx_modelgw_tape_feed(tape, (u_char *) p, strlen(p)),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_tape_done(tape, (u_char *) p), NGX_OK);

    ngx_modelgw_choices_end(choices, tape);
}


static void
test_ends(void **state)
{
    ngx_uint_t              i, k, n;
    ngx_modelgw_tape_t      tape;
    ngx_modelgw_choices_t   choices;

    static struct {
        ngx_uint_t   n;
        const char  *events[3];
    } c[] = {
        { 0, { EVENT("") } },
        { 0, { EVENT("{\"index\":0,\"finish_reason\":null}") } },
        { 0, { EVENT("{\"index\":0,\"finish_reason\":\"\"}") } },
        { 0, { EVENT("{\"index\":0,\"finish_reason\":7}") } },
        { 0, { EVENT("{\"index\":0,\"delta\":{\"finish_reason\":\"a\"}}") } },
        { 0, { "{\"finish_reason\":\"stop\"}" } },
        { 0, { "{\"choices\":null}", "{\"choices\":\"stop\"}", "[]" } },
        { 0, { EVENT("null,7,\"finish_reason\",[\"finish_reason\",\"a\"]") } },

        { 1, { EVENT(CHOICE("0")) } },
        { 2, { EVENT(CHOICE("0")), EVENT(CHOICE("1")) } },
        { 2, { EVENT(CHOICE("0") "," CHOICE("1")) } },
        { 2, { EVENT(CHOICE("63")), EVENT(CHOICE("64")) } },
        { 2, { EVENT(CHOICE("0")), EVENT(CHOICE("64")) } },
        { 1, { EVENT("{\"finish_reason\":\"a\",\"x\":[{}],\"index\":1}"),
               EVENT(CHOICE("1")) } },

        /* once each */

        { 1, { EVENT(CHOICE("0")), EVENT(CHOICE("0")), EVENT(CHOICE("0")) } },
        { 1, { EVENT(CHOICE("1") "," CHOICE("1")), EVENT(CHOICE("1")) } },
        { 2, { EVENT(CHOICE("1")), EVENT(CHOICE("0")), EVENT(CHOICE("1")) } },
        { 1, { EVENT(CHOICE("127")), EVENT(CHOICE("127")) } },

        /* without an index, and with an invalid one */

        { 1, { EVENT("{\"finish_reason\":\"stop\"}"), EVENT(CHOICE("0")) } },
        { 0, { EVENT(CHOICE("128")), EVENT(CHOICE("129")) } },
        { 0, { EVENT(CHOICE("4294967296")), EVENT(CHOICE("-1")) } },
        { 0, { EVENT(CHOICE("0.5")), EVENT(CHOICE("\"0\"")),
               EVENT(CHOICE("null")) } }
    };

    ngx_modelgw_tape_init(&tape, *state, ngx_modelgw_skip_variants(&n)[0].skip);

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        ngx_memzero(&choices, sizeof(ngx_modelgw_choices_t));

        for (k = 0; k < 3 && c[i].events[k]; k++) {
            event(&choices, &tape, c[i].events[k]);
        }

        if (choices.n != c[i].n) {
            print_error("%s: %d instead of %d\n", c[i].events[0],
                        (int) choices.n, (int) c[i].n);
            fail();
        }
    }
}


static void
test_all(void **state)
{
    u_char                  text[128];
    ngx_uint_t              i, n;
    ngx_modelgw_tape_t      tape;
    ngx_modelgw_choices_t   choices;

    ngx_modelgw_tape_init(&tape, *state, ngx_modelgw_skip_variants(&n)[0].skip);
    ngx_memzero(&choices, sizeof(ngx_modelgw_choices_t));

    for (i = 0; i < 3 * NGX_MODELGW_CHOICES_MAX; i++) {
        ngx_sprintf(text, EVENT("{\"index\":%ui,\"finish_reason\":\"a\"}") "%Z",
                    (i * 7) % (NGX_MODELGW_CHOICES_MAX + 1));
        event(&choices, &tape, (char *) text);
    }

    assert_int_equal(choices.n, NGX_MODELGW_CHOICES_MAX);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_ends),
        unit_case(test_all),
    };

    return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
