
/*
 * The scanner's check of JSON.  The cases are named like those of
 * JSONTestSuite: y_ must pass, n_ must be refused, i_ is left open by RFC 8259
 * and its row has our result.  Each is a value in an object, since the root
 * must be one.
 */


#include "unit_scan.h"

#include <time.h>


#define U(text)  text, sizeof(text) - 1


typedef struct {
    const char  *name;
    const char  *text;
    size_t       len;
    ngx_uint_t   accept;
} case_t;


static case_t  cases[] = {
    { "y_array_arraysWithSpaces", U("[[]   ]"),1 },
    { "y_array_empty", U("[]"),1 },
    { "y_array_empty-string", U("[\"\"]"),1 },
    { "y_array_false", U("[false]"),1 },
    { "y_array_heterogeneous", U("[null, 1, \"1\", {}]"),1 },
    { "y_array_with_1_and_newline", U("[1\n]"),1 },
    { "y_array_with_leading_space", U(" [1]"),1 },
    { "y_array_with_several_null", U("[1,null,null,null,2]"),1 },
    { "y_array_with_trailing_space", U("[2] "),1 },
    { "y_number", U("[123e65]"),1 },
    { "y_number_0e+1", U("[0e+1]"),1 },
    { "y_number_0e1", U("[0e1]"),1 },
    { "y_number_after_space", U("[ 4]"),1 },
    { "y_number_double_close_to_zero",
      U("[-0.000000000000000000000000000000000000000000000000000000001]"),1 },
    { "y_number_int_with_exp", U("[20e1]"),1 },
    { "y_number_minus_zero", U("[-0]"),1 },
    { "y_number_negative_int", U("[-123]"),1 },
    { "y_number_negative_one", U("[-1]"),1 },
    { "y_number_real_capital_e", U("[1E22]"),1 },
    { "y_number_real_capital_e_neg_exp", U("[1E-2]"),1 },
    { "y_number_real_capital_e_pos_exp", U("[1E+2]"),1 },
    { "y_number_real_exponent", U("[123e45]"),1 },
    { "y_number_real_fraction_exponent", U("[123.456e78]"),1 },
    { "y_number_simple_int", U("[123]"),1 },
    { "y_number_simple_real", U("[123.456789]"),1 },
    { "y_number_bare", U("-0.1E-07"),1 },
    { "y_object", U("{\"asd\":\"sdf\", \"dfg\":\"fgh\"}"),1 },
    { "y_object_duplicated_key", U("{\"a\":\"b\",\"a\":\"c\"}"),1 },
    { "y_object_empty", U("{}"),1 },
    { "y_object_empty_key", U("{\"\":0}"),1 },
    { "y_object_escaped_null_in_key", U("{\"foo\\u0000bar\": 42}"),1 },
    { "y_object_extreme_numbers",
      U("{ \"min\": -1.0e+28, \"max\": 1.0e+28 }"),1 },
    { "y_object_with_newlines", U("{\r\n\"a\":\t\"b\"\n}"),1 },
    { "y_string_1_2_3_bytes_UTF-8", U("[\"\\u0060\\u012a\\u12AB\"]"),1 },
    { "y_string_accepted_surrogate_pair", U("[\"\\uD801\\udc37\"]"),1 },
    { "y_string_accepted_surrogate_pairs",
      U("[\"\\ud83d\\ude39\\ud83d\\udc8d\"]"),1 },
    { "y_string_allowed_escapes", U("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]"),1 },
    { "y_string_backslash_and_u_escaped_zero", U("[\"\\\\u0000\"]"),1 },
    { "y_string_comments", U("[\"a/*b*/c/*d//e\"]"),1 },
    { "y_string_escaped_control_character", U("[\"\\u0012\"]"),1 },
    { "y_string_escaped_noncharacter", U("[\"\\uFFFF\"]"),1 },
    { "y_string_last_surrogates_1_and_2", U("[\"\\uDBFF\\uDFFF\"]"),1 },
    { "y_string_nonCharacter_U+10FFFF", U("[\"\xf4\x8f\xbf\xbf\"]"),1 },
    { "y_string_nonCharacter_U+FFFF", U("[\"\xef\xbf\xbf\"]"),1 },
    { "y_string_null_escape", U("[\"\\u0000\"]"),1 },
    { "y_string_pi", U("[\"\xcf\x80\"]"),1 },
    { "y_string_reserved_U+1BFFF", U("[\"\xf0\x9b\xbf\xbf\"]"),1 },
    { "y_string_u+2028_line_sep", U("[\"\xe2\x80\xa8\"]"),1 },
    { "y_string_unescaped_char_delete", U("[\"\x7f\"]"),1 },
    { "y_string_utf8", U("[\"\xe2\x82\xac\xf0\x9d\x84\x9e\"]"),1 },
    { "y_structure_trailing_newline", U("[\"a\"]\n"),1 },
    { "y_structure_true_in_array", U("[true]"),1 },
    { "y_structure_whitespace_array", U(" \t\r\n[] "),1 },

    { "n_array_1_true_without_comma", U("[1 true]"), 0 },
    { "n_array_a_invalid_utf8", U("[a\xe5]"), 0 },
    { "n_array_colon_instead_of_comma", U("[\"\": 1]"), 0 },
    { "n_array_comma_after_close", U("[\"\"],"), 0 },
    { "n_array_comma_and_number", U("[,1]"), 0 },
    { "n_array_double_comma", U("[1,,2]"), 0 },
    { "n_array_double_extra_comma", U("[\"x\",,]"), 0 },
    { "n_array_extra_close", U("[\"x\"]]"), 0 },
    { "n_array_extra_comma", U("[\"\",]"), 0 },
    { "n_array_incomplete", U("[\"x\""), 0 },
    { "n_array_incomplete_invalid_value", U("[x"), 0 },
    { "n_array_inner_array_no_comma", U("[3[4]]"), 0 },
    { "n_array_invalid_utf8", U("[\xff]"), 0 },
    { "n_array_items_separated_by_semicolon", U("[1:2]"), 0 },
    { "n_array_just_comma", U("[,]"), 0 },
    { "n_array_just_minus", U("[-]"), 0 },
    { "n_array_missing_value", U("[   , \"\"]"), 0 },
    { "n_array_newlines_unclosed", U("[\"a\",\n4\n,1,"), 0 },
    { "n_array_number_and_comma", U("[1,]"), 0 },
    { "n_array_spaces_vertical_tab_formfeed", U("[\"\x0b" "a\"\\f]"), 0 },
    { "n_array_star_inside", U("[*]"), 0 },
    { "n_array_unclosed", U("[\"\""), 0 },
    { "n_incomplete_false", U("[fals]"), 0 },
    { "n_incomplete_null", U("[nul]"), 0 },
    { "n_incomplete_true", U("[tru]"), 0 },
    { "n_incomplete_long_true", U("[truee]"), 0 },
    { "n_multidigit_number_then_00", U("123\0"), 0 },
    { "n_number_++", U("[++1234]"), 0 },
    { "n_number_+1", U("[+1]"), 0 },
    { "n_number_+Inf", U("[+Inf]"), 0 },
    { "n_number_-01", U("[-01]"), 0 },
    { "n_number_-1.0.", U("[-1.0.]"), 0 },
    { "n_number_-2.", U("[-2.]"), 0 },
    { "n_number_-NaN", U("[-NaN]"), 0 },
    { "n_number_.-1", U("[.-1]"), 0 },
    { "n_number_.2e-3", U("[.2e-3]"), 0 },
    { "n_number_0.1.2", U("[0.1.2]"), 0 },
    { "n_number_0.3e+", U("[0.3e+]"), 0 },
    { "n_number_0.3e", U("[0.3e]"), 0 },
    { "n_number_0.e1", U("[0.e1]"), 0 },
    { "n_number_0_capital_E+", U("[0E+]"), 0 },
    { "n_number_0_capital_E", U("[0E]"), 0 },
    { "n_number_1.0e+", U("[1.0e+]"), 0 },
    { "n_number_1.0e-", U("[1.0e-]"), 0 },
    { "n_number_1_000", U("[1 000.0]"), 0 },
    { "n_number_1eE2", U("[1eE2]"), 0 },
    { "n_number_2.e+3", U("[2.e+3]"), 0 },
    { "n_number_9.e+", U("[9.e+]"), 0 },
    { "n_number_Inf", U("[Inf]"), 0 },
    { "n_number_NaN", U("[NaN]"), 0 },
    { "n_number_U+FF11_fullwidth", U("[\xef\xbc\x91]"), 0 },
    { "n_number_expression", U("[1+2]"), 0 },
    { "n_number_hex_1_digit", U("[0x1]"), 0 },
    { "n_number_infinity", U("[Infinity]"), 0 },
    { "n_number_invalid+-", U("[0e+-1]"), 0 },
    { "n_number_invalid-negative-real", U("[-123.123foo]"), 0 },
    { "n_number_invalid-utf-8-in-int", U("[0\xe5]"), 0 },
    { "n_number_invalid-utf-8-in-exponent", U("[1e1\xe5]"), 0 },
    { "n_number_minus_infinity", U("[-Infinity]"), 0 },
    { "n_number_minus_space_1", U("[- 1]"), 0 },
    { "n_number_neg_int_starting_with_zero", U("[-012]"), 0 },
    { "n_number_neg_real_without_int_part", U("[-.123]"), 0 },
    { "n_number_real_garbage_after_e", U("[1ea]"), 0 },
    { "n_number_real_without_fractional_part", U("[1.]"), 0 },
    { "n_number_starting_with_dot", U("[.123]"), 0 },
    { "n_number_with_alpha", U("[1.2a-3]"), 0 },
    { "n_number_with_leading_zero", U("[012]"), 0 },
    { "n_number_two_signs", U("[--1]"), 0 },
    { "n_object_bracket_key", U("{[: \"x\"}"), 0 },
    { "n_object_comma_instead_of_colon", U("{\"x\", null}"), 0 },
    { "n_object_double_colon", U("{\"x\"::\"b\"}"), 0 },
    { "n_object_garbage_at_end", U("{\"a\":\"a\" 123}"), 0 },
    { "n_object_key_with_single_quotes", U("{key: 'value'}"), 0 },
    { "n_object_lone_continuation_byte_in_key",
      U("{\"\xb9\":\"0\",}"), 0 },
    { "n_object_missing_colon", U("{\"a\" b}"), 0 },
    { "n_object_missing_key", U("{:\"b\"}"), 0 },
    { "n_object_missing_semicolon", U("{\"a\" \"b\"}"), 0 },
    { "n_object_missing_value", U("{\"a\":"), 0 },
    { "n_object_no-colon", U("{\"a\""), 0 },
    { "n_object_non_string_key", U("{1:1}"), 0 },
    { "n_object_repeated_null_null", U("{null:null,null:null}"), 0 },
    { "n_object_several_trailing_commas", U("{\"id\":0,,,,,}"), 0 },
    { "n_object_single_quote", U("{'a':0}"), 0 },
    { "n_object_trailing_comma", U("{\"id\":0,}"), 0 },
    { "n_object_trailing_comment", U("{\"a\":\"b\"}/**/"), 0 },
    { "n_object_trailing_comment_slash", U("{\"a\":\"b\"}//"), 0 },
    { "n_object_two_commas_in_a_row", U("{\"a\":\"b\",,\"c\":\"d\"}"), 0 },
    { "n_object_unquoted_key", U("{a: \"b\"}"), 0 },
    { "n_object_unterminated-value", U("{\"a\":\"a"), 0 },
    { "n_object_with_single_string", U("{ \"foo\" : \"bar\", \"a\" }"), 0 },
    { "n_object_with_trailing_garbage", U("{\"a\":\"b\"}#"), 0 },
    { "n_single_space", U(" "), 0 },
    { "n_string_1_surrogate_then_escape", U("[\"\\uD800\\\"]"), 0 },
    { "n_string_1_surrogate_then_escape_u", U("[\"\\uD800\\u\"]"), 0 },
    { "n_string_1_surrogate_then_escape_u1", U("[\"\\uD800\\u1\"]"), 0 },
    { "n_string_1_surrogate_then_escape_u1x", U("[\"\\uD800\\u1x\"]"), 0 },
    { "n_string_accentuated_char_no_quotes", U("[\xc3\xa9]"), 0 },
    { "n_string_backslash_00", U("[\"\\\0\"]"), 0 },
    { "n_string_escape_x", U("[\"\\x00\"]"), 0 },
    { "n_string_escaped_backslash_bad", U("[\"\\\\\\\"]"), 0 },
    { "n_string_escaped_ctrl_char_tab", U("[\"\\\t\"]"), 0 },
    { "n_string_escaped_emoji", U("[\"\\\xf0\x9f\x8c\x80\"]"), 0 },
    { "n_string_incomplete_escape", U("[\"\\\"]"), 0 },
    { "n_string_incomplete_escaped_character", U("[\"\\u00A\"]"), 0 },
    { "n_string_incomplete_surrogate", U("[\"\\uD834\\uDd\"]"), 0 },
    { "n_string_invalid-utf-8-in-escape", U("[\"\\u\xe5\"]"), 0 },
    { "n_string_invalid_backslash_esc", U("[\"\\a\"]"), 0 },
    { "n_string_invalid_unicode_escape", U("[\"\\uqqqq\"]"), 0 },
    { "n_string_invalid_utf8_after_escape", U("[\"\\\xe5\"]"), 0 },
    { "n_string_leading_uescaped_thinspace", U("[\\u0020\"asd\"]"), 0 },
    { "n_string_no_quotes_with_bad_escape", U("[\\n]"), 0 },
    { "n_string_single_doublequote", U("\""), 0 },
    { "n_string_single_quote", U("['single quote']"), 0 },
    { "n_string_single_string_no_double_quotes", U("abc"), 0 },
    { "n_string_start_escape_unclosed", U("[\"\\"), 0 },
    { "n_string_unescaped_ctrl_char", U("[\"a\0a\"]"), 0 },
    { "n_string_unescaped_newline", U("[\"new\nline\"]"), 0 },
    { "n_string_unescaped_tab", U("[\"\t\"]"), 0 },
    { "n_string_unicode_CapitalU", U("\"\\UA66D\""), 0 },
    { "n_string_with_trailing_garbage", U("\"\"x"), 0 },
    { "n_structure_U+2060_word_joined", U("[\xe2\x81\xa0]"), 0 },
    { "n_structure_UTF8_BOM_no_data", U("\xef\xbb\xbf"), 0 },
    { "n_structure_angle_bracket_null", U("[<null>]"), 0 },
    { "n_structure_array_trailing_garbage", U("[1]x"), 0 },
    { "n_structure_array_with_unclosed_string", U("[\"asd]"), 0 },
    { "n_structure_capitalized_True", U("[True]"), 0 },
    { "n_structure_close_unopened_array", U("1]"), 0 },
    { "n_structure_comma_instead_of_closing_brace", U("{\"x\": true,"), 0 },
    { "n_structure_double_array", U("[][]"), 0 },
    { "n_structure_end_array", U("]"), 0 },
    { "n_structure_no_data", U(""), 0 },
    { "n_structure_null-byte-outside-string", U("[\0]"), 0 },
    { "n_structure_number_with_trailing_garbage", U("2@"), 0 },
    { "n_structure_object_followed_by_closing_object", U("{}}"), 0 },
    { "n_structure_object_with_comment", U("{\"a\":/*c*/\"b\"}"), 0 },
    { "n_structure_open_array_apostrophe", U("['"), 0 },
    { "n_structure_open_object_close_array", U("{]"), 0 },
    { "n_structure_open_object", U("{"), 0 },
    { "n_structure_uescaped_LF_before_string", U("[\\u000A\"\"]"), 0 },
    { "n_structure_unclosed_array_unfinished_true", U("[ false, tru"), 0 },
    { "n_structure_unicode-identifier", U("\xc3\xa5"), 0 },
    { "n_structure_whitespace_U+2060", U("\xe2\x81\xa0"), 0 },
    { "n_structure_whitespace_formfeed", U("[\x0c]"), 0 },
    { "n_structure_whitespace_vertical_tab", U("[\x0b]"), 0 },
    { "n_structure_whitespace_nbsp", U("[\xc2\xa0]"), 0 },

    /* numbers pass as bytes, beyond the range of a double, too */

    { "i_number_double_huge_neg_exp", U("[123.456e-789]"), 1 },
    { "i_number_huge_exp", U("[0.4e00669999999999999999999999999999]"), 1 },
    { "i_number_neg_int_huge_exp", U("[-1e+9999]"), 1 },
    { "i_number_pos_double_huge_exp", U("[1.5e+9999]"), 1 },
    { "i_number_real_neg_overflow", U("[-123123e100000]"), 1 },
    { "i_number_real_pos_overflow", U("[123123e100000]"), 1 },
    { "i_number_real_underflow", U("[123e-10000000]"), 1 },
    { "i_number_too_big_neg_int", U("[-123123123123123123123123123123]"), 1 },
    { "i_number_too_big_pos_int", U("[100000000000000000000]"), 1 },
    { "i_number_very_big_negative_int",
      U("[-237462374673276894279832749832423479823246327846]"), 1 },

    /* escapes that are not characters are left to the reader */

    { "i_object_key_lone_2nd_surrogate", U("{\"\\uDFAA\":0}"), 1 },
    { "i_string_1st_surrogate_but_2nd_missing", U("[\"\\uDADA\"]"), 1 },
    { "i_string_1st_valid_surrogate_2nd_invalid",
      U("[\"\\uD888\\u1234\"]"), 1 },
    { "i_string_incomplete_surrogate_and_escape_valid",
      U("[\"\\uD800\\n\"]"), 1 },
    { "i_string_incomplete_surrogate_pair", U("[\"\\uDd1ea\"]"), 1 },
    { "i_string_incomplete_surrogates_escape_valid",
      U("[\"\\uD800\\uD800\\n\"]"), 1 },
    { "i_string_invalid_lonely_surrogate", U("[\"\\ud800\"]"), 1 },
    { "i_string_invalid_surrogate", U("[\"\\ud800abc\"]"), 1 },
    { "i_string_inverted_surrogates_U+1D11E",
      U("[\"\\uDd1e\\uD834\"]"), 1 },
    { "i_string_lone_second_surrogate", U("[\"\\uDFAA\"]"), 1 },

    /* bytes that are not UTF-8 never pass */

    { "i_string_UTF-16LE_with_BOM",
      U("\xff\xfe[\0\"\0\xe9\0\"\0]\0"), 0 },
    { "i_string_UTF-8_invalid_sequence",
      U("[\"\xe6\x97\xa5\xd1\x88\xfa\"]"), 0 },
    { "i_string_UTF8_surrogate_U+D800", U("[\"\xed\xa0\x80\"]"), 0 },
    { "i_string_invalid_utf-8", U("[\"\xff\"]"), 0 },
    { "i_string_iso_latin_1", U("[\"\xe9\"]"), 0 },
    { "i_string_lone_utf8_continuation_byte", U("[\"\x81\"]"), 0 },
    { "i_string_not_in_unicode_range", U("[\"\xf4\xbf\xbf\xbf\"]"), 0 },
    { "i_string_overlong_sequence_2_bytes", U("[\"\xc0\xaf\"]"), 0 },
    { "i_string_overlong_sequence_6_bytes",
      U("[\"\xfc\x83\xbf\xbf\xbf\xbf\"]"), 0 },
    { "i_string_overlong_sequence_6_bytes_null",
      U("[\"\xfc\x80\x80\x80\x80\x80\"]"), 0 },
    { "i_string_truncated-utf-8", U("[\"\xe0\xff\"]"), 0 },
    { "i_string_utf16BE_no_BOM", U("\0[\0\"\0\xe9\0\"\0]"), 0 },
    { "i_string_utf16LE_no_BOM", U("[\0\"\0\xe9\0\"\0]\0"), 0 },

    /* a byte order mark is not JSON; for depth see below */

    { "i_structure_UTF-8_BOM_empty_object", U("\xef\xbb\xbf{}"), 0 }
};


