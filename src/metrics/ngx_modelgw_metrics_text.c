
/*
 * The text format of Prometheus, version 0.0.4: a metric is two lines of
 * comments, then a line for each set of labels.
 *
 * A histogram is written from counts per bucket, as sums up to each bound; its
 * "_count" is their sum, so that both agree whenever they are read.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_metrics.h"
#include "ngx_modelgw_out.h"


static void ngx_modelgw_metrics_head(ngx_modelgw_metrics_text_t *text);
static void ngx_modelgw_metrics_line(ngx_modelgw_metrics_text_t *text,
    const char *suffix, int64_t value, ngx_uint_t decimals);
static u_char *ngx_modelgw_metrics_decimal(u_char *p, int64_t value,
    ngx_uint_t decimals);


void
ngx_modelgw_metrics_metric(ngx_modelgw_metrics_text_t *text, const char *name,
    const char *type, const char *help)
{
    text->name = name;
    text->type = type;
    text->help = help;
    text->begun = 0;
    text->n = 0;
}


void
ngx_modelgw_metrics_label(ngx_modelgw_metrics_text_t *text, ngx_uint_t i,
    const char *name, ngx_str_t *value)
{
    text->labels[i].name = name;
    text->labels[i].value = *value;
    text->n = i + 1;
}


void
ngx_modelgw_metrics_counter(ngx_modelgw_metrics_text_t *text, uint64_t value,
    ngx_uint_t decimals)
{
    if (value) {
        ngx_modelgw_metrics_sample(text, (int64_t) value, decimals);
    }
}


void
ngx_modelgw_metrics_sample(ngx_modelgw_metrics_text_t *text, int64_t value,
    ngx_uint_t decimals)
{
    ngx_modelgw_metrics_head(text);
    ngx_modelgw_metrics_line(text, "", value, decimals);
}


void
ngx_modelgw_metrics_histogram(ngx_modelgw_metrics_text_t *text,
    ngx_modelgw_metrics_hist_e hist, uint64_t *cells)
{
    u_char                             le[NGX_INT64_LEN + 2];
    uint64_t                           count;
    ngx_str_t                          value;
    ngx_uint_t                         i, n;
    const ngx_modelgw_metrics_hist_t  *h;

    h = &ngx_modelgw_metrics_hists[hist];
    count = 0;

    for (i = 0; i <= h->n; i++) {
        count += cells[i];
    }

    if (count == 0) {
        return;
    }

    ngx_modelgw_metrics_head(text);

    n = text->n;
    count = 0;

    for (i = 0; i <= h->n; i++) {
        count += cells[i];

        if (i < h->n) {
            value.data = le;
            value.len = ngx_modelgw_metrics_decimal(le, h->bounds[i],
                                                    h->decimals)
                        - le;

        } else {
            ngx_str_set(&value, "+Inf");
        }

        ngx_modelgw_metrics_label(text, n, "le", &value);
        ngx_modelgw_metrics_line(text, "_bucket", count, 0);
    }

    text->n = n;

    ngx_modelgw_metrics_line(text, "_sum", cells[i], h->decimals);
    ngx_modelgw_metrics_line(text, "_count", count, 0);
}


static void
ngx_modelgw_metrics_head(ngx_modelgw_metrics_text_t *text)
{
    ngx_modelgw_out_t  *out;

    if (text->begun) {
        return;
    }

    text->begun = 1;
    out = text->out;

    ngx_modelgw_out_text(out, "# HELP ");
    ngx_modelgw_out(out, (u_char *) text->name, ngx_strlen(text->name));
    ngx_modelgw_out_text(out, " ");
    ngx_modelgw_out(out, (u_char *) text->help, ngx_strlen(text->help));
    ngx_modelgw_out_text(out, "\n# TYPE ");
    ngx_modelgw_out(out, (u_char *) text->name, ngx_strlen(text->name));
    ngx_modelgw_out_text(out, " ");
    ngx_modelgw_out(out, (u_char *) text->type, ngx_strlen(text->type));
    ngx_modelgw_out_text(out, "\n");
}


/*
 * A label's value has the escapes of a JSON string, as long as it has no
 * control bytes but LF.
 */

static void
ngx_modelgw_metrics_line(ngx_modelgw_metrics_text_t *text, const char *suffix,
    int64_t value, ngx_uint_t decimals)
{
    u_char             *last, buf[NGX_INT64_LEN + 2];
    ngx_uint_t          i;
    const char         *name;
    ngx_modelgw_out_t  *out;

    out = text->out;

    ngx_modelgw_out(out, (u_char *) text->name, ngx_strlen(text->name));
    ngx_modelgw_out(out, (u_char *) suffix, ngx_strlen(suffix));

    for (i = 0; i < text->n; i++) {
        name = text->labels[i].name;

        ngx_modelgw_out(out, (u_char *) (i ? "," : "{"), 1);
        ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));
        ngx_modelgw_out_text(out, "=");
        ngx_modelgw_out_string(out, &text->labels[i].value);
    }

    if (text->n) {
        ngx_modelgw_out_text(out, "}");
    }

    ngx_modelgw_out_text(out, " ");

    last = ngx_modelgw_metrics_decimal(buf, value, decimals);

    *last++ = '\n';

    ngx_modelgw_out(out, buf, last - buf);
}


/* value / 10^decimals, without zeros at the end; at most 9 decimals */

static u_char *
ngx_modelgw_metrics_decimal(u_char *p, int64_t value, ngx_uint_t decimals)
{
    u_char      *last;
    uint64_t     n, scale;
    ngx_uint_t   i;

    n = (value < 0) ? -(uint64_t) value : (uint64_t) value;

    if (value < 0) {
        *p++ = '-';
    }

    scale = 1;

    for (i = 0; i < decimals; i++) {
        scale *= 10;
    }

    p = ngx_sprintf(p, "%uL", n / scale);

    n %= scale;

    if (n == 0) {
        return p;
    }

    *p++ = '.';

    last = p + decimals;

    for (i = decimals; i > 0; i--) {
        p[i - 1] = '0' + n % 10;
        n /= 10;
    }

    while (last[-1] == '0') {
        last--;
    }

    return last;
}
