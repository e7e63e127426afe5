
/*
 * The configuration: its structs, which live as long as the cycle, and what
 * reads and checks it, grouped by the file that defines it.
 */


#ifndef _NGX_HTTP_MODELGW_CONF_H_INCLUDED_
#define _NGX_HTTP_MODELGW_CONF_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_price.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_usage.h"

#include "ngx_http_modelgw_headers.h"


/* where something was written; for messages after all was read */

typedef struct {
    u_char                           *file;
    ngx_uint_t                        line;
} ngx_http_modelgw_place_t;


typedef struct {
    ngx_str_t                         id;          /* service id; "~..." of a
                                                      pattern */
    ngx_str_t                         upstream_id; /* may hold $0 to $9 if a
                                                      pattern */
#if (NGX_PCRE)
    ngx_regex_t                      *regex;       /* NULL: a listed model */
#endif
    ngx_modelgw_price_t               price;
    ngx_uint_t                        context;     /* tokens; 0: not given */
    ngx_uint_t                        max_output;  /* tokens; 0: not given */
    ngx_modelgw_caps_t                caps;
    ngx_http_modelgw_place_t          place;
    ngx_uint_t                        extras;      /* 1: what the vendor bills
                                                      beside tokens is in the
                                                      prices */
    unsigned                          priced:1;
    unsigned                          free:1;
} ngx_http_modelgw_model_t;


typedef struct {
    ngx_str_t                         name;
    ngx_uint_t                        protocol;    /* of NGX_MODELGW_CHAT,
                                                      _MESSAGES */
    ngx_array_t                       families;    /* of ngx_str_t: prefixes */
    ngx_str_t                         owned_by;
    ngx_str_t                         upstream;    /* "https://NAME" */
    ngx_str_t                         host;        /* NAME of it */

    /* the header that carries the group's credential */
    ngx_str_t                         header;      /* as configured */
    ngx_str_t                         header_lowcase;
    ngx_uint_t                        header_hash; /* of header_lowcase */
    ngx_str_t                         header_value;
    ngx_str_t                         secret;      /* header_value without
                                                      "Bearer " */

    ngx_array_t                       models;      /* of
                                                 ngx_http_modelgw_model_t:
                                                 listed, as declared */
    ngx_array_t                       patterns;    /* as declared: the first
                                                      that matches counts */
    ngx_array_t                       denied;      /* of ngx_str_t: fields
                                                      of the body */
    ngx_array_t                       allowed;     /* of ngx_str_t: taken off
                                                      the default list */

    ngx_http_modelgw_names_t          pass;        /* pass_header: more
                                                      headers of clients that
                                                      pass */

    ngx_modelgw_scan_plan_t          *plans[2];    /* of requests: chat,
                                                      messages */

    /* of keys that have none of their own; 0: no limit */
    uint32_t                          rpm;
    uint32_t                          tpm;
    uint32_t                          concurrency;

    ngx_http_modelgw_place_t          place;       /* of modelgw_group, or of
                                                      the first key before it */
    ngx_http_modelgw_place_t          upstream_place;
    unsigned                          declared:1;
    unsigned                          ssl:1;       /* upstream is https */
} ngx_http_modelgw_group_t;


/* the models= lists of keys, while the configuration is read */

typedef struct ngx_http_modelgw_lists_s  ngx_http_modelgw_lists_t;
typedef struct ngx_http_modelgw_shared_s  ngx_http_modelgw_shared_t;


typedef struct {
    ngx_array_t                       groups;      /* of
                                                 ngx_http_modelgw_group_t * */
    ngx_modelgw_keys_t               *keys;        /* NULL: no modelgw_keys */
    ngx_str_t                         key_prefix;
    ngx_modelgw_skip_pt               skip;
    ngx_modelgw_scan_plan_t          *plans[2];    /* of answers: chat,
                                                      messages */
    ngx_modelgw_scan_t               *scans[2];    /* of this worker, for
                                                      events; NULL: none yet */
    ngx_modelgw_tape_t               *tape;        /* of this worker; NULL:
                                                      none yet */

    ngx_modelgw_ledger_t             *ledger;      /* in the zone */
    ngx_shm_zone_t                   *zone;
    size_t                            zone_size;
    ngx_str_t                         ledger_path; /* with a NUL behind it;
                                                      len 0: no credit */
    ngx_msec_t                        ledger_flush;
    time_t                            ledger_keep; /* seconds */
    int64_t                           founding;    /* nano-euro */
    ngx_http_modelgw_place_t          founding_place;
    ngx_fd_t                          ledger_lock; /* this cycle's own */
    ngx_fd_t                          ledger_file; /* likewise */
    ngx_http_modelgw_shared_t        *shared;      /* beside the ledger, see
                                                      zone.h */
    ngx_cycle_t                      *cycle;
    uint32_t                          worker;      /* this one's number in the
                                                      ledger */

    ngx_http_modelgw_lists_t         *lists;       /* NULL after all is read */
    unsigned                          used:1;      /* some location has
                                                      "modelgw on" or flat
                                                      errors */
} ngx_http_modelgw_main_conf_t;


