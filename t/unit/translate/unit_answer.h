
/*
 * What the tests of the answer codecs share: streams as readable C strings,
 * with ' for ".
 */


#ifndef _UNIT_ANSWER_H_INCLUDED_
#define _UNIT_ANSWER_H_INCLUDED_


#include "unit.h"
#include "answer.h"

#include "ngx_modelgw_completion_private.h"


#define OFF      NGX_MODELGW_REASONING_OFF
#define CONTENT  NGX_MODELGW_REASONING_CONTENT
#define FULL     NGX_MODELGW_REASONING_FULL

#define MAX      (1024 * 1024)


/* events */

#define EV(data)  "data: " data "\n\n"

#define MSG(members)                                                          \
    EV("{'type':'message_start','message':{'id':'i'" members "}}")
#define START  MSG("")

#define BEGIN(i, block)                                                       \
    EV("{'type':'content_block_start','index':" i ",'content_block':" block    \
       "}")
#define BEGIN_TEXT(i)   BEGIN(i, "{'type':'text','text':''}")
#define BEGIN_THINK(i)  BEGIN(i, "{'type':'thinking','thinking':''}")
#define BEGIN_TOOL(i, id)                                                     \
    BEGIN(i, "{'type':'tool_use','id':'" id "','name':'f','input':{}}")

#define DELTA(i, delta)                                                       \
    EV("{'type':'content_block_delta','index':" i ",'delta':" delta "}")
#define TEXT(i, t)   DELTA(i, "{'type':'text_delta','text':'" t "'}")
#define THINK(i, t)  DELTA(i, "{'type':'thinking_delta','thinking':'" t "'}")
#define SIGN(i, t)   DELTA(i, "{'type':'signature_delta','signature':'" t "'}")
#define ARGS(i, t)                                                            \
    DELTA(i, "{'type':'input_json_delta','partial_json':'" t "'}")

#define END(i)       EV("{'type':'content_block_stop','index':" i "}")
#define REASON(r)    EV("{'type':'message_delta','delta':{'stop_reason':" r   \
                        "}}")
#define STOP         EV("{'type':'message_stop'}")
#define FINISH       REASON("'end_turn'") STOP
#define PING         "event: ping\n" EV("{'type':'ping'}")


/* the text with " for ' */

static ngx_inline char *
unit_quoted(const char *s)
{
    char  *copy, *p;

    copy = (char *) unit_dup(s, ngx_strlen(s) + 1);

    for (p = copy; *p; p++) {
        if (*p == '\'') {
            *p = '"';
        }
    }

    return copy;
}


#endif /* _UNIT_ANSWER_H_INCLUDED_ */