static ngx_modelgw_scan_conf_t  conf = { NULL, 0, 1, NULL, 0, NULL, NULL, 0 };


static void
expect_rc(ngx_pool_t *pool, const char *name, const void *doc, size_t len,
    ngx_int_t rc)
{
    unit_scan_t  r;

    unit_scan(pool, &conf, doc, len, &r);

    if (r.rc != rc) {
        print_error("%s: %d \"%s\"\n", name, (int) r.rc, r.fault);
        fail();
    }

    if (rc != NGX_OK && r.kind != NGX_MODELGW_SCAN_JSON) {
        print_error("%s: \"%s\" is no fault of JSON\n", name, r.fault);
        fail();
    }
}


static void
test_p4_p5_suite(void **state)
{
    char        doc[512];
    size_t      len;
    ngx_int_t   rc;
    ngx_uint_t  i;

    for (i = 0; i < sizeof(cases) / sizeof(case_t); i++) {
        rc = cases[i].accept ? NGX_OK : NGX_DECLINED;

        /* in the middle, so that the vector loops read it, too */

        len = sprintf(doc, "{\"pad\":\"%050d\",\"x\":", 0);
        memcpy(doc + len, cases[i].text, cases[i].len);
        len += cases[i].len;
        len += sprintf(doc + len, "}%100s", "");

        expect_rc(*state, cases[i].name, doc, len, rc);

        /* as it is: only an object may be the root */

        if (rc == NGX_OK && cases[i].text[0] != '{') {
            rc = NGX_DECLINED;
        }

        if (ngx_strcmp(cases[i].name, "y_object_duplicated_key") != 0
            && ngx_strcmp(cases[i].name, "i_object_key_lone_2nd_surrogate")
               != 0)
        {
            expect_rc(*state, cases[i].name, cases[i].text, cases[i].len, rc);
        }
    }
}


