
/*
 * The sources of images and documents.
 *
 * Images and documents come as a data URI (RFC 2397), which becomes a base64
 * source, or as an https URL, which the upstream fetches itself.  The gateway
 * fetches nothing: a client could reach the gateway's network that way.
 * URIs are compared unescaped, since some JSON writers escape every slash
 * ("data:image\/png;base64,...").  Only the part before the comma is unescaped;
 * the data may be megabytes and is copied byte for byte: "\/" means the same in
 * our document.  A file of plain text is decoded, the upstream wants text.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"
#include "ngx_modelgw_string.h"


/* the longest head of a data URI, up to the comma; bytes, escaped */
#define NGX_MODELGW_REQUEST_SOURCE_HEAD  1024


typedef struct {
    ngx_str_t             type;          /* in the URI */
    ngx_str_t             media;         /* its name upstream */
    ngx_uint_t            image;         /* accepted as image_url */
    ngx_uint_t            file;          /* accepted as a file */
    ngx_uint_t            kind;
    ngx_uint_t            source;
} ngx_modelgw_request_source_media_t;


typedef struct {
    ngx_str_t             type;
    ngx_str_t             data;          /* escaped */
} ngx_modelgw_request_source_uri_t;


static ngx_int_t ngx_modelgw_request_source_data(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_modelgw_request_source_uri_t *uri);
static ngx_int_t ngx_modelgw_request_source_media(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_request_source_uri_t *uri,
    ngx_uint_t file, ngx_modelgw_request_block_t *block);
static ngx_uint_t ngx_modelgw_request_source_pdf(ngx_str_t *url);
static ngx_int_t ngx_modelgw_request_source_plain(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *node,
    ngx_modelgw_request_block_t *block);
static ngx_uint_t ngx_modelgw_request_source_utf8(ngx_str_t *text);
static ngx_int_t ngx_modelgw_request_source_begins(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *node,
    const char *scheme);


#define ngx_modelgw_request_source_row(type, media, image, file, kind, source) \
    { ngx_string(type), ngx_string(media), image, file,                       \
      NGX_MODELGW_BLOCK_ ## kind, NGX_MODELGW_SOURCE_ ## source }


static ngx_modelgw_request_source_media_t
    ngx_modelgw_request_source_medias[] =
{
    ngx_modelgw_request_source_row("image/jpeg", "image/jpeg", 1, 0,
                                   IMAGE, BASE64),
    ngx_modelgw_request_source_row("image/jpg", "image/jpeg", 1, 0,
                                   IMAGE, BASE64),
    ngx_modelgw_request_source_row("image/png", "image/png", 1, 0,
                                   IMAGE, BASE64),
    ngx_modelgw_request_source_row("image/gif", "image/gif", 1, 0,
                                   IMAGE, BASE64),
    ngx_modelgw_request_source_row("image/webp", "image/webp", 1, 0,
                                   IMAGE, BASE64),
    ngx_modelgw_request_source_row("application/pdf", "application/pdf", 1, 1,
                                   DOCUMENT, BASE64),
    ngx_modelgw_request_source_row("text/plain", "text/plain", 0, 1,
                                   DOCUMENT, PLAIN),

    { ngx_null_string, ngx_null_string, 0, 0, 0, 0 }
};


ngx_int_t
ngx_modelgw_request_source(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_uint_t file,
    ngx_modelgw_request_block_t *block)
{
    ngx_int_t                         rc;
    ngx_modelgw_request_source_uri_t  uri;

    rc = ngx_modelgw_request_source_begins(w, node, "data:");

    if (rc == NGX_DECLINED) {

        if (!file) {
            return ngx_modelgw_request_source_url(w, node, block);
        }

        return ngx_modelgw_request_part_invalid(w, w->member,
                                                " is not a data URI");
    }

    if (rc == NGX_OK) {
        rc = ngx_modelgw_request_source_data(w, node, &uri);
    }

    if (rc == NGX_OK) {
        rc = ngx_modelgw_request_source_media(w, &uri, file, block);
    }

    if (rc == NGX_OK && block->source == NGX_MODELGW_SOURCE_PLAIN) {
        rc = ngx_modelgw_request_source_plain(w, node, block);
    }

    return rc;
}


/* data:TYPE[;NAME=VALUE...];base64,DATA */

static ngx_int_t
ngx_modelgw_request_source_data(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_modelgw_request_source_uri_t *uri)
{
    u_char              *comma, *p, *last;
    ngx_str_t            inside, text;
    ngx_modelgw_node_t   head;

    ngx_modelgw_tape_inside(w->rq->tape, node, &inside);

    comma = memchr(inside.data, ',',
                   ngx_min(inside.len, NGX_MODELGW_REQUEST_SOURCE_HEAD));

    if (comma == NULL) {
        return ngx_modelgw_request_part_invalid(w, w->member,
                                                " is not a data URI");
    }

    uri->data.data = comma + 1;
    uri->data.len = inside.data + inside.len - uri->data.data;

    /* the part up to the comma, as a string */

    head = *node;
    head.to = head.from + (uint32_t) (comma - inside.data) + 2;

    if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, &head, &text)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = text.data + sizeof("data:") - 1;
    last = text.data + text.len;

    if (last - p < (ssize_t) (sizeof(";base64") - 1)
        || ngx_strncasecmp(last - (sizeof(";base64") - 1),
                           (u_char *) ";base64", sizeof(";base64") - 1)
           != 0)
    {
        return ngx_modelgw_request_part_invalid(w, w->member,
                                                " is a data URI without"
                                                " \";base64\"");
    }

    if (uri->data.len == 0) {
        return ngx_modelgw_request_part_invalid(w, w->member,
                                                " is a data URI without data");
    }

    uri->type.data = p;
    uri->type.len = ngx_strlchr(p, last, ';') - p;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_source_media(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_request_source_uri_t *uri, ngx_uint_t file,
    ngx_modelgw_request_block_t *block)
{
    ngx_modelgw_request_source_media_t  *m;

    for (m = ngx_modelgw_request_source_medias; m->type.len; m++) {

        if ((file ? m->file : m->image)
            && uri->type.len == m->type.len
            && ngx_strncasecmp(uri->type.data, m->type.data, m->type.len) == 0)
        {
            block->kind = m->kind;
            block->source = m->source;
            block->media = &m->media;
            block->value = uri->data;

            return NGX_OK;
        }
    }

    return ngx_modelgw_request_unsupported(w->rq,
                             "%s[%ui].%s[%ui]%s: media type \"%V\" is not "
                             "supported", w->list, w->index, w->content,
                             w->part, w->member, &uri->type);
}


ngx_int_t
ngx_modelgw_request_source_url(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *url, ngx_modelgw_request_block_t *block)
{
    ngx_int_t  rc;
    ngx_str_t  text;

    rc = ngx_modelgw_request_source_begins(w, url, "https://");

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_part_invalid(w, w->member,
                                    (block->kind == NGX_MODELGW_BLOCK_IMAGE)
                                    ? " is neither an https URL nor a data URI"
                                    : " is not an https URL");
    }

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, url, &text) != NGX_OK)
    {
        return NGX_ERROR;
    }

    block->source = NGX_MODELGW_SOURCE_URL;
    ngx_modelgw_tape_inside(w->rq->tape, url, &block->value);

    if (ngx_modelgw_request_source_pdf(&text)) {
        block->kind = NGX_MODELGW_BLOCK_DOCUMENT;
    }

    return NGX_OK;
}


