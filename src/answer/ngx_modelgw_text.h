
/*
 * What one event of a stream brings of an answer: for a stream that ends
 * without usage, for the event that usage is due in, and for those that differ
 * in nothing else.  And how much text is in a JSON answer without usage.
 */


#ifndef _NGX_MODELGW_TEXT_H_INCLUDED_
#define _NGX_MODELGW_TEXT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


typedef struct {

    /*
     * Bytes of the answer: of all strings, unescaped, inside of members "delta"
     * at any depth.  Left out are the members type, role, id, name, index,
     * finish_reason, stop_reason, object and model.
     */
    size_t                n;

    /* the inside of the last of these strings, as it is written; data NULL:
       there is none */
    ngx_str_t             last;

    /* the same of a member "obfuscation" outside of "delta": noise, that hides
       the length of the text from those who see only encrypted bytes */
    ngx_str_t             noise;

    /* members "finish_reason" outside of "delta" that are strings, and not
       empty */
    ngx_uint_t            finished;
} ngx_modelgw_text_t;


/*
 * Reads an event's data, which is one JSON document.  Safe with any bytes: what
 * is no JSON gives some n up to len.
 */
void ngx_modelgw_text(ngx_modelgw_text_t *text, u_char *p, size_t len);

/*
 * The bytes of answer in a JSON document of the protocol, counted as above, so
 * that the same answer is as long in a stream: chat has them in members
 * "message", messages in "content", where a tool's input, an object, counts as
 * it is written, without white space.  The document may be cut anywhere, or be
 * no JSON: of that nothing counts but what looks like such a member.
 */
size_t ngx_modelgw_text_answer(ngx_uint_t protocol, u_char *p, size_t len);

/* How many bytes the inside of a string is, unescaped. */
size_t ngx_modelgw_text_len(ngx_str_t *inside);


#endif /* _NGX_MODELGW_TEXT_H_INCLUDED_ */
