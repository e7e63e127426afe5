
/*
 * The inside of numbers (RFC 8259, section 6).  The table of states is the
 * grammar; the state is all that is kept of a number, so one of 400 kB costs
 * no more than its bytes.
 *
 * A number has no end of its own: the byte behind it decides, and is left to
 * the machine.  A byte that only numbers have, but not here ("01", "1.2.3"),
 * is a fault of the number.
 *
 * Rejected: converting.  Readers disagree about 1e400 and 2^64; a value that
 * matters has to be a COUNT, everything else passes as it was written.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


/* classes of bytes; all that are not named are 0 */

enum {
    n_other = 0,
    n_zero,
    n_digit,
    n_minus,
    n_plus,
    n_point,
    n_exp,
    n_n
};


static const u_char  ngx_modelgw_scan_number_classes[256] = {
    ['0'] = n_zero, ['1'] = n_digit, ['2'] = n_digit, ['3'] = n_digit,
    ['4'] = n_digit, ['5'] = n_digit, ['6'] = n_digit, ['7'] = n_digit,
    ['8'] = n_digit, ['9'] = n_digit, ['-'] = n_minus, ['+'] = n_plus,
    ['.'] = n_point, ['e'] = n_exp, ['E'] = n_exp
};


/* the next state, or: no number (NO), the byte is not of the number (EN) */

enum {
    EN = sw_end,
    ZE = sw_zero,
    IN = sw_int,
    PT = sw_point,
    FR = sw_frac,
    EX = sw_exp,
    SG = sw_exp_sign,
    DG = sw_exp_digit,
    NO = sw_fault
};


static const u_char
    ngx_modelgw_scan_number_grammar[sw_exp_digit - sw_minus + 1][n_n] = {

/*                  other 0   1   -   +   .   e */

/* minus */         { NO, ZE, IN, NO, NO, NO, NO },
/* zero */          { EN, NO, NO, NO, NO, PT, EX },
/* int */           { EN, IN, IN, NO, NO, PT, EX },
/* point */         { NO, FR, FR, NO, NO, NO, NO },
/* frac */          { EN, FR, FR, NO, NO, NO, EX },
/* exp */           { NO, DG, DG, SG, SG, NO, NO },
/* exp_sign */      { NO, DG, DG, NO, NO, NO, NO },
/* exp_digit */     { EN, DG, DG, NO, NO, NO, NO }
};


static u_char *ngx_modelgw_scan_number_digits(u_char *p, u_char *last);


u_char *
ngx_modelgw_scan_number_begin(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last)
{
    if (ngx_modelgw_scan_watched(s)
        && ngx_modelgw_scan_watch_value(s, NGX_MODELGW_SCAN_NUMBER, p) == NULL)
    {
        return NULL;
    }

    /* what may follow a minus may begin a number */

    s->state = sw_minus;
    s->next = ngx_modelgw_scan_behind(s);

    if (*p == '-') {

        if (s->capture) {
            ngx_modelgw_scan_text_append(s, p, 1);
        }

        p++;
    }

    return ngx_modelgw_scan_number(s, p, last);
}


u_char *
ngx_modelgw_scan_number(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char                    *from;
    ngx_modelgw_scan_state_e   state, next;

    from = p;
    state = s->state;
    next = state;

    while (p < last) {
        next = ngx_modelgw_scan_number_grammar[state - sw_minus]
                                       [ngx_modelgw_scan_number_classes[*p]];

        if (next == sw_end || next == sw_fault) {
            break;
        }

        state = next;
        p++;

        /* more digits change nothing: do not wait for the state */

        if (next == sw_int || next == sw_frac || next == sw_exp_digit) {
            p = ngx_modelgw_scan_number_digits(p, last);
        }
    }

    s->state = state;

    if (s->capture) {
        ngx_modelgw_scan_text_append(s, from, p - from);
    }

    if (next == sw_fault) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_BAD_NUMBER, p);
    }

    if (next == sw_end) {
        s->state = s->next;
        return ngx_modelgw_scan_watch_value_end(s, p);
    }

    return p;
}


static ngx_inline u_char *
ngx_modelgw_scan_number_digits(u_char *p, u_char *last)
{
    while (p < last && *p >= '0' && *p <= '9') {
        p++;
    }

    return p;
}