/* checks UTF-8 in another way than the scanner: by decoding */

static size_t
decode(u_char *p, size_t len)
{
    size_t                i, n;
    uint32_t              c;
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };

    n = (*p < 0x80) ? 1 : (*p & 0xe0) == 0xc0 ? 2 : (*p & 0xf0) == 0xe0 ? 3
        : (*p & 0xf8) == 0xf0 ? 4 : 0;

    if (n == 0 || n > len) {
        return 0;
    }

    c = (n == 1) ? *p : *p & (0xff >> (n + 1));

    for (i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }

        c = (c << 6) | (p[i] & 0x3f);
    }

    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
        return 0;
    }

    return n;
}


static ngx_int_t
utf8_rc(u_char *p, size_t len)
{
    size_t  n;

    while (len) {
        n = decode(p, len);

        if (n == 0) {
            return NGX_DECLINED;
        }

        p += n;
        len -= n;
    }

    return NGX_OK;
}


static void
expect_utf8(ngx_modelgw_scan_t *s, u_char *bytes, size_t n)
{
    u_char       doc[40];
    size_t       len, chunk;
    unit_scan_t  r, again;

    memcpy(doc, "{\"x\":\"", 6);
    memcpy(doc + 6, bytes, n);
    len = 6 + n;
    memcpy(doc + len, "......\"}", 8);
    len += 8;

    unit_scan_once(s, 0, doc, len, len, &r);

    if (r.rc != utf8_rc(bytes, n)) {
        print_error("%02x %02x %02x %02x: \"%s\"\n", bytes[0], bytes[1],
                    bytes[2], bytes[3], r.fault);
        fail();
    }

    for (chunk = 1; chunk <= 3; chunk++) {
        unit_scan_once(s, 0, doc, len, chunk, &again);
        unit_scan_same(&r, &again, "UTF-8", chunk, doc, len);
    }
}