/* whether the path of the URL ends in .pdf; query and fragment do not count */

static ngx_uint_t
ngx_modelgw_request_source_pdf(ngx_str_t *url)
{
    u_char  *p, *last;

    p = url->data + sizeof("https://") - 1;
    last = url->data + url->len;

    while (p < last && *p != '/' && *p != '?' && *p != '#') {
        p++;
    }

    url->data = p;

    while (p < last && *p != '?' && *p != '#') {
        p++;
    }

    return p - url->data > (ssize_t) (sizeof(".pdf") - 1)
           && ngx_strncasecmp(p - (sizeof(".pdf") - 1), (u_char *) ".pdf",
                              sizeof(".pdf") - 1)
              == 0;
}


static ngx_int_t
ngx_modelgw_request_source_plain(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_modelgw_request_block_t *block)
{
    ngx_str_t            data;
    ngx_modelgw_node_t   tail;

    /* the part after the comma, as a string */

    tail = *node;
    tail.from = tail.to - 2 - (uint32_t) block->value.len;

    if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, &tail, &data)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    block->value.data = ngx_pnalloc(w->rq->pool,
                                    ngx_base64_decoded_length(data.len));
    if (block->value.data == NULL) {
        return NGX_ERROR;
    }

    if (ngx_decode_base64(&block->value, &data) != NGX_OK) {
        return ngx_modelgw_request_part_invalid(w, w->member,
                                                " is not valid base64");
    }

    if (block->value.len == 0) {
        return ngx_modelgw_request_part_invalid(w, w->member,
                                                " has no data");
    }

    if (!ngx_modelgw_request_source_utf8(&block->value)) {
        return ngx_modelgw_request_part_invalid(w, w->member,
                                                " is text/plain, but not"
                                                " UTF-8");
    }

    return NGX_OK;
}


/* ngx_utf8_decode() would accept surrogates and more */

static ngx_uint_t
ngx_modelgw_request_source_utf8(ngx_str_t *text)
{
    size_t   n;
    u_char  *p, *last;

    last = text->data + text->len;

    for (p = text->data; p < last; p += n) {
        n = (*p < 0x80) ? 1 : ngx_modelgw_string_utf8(p, last);

        if (n == 0) {
            return 0;
        }
    }

    return 1;
}


/*
 * NGX_OK if the string, unescaped, begins with the scheme in any letter case,
 * NGX_DECLINED if not, NGX_ERROR if there is no memory.  An escape has at most
 * 6 bytes a character.
 */

static ngx_int_t
ngx_modelgw_request_source_begins(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, const char *scheme)
{
    size_t               len;
    ngx_str_t            text;
    ngx_modelgw_node_t   head;

    len = ngx_strlen(scheme);

    head = *node;
    head.to = ngx_min(node->to, node->from + 2 + (uint32_t) len * 6);

    if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, &head, &text)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (text.len < len
        || ngx_strncasecmp(text.data, (u_char *) scheme, len) != 0)
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}