typedef struct {
    ngx_array_t                       names;       /* of
                                                   ngx_http_server_name_t; set
                                                   with an admin location */
    unsigned                          flat:1;      /* a location of it has
                                                      "modelgw on" or
                                                      "modelgw_admin" */
} ngx_http_modelgw_srv_conf_t;


/* what becomes of a call whose client leaves */

#define NGX_HTTP_MODELGW_ABORT_AUTO   0            /* streams are cut, answers
                                                      are drained */
#define NGX_HTTP_MODELGW_ABORT_CUT    1
#define NGX_HTTP_MODELGW_ABORT_DRAIN  2


typedef struct {
    ngx_flag_t                        enable;
    ngx_flag_t                        flat_errors; /* NGX_CONF_UNSET: as the
                                                      server has it */
    ngx_flag_t                        error_compat;
    ngx_flag_t                        translate_strict;
    size_t                            max_event_size;
    ngx_uint_t                        abort;       /* one of these */
    ngx_msec_t                        abort_timeout;
    ngx_msec_t                        keepalive;   /* 0: off */
    ngx_http_modelgw_place_t          place;       /* of "modelgw on" */
    ngx_http_modelgw_place_t          admin;       /* of modelgw_admin; line 0:
                                                      none */
} ngx_http_modelgw_loc_conf_t;


/* conf.c */