/* all first and second bytes, and the borders of the others */

static void
test_p4_utf8(void **state)
{
    u_char                       b[4];
    ngx_uint_t                   first, second, i, k, n;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_skip_variant_t  *v;
    static const u_char          edges[] = { '.', 0x7f, 0x80, 0x8f, 0x90,
                                             0x9f, 0xa0, 0xbf, 0xc0, 0xff };

    v = ngx_modelgw_skip_variants(&n);
    conf.skip = v[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);
    assert_non_null(s);

    for (first = 0x80; first < 0x100; first++) {
        for (second = 0x20; second < 0x100; second++) {

            if (second == '"' || second == '\\') {
                continue;
            }

            b[0] = (u_char) first;
            b[1] = (u_char) second;

            for (i = 0; i < sizeof(edges); i++) {
                for (k = 0; k < sizeof(edges); k++) {
                    b[2] = edges[i];
                    b[3] = edges[k];

                    if (second % 5 == 0 || second == 0x8f || second == 0x90
                        || second == 0x9f || second == 0xbf)
                    {
                        expect_utf8(s, b, 4);
                    }
                }
            }

            expect_utf8(s, b, 2);
        }
    }
}


static void
test_p5_tails(void **state)
{
    u_char      doc[16];
    ngx_int_t   rc;
    ngx_uint_t  ch;

    for (ch = 0; ch < 256; ch++) {
        memcpy(doc, "{\"a\":1}", 7);
        doc[7] = (u_char) ch;

        rc = (ch == ' ' || ch == '\t' || ch == LF || ch == CR)
             ? NGX_OK : NGX_DECLINED;

        expect_rc(*state, "tail", doc, 8, rc);

        doc[0] = (u_char) ch;
        memcpy(doc + 1, "{\"a\":1}", 7);

        expect_rc(*state, "head", doc, 8, rc);
    }
}


