
/*
 * The request codec: temperature, top_p, top_k and stop; their ranges, to the
 * last digit, and what models accept.
 */


#include "unit_request.h"


#define BAD_TEMPERATURE  INVALID "\"temperature\" must be from 0 to 2"
#define BAD_TOP_P        INVALID "\"top_p\" must be from 0 to 1"

static case_t  sampling[] = {
    { "\"temperature\":0", ",\"temperature\":0" },
    { "\"temperature\":-0", ",\"temperature\":-0" },
    { "\"temperature\":-0.00e-7", ",\"temperature\":-0.00e-7" },
    { "\"temperature\":0.1", ",\"temperature\":0.1" },
    { "\"temperature\":0.10000000000000000555",
      ",\"temperature\":0.10000000000000000555" },
    { "\"temperature\":1", ",\"temperature\":1" },
    { "\"temperature\":1.0", ",\"temperature\":1.0" },
    { "\"temperature\":1e0", ",\"temperature\":1e0" },
    { "\"temperature\":100E-2", ",\"temperature\":100E-2" },
    { "\"temperature\":0.0001e+4", ",\"temperature\":0.0001e+4" },
    { "\"temperature\":1.0000000000000000000000001", ",\"temperature\":1" },
    { "\"temperature\":1.5", ",\"temperature\":1" },
    { "\"temperature\":2", ",\"temperature\":1" },
    { "\"temperature\":2.000e0", ",\"temperature\":1" },
    { "\"temperature\":20e-1", ",\"temperature\":1" },
    { "\"temperature\":1e-400", ",\"temperature\":1e-400" },
    { "\"temperature\":0e999999999999999999999999",
      ",\"temperature\":0e999999999999999999999999" },
    { "\"temperature\":1e-99999999999999999999999999",
      ",\"temperature\":1e-99999999999999999999999999" },
    { "\"temperature\":2.0000000000000000000000001", BAD_TEMPERATURE },
    { "\"temperature\":2.5", BAD_TEMPERATURE },
    { "\"temperature\":3", BAD_TEMPERATURE },
    { "\"temperature\":10", BAD_TEMPERATURE },
    { "\"temperature\":1e1", BAD_TEMPERATURE },
    { "\"temperature\":0.0003e4", BAD_TEMPERATURE },
    { "\"temperature\":1e99999999999999999999999999", BAD_TEMPERATURE },
    { "\"temperature\":-2.5", BAD_TEMPERATURE },
    { "\"temperature\":-1e-400", BAD_TEMPERATURE },
    { "\"top_p\":0.9", ",\"top_p\":0.9" },
    { "\"top_p\":1.00", ",\"top_p\":1.00" },
    { "\"top_p\":1.01", BAD_TOP_P },
    { "\"top_p\":-0.1", BAD_TOP_P },
    { "\"top_k\":40,\"top_p\":0.5,\"temperature\":0.5",
      ",\"temperature\":0.5,\"top_p\":0.5,\"top_k\":40" },
    { "\"top_k\":-1",
      INVALID "\"top_k\" must be an integer from 0 to 999999999" },
    { "\"top_k\":1.5",
      INVALID "\"top_k\" must be an integer from 0 to 999999999" },
    { NULL, NULL }
};


static void
test_sampling(void **state)
{
    static const char  all[] =
        "\"temperature\":0.7,\"top_p\":0.9,\"top_k\":40";
    static const char  ones[] =
        "\"temperature\":2,\"top_p\":1.0,\"top_k\":1";

    check_all(*state, sampling);

    caps.sampling = NGX_MODELGW_SAMPLING_ONE_OF;

    check(*state, all, ",\"temperature\":0.7,\"top_k\":40");
    check_ignored(*state, all, "top_p");
    check(*state, "\"top_p\":0.9", ",\"top_p\":0.9");

    caps.sampling = NGX_MODELGW_SAMPLING_NONE;

    check(*state, all, "");
    check_ignored(*state, all, "top_p,temperature,top_k");
    check_ignored(*state, ones, "top_k");
    check(*state, "\"temperature\":3", BAD_TEMPERATURE);
}


static case_t  stops[] = {
    { "\"stop\":\"END\"", ",\"stop_sequences\":[\"END\"]" },
    { "\"stop\":[\"a\\u0062\",\"c\"]",
      ",\"stop_sequences\":[\"a\\u0062\",\"c\"]" },
    { "\"stop\":[\"\\n\\n\",\"END\",\" \",\"\",\"\\u0020x\"]",
      ",\"stop_sequences\":[\"END\",\"\\u0020x\"]" },
    { "\"stop\":[\" \",\"\\t\"]", "" },
    { "\"stop\":\" \"", "" },
    { "\"stop\":[]", "" },
    { "\"stop\":[\"a\",null]", INVALID "stop[1] must be a string" },
    { NULL, NULL }
};


static void
test_stop(void **state)
{
    check_all(*state, stops);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        request_case(test_sampling),
        request_case(test_stop)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