void *ngx_http_modelgw_create_main_conf(ngx_conf_t *cf);
char *ngx_http_modelgw_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_modelgw_create_srv_conf(ngx_conf_t *cf);
void *ngx_http_modelgw_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_modelgw_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
char *ngx_http_modelgw_set_enable(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_modelgw_set_key_prefix(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Whether text is 1 to max letters, digits and characters of "also". */
ngx_uint_t ngx_http_modelgw_conf_word(ngx_str_t *text, const char *also,
    size_t max);

/*
 * Checks that others cannot write the file that is being read, a keys file, nor
 * replace it; name is its full one.
 *     NGX_OK, NGX_ERROR (logged, or no memory)
 */
ngx_int_t ngx_http_modelgw_conf_file(ngx_conf_t *cf, u_char *name);

/* Whether the text is in an array of ngx_str_t. */
ngx_uint_t ngx_http_modelgw_conf_listed(ngx_array_t *names, ngx_str_t *text);

/* group.c: modelgw_group */

char *ngx_http_modelgw_group(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/*
 * The group of that name, made with "declared" 0 and the place given if this is
 * the first that is heard of it; NULL: no memory.
 */
ngx_http_modelgw_group_t *ngx_http_modelgw_group_named(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *name,
    ngx_http_modelgw_place_t *place);

/* What can be checked only when all is read: NGX_OK, NGX_ERROR (logged). */
ngx_int_t ngx_http_modelgw_group_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/* The group whose family the id belongs to; NULL: none. */
ngx_http_modelgw_group_t *ngx_http_modelgw_group_of_family(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *id);

/* family.c: the family line of a group */

char *ngx_http_modelgw_family(ngx_conf_t *cf, ngx_http_modelgw_group_t *group);

/* Whether one of the group's families is a prefix of the id. */
ngx_uint_t ngx_http_modelgw_family_owns(ngx_http_modelgw_group_t *group,
    ngx_str_t *id);

/* fields.c: the deny_field and allow_field lines of a group */

char *ngx_http_modelgw_fields(ngx_conf_t *cf, ngx_http_modelgw_group_t *group);

/* the place of a protocol in an array of two */

#define ngx_http_modelgw_plan(plans, protocol)                                \
    ((plans)[(protocol) == NGX_MODELGW_MESSAGES])

/* Plans of all scanners, when everything is read; in verdict.c. */
ngx_int_t ngx_http_modelgw_verdict_plans(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/* Makes group->denied complete, at the end of the block. */
char *ngx_http_modelgw_fields_done(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);

/* pass_header.c: the headers of clients that pass; a group's pass_header */

/* Before the configuration is read. */
void ngx_http_modelgw_pass_header_init(void);

/* Whether a header of that name passes to the group's upstream. */
ngx_uint_t ngx_http_modelgw_pass_header_listed(ngx_http_modelgw_group_t *group,
    ngx_str_t *name);

char *ngx_http_modelgw_pass_header(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);

/*
 * Whether the name is of the module's or the proxy's own headers, which never
 * pass.
 */
ngx_uint_t ngx_http_modelgw_pass_header_own(ngx_http_modelgw_group_t *group,
    ngx_str_t *name);

/*
 * Whether pass_header leaves the header of the group's credential alone:
 * NGX_OK, NGX_ERROR (logged).
 */
ngx_int_t ngx_http_modelgw_pass_header_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);

/* group_limits.c: the limits line of a group */

char *ngx_http_modelgw_group_limits(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);

/* credential.c: the credential line of a group */

char *ngx_http_modelgw_credential(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);

/* model.c: the model line of a group, and finding models */

char *ngx_http_modelgw_model(ngx_conf_t *cf, ngx_http_modelgw_group_t *group);

/* Whether text may be a model id: 1 to 256 of A-Z a-z 0-9 . _ : / @ + - */
ngx_uint_t ngx_http_modelgw_model_id(ngx_str_t *text);

/*
 * The model of the group with the service id; *upstream_id is what the upstream
 * calls it (in pool for a pattern).
 *     NGX_OK
 *     NGX_DECLINED  the group has no such model
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_model_find(ngx_pool_t *pool,
    ngx_http_modelgw_group_t *group, ngx_str_t *id,
    ngx_http_modelgw_model_t **model, ngx_str_t *upstream_id);

/* Whether a model of the group that exists may be used with the key. */
ngx_uint_t ngx_http_modelgw_model_enabled(ngx_modelgw_key_t *key,
    ngx_str_t *id);

/* option.c: the options of a model line; sets the model's fields from cf */

ngx_int_t ngx_http_modelgw_option_parse(ngx_conf_t *cf,
    ngx_http_modelgw_model_t *model);

/* keepalive.c: modelgw_keepalive */

char *ngx_http_modelgw_set_keepalive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* keys.c: modelgw_keys */

char *ngx_http_modelgw_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Reads a limit: NGX_CONF_OK, or what is wrong with it. */
char *ngx_http_modelgw_keys_limit(ngx_str_t *value, uint32_t *limit);

/* lists.c: the models= lists of keys */

ngx_int_t ngx_http_modelgw_lists_init(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * The list "a,b" of models of a group, as an array of ngx_str_t; place is that
 * of the key.  NULL: no memory.
 */
ngx_array_t *ngx_http_modelgw_lists_get(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_group_t *group,
    ngx_str_t *value, ngx_http_modelgw_place_t *place);

/* What can be checked only when all is read: NGX_OK, NGX_ERROR (logged). */
ngx_int_t ngx_http_modelgw_lists_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/* lint.c: what nginx -t refuses or warns of in a gateway location */

/*
 * Checks and adjusts the location that cf->ctx is at; called as it is merged.
 * own tells that "modelgw on" is its own, not inherited.
 *     NGX_CONF_OK, or NGX_CONF_ERROR after a line in the log
 */
char *ngx_http_modelgw_lint_location(ngx_conf_t *cf, ngx_uint_t own);

/*
 * Of the configurations of a level, that of an HTTP module that nginx may lack:
 * NULL then.
 */
void *ngx_http_modelgw_lint_conf(ngx_conf_t *cf, void **confs,
    const char *name);

/* The place of that module in the cycle's list; NULL: nginx lacks it. */
ngx_module_t **ngx_http_modelgw_lint_module(ngx_conf_t *cf, const char *name);

/* lint_proxy.c */

/*
 * Has the proxy's directives of this cycle checked as they are read.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_lint_proxy(ngx_conf_t *cf);


#endif /* _NGX_HTTP_MODELGW_CONF_H_INCLUDED_ */