static size_t
nested(u_char *doc, ngx_uint_t depth, ngx_uint_t arrays)
{
    u_char      *p;
    ngx_uint_t   i;

    p = doc;

    /* the root is an object, and one of the depth */

    for (i = 1; i < depth; i++) {
        p = ngx_cpymem(p, (i == 1 || !arrays) ? "{\"a\":" : "[",
                       (i == 1 || !arrays) ? 5 : 1);
    }

    p = ngx_cpymem(p, "{}", 2);

    for (i = depth - 1; i > 0; i--) {
        *p++ = (i == 1 || !arrays) ? '}' : ']';
    }

    return p - doc;
}


static void
test_p6_depth(void **state)
{
    u_char       doc[1024], *bomb;
    size_t       i;
    ngx_uint_t   arrays;
    unit_scan_t  r;
    const char   mixed[] = "{\"a\":[[{\"b\":[]},[{}]],{}],\"c\":{\"d\":[{}]}}";

    for (arrays = 0; arrays < 2; arrays++) {
        expect_rc(*state, "depth 64", doc, nested(doc, 64, arrays), NGX_OK);

        unit_scan(*state, &conf, doc, nested(doc, 65, arrays), &r);
        assert_int_equal(r.rc, NGX_DECLINED);
        assert_non_null(strstr((char *) r.fault, "deeper than 64 levels"));
    }

    /* deep, shallow, deep again: bits of closed containers are cleared */

    expect_rc(*state, "mixed", mixed, sizeof(mixed) - 1, NGX_OK);

    bomb = malloc(1000000);
    assert_non_null(bomb);

    memset(bomb, '[', 1000000);
    memcpy(bomb, "{\"a\":", 5);

    for (i = 0; i < 3; i++) {
        expect_rc(*state, "bomb", bomb, 1000 << i, NGX_DECLINED);
    }

    free(bomb);
}


