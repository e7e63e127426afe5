
/*
 * The text of an answer, in events of a stream and in JSON documents, counted
 * for calls that end without usage; and the choices of a chat stream that have
 * finished.
 */


#ifndef _NGX_MODELGW_TEXT_H_INCLUDED_
#define _NGX_MODELGW_TEXT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_tape.h"


#define NGX_MODELGW_CHOICES_MAX  128     /* the vendors' limit */


/* one event of a stream */

typedef struct {

    /*
     * Bytes of text: of all strings, unescaped, inside of members "delta" at
     * any depth, except for the values of type, role, id, name, index,
     * finish_reason, stop_reason, object and model.
     */
    size_t                n;

    /* the contents of the last of these strings, as written; data is NULL if
       there is none */
    ngx_str_t             last;

    /* the contents of a member "obfuscation" outside of "delta": padding that
       hides the length of the text from those who see encrypted bytes */
    ngx_str_t             noise;

    /* the digits of the event's number, which the caller sets; len 0: none */
    ngx_str_t             number;

    /* non-empty strings "finish_reason" outside of "delta" */
    ngx_uint_t            finished;
} ngx_modelgw_text_t;


/* choices of a chat stream that have finished; initially all zero */

typedef struct {
    ngx_uint_t            n;
    uint64_t              ended[NGX_MODELGW_CHOICES_MAX / 64];  /* bits by
                                                                   index */
} ngx_modelgw_choices_t;


/*
 * Sets *text from an event's data, which is one JSON document.  Any bytes are
 * safe: n is at most len if they are not JSON.
 */
void ngx_modelgw_text(ngx_modelgw_text_t *text, u_char *p, size_t len);

/*
 * Returns the bytes of text in a JSON answer of the protocol, counted as above,
 * so that an answer has the same length in a stream.  In chat it is in members
 * "message"; in messages it is in "content", where the input of a tool, an
 * object, counts as written without white space; in responses it is in the
 * items of "output", see below.  The document may be truncated or not be JSON:
 * then only what looks like such a member counts.
 */
size_t ngx_modelgw_text_answer(ngx_uint_t protocol, u_char *p, size_t len);

/*
 * Returns the bytes of text in an item of the output of responses, or in an
 * array of them: of the strings, unescaped, that a model has written there, and
 * of its encrypted reasoning.  done is 0 for an item that only begins: it has
 * encrypted content before anything was thought, which is not counted.
 */
size_t ngx_modelgw_text_items(u_char *p, size_t len, ngx_uint_t done);

/* Returns the bytes of a string's contents after unescaping. */
size_t ngx_modelgw_text_len(ngx_str_t *inside);

/*
 * Adds the choices that finish in an event whose data is on the tape, those
 * with a non-empty string "finish_reason".  Each counts once, even if it
 * finishes again; one without "index" is the first; one with an index of
 * NGX_MODELGW_CHOICES_MAX or more is ignored.
 */
void ngx_modelgw_choices_end(ngx_modelgw_choices_t *choices,
    ngx_modelgw_tape_t *tape);


#endif /* _NGX_MODELGW_TEXT_H_INCLUDED_ */