static double
seconds(ngx_modelgw_scan_t *s, u_char *doc, size_t len, size_t chunk)
{
    size_t           at;
    struct timespec  from, to;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);

    ngx_modelgw_scan_reset(s);

    for (at = 0; at < len; at += chunk) {
        assert_int_equal(ngx_modelgw_scan_feed(s, doc + at,
                                               ngx_min(chunk, len - at)),
                         NGX_OK);
    }

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);

    return (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9;
}


/* a token that comes in pieces costs as much a byte as a short one */

static void
test_p8_linear(void **state)
{
    u_char                      *doc;
    double                       small, large;
    size_t                       chunk;
    ngx_uint_t                   i, n;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_skip_variant_t  *v;

    v = ngx_modelgw_skip_variants(&n);
    conf.skip = v[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);
    assert_non_null(s);

    doc = malloc(8 << 20);
    assert_non_null(doc);

    memset(doc, 'a', 8 << 20);
    memcpy(doc, "{\"a\":\"", 6);

    for (chunk = 1; chunk <= 16; chunk += 15) {
        small = 1;
        large = 1;

        for (i = 0; i < 3; i++) {
            small = ngx_min(small, seconds(s, doc, 1 << 20, chunk));
            large = ngx_min(large, seconds(s, doc, 8 << 20, chunk));
        }

        assert_true(large < 16 * small);
    }

    free(doc);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_p4_p5_suite),
        unit_case(test_p4_utf8),
        unit_case(test_p5_tails),
        unit_case(test_p6_depth),
        unit_case(test_p8_linear)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
