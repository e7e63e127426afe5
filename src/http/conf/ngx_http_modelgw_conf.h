
/*
 * The configuration: its structs, which live as long as the cycle, and the
 * functions that read, check and search it, grouped by file.
 */


#ifndef _NGX_HTTP_MODELGW_CONF_H_INCLUDED_
#define _NGX_HTTP_MODELGW_CONF_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_cluster.h"
#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_memo.h"
#include "ngx_modelgw_metrics.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_usage.h"

extern ngx_module_t  ngx_http_modelgw_module;


#define NGX_HTTP_MODELGW_VERSION     "unreleased" /* as in CHANGELOG.md */

/* bytes of a header name in the configuration and in the log, at most */

#define NGX_HTTP_MODELGW_HEADER_LEN  64


/* of a group's upstream, in shared memory, see zone.h */

typedef struct ngx_http_modelgw_health_s  ngx_http_modelgw_health_t;


/* one name of a set, in lower case */

typedef struct ngx_http_modelgw_name_s  ngx_http_modelgw_name_t;

struct ngx_http_modelgw_name_s {
    ngx_str_t                         name;
    ngx_uint_t                        prefix;      /* 1: all names that begin
                                                      with it */
    ngx_http_modelgw_name_t          *next;        /* in the slot */
};


/* a set: slots by the low 5 bits of the first letter, prefixes last */

typedef struct {
    ngx_http_modelgw_name_t          *first[32];
} ngx_http_modelgw_names_t;


/* a header name as a client has sent it, which is passed or the module's own */

#define NGX_HTTP_MODELGW_KNOWN_HEADERS  256

typedef struct {
    u_char                            len;         /* 0: none */
    u_char                            own;         /* 1: it is not passed */
    u_char                            name[46];
} ngx_http_modelgw_known_header_t;


/* place of a directive, for messages after the http block has been read */

typedef struct {
    u_char                           *file;
    ngx_uint_t                        line;
} ngx_http_modelgw_place_t;


typedef struct {
    ngx_str_t                         id;          /* service id, or a pattern
                                                      "~..." */
    ngx_str_t                         upstream_id; /* of a pattern: with $0
                                                      to $9 */
#if (NGX_PCRE)
    ngx_regex_t                      *regex;       /* NULL: no pattern */
#endif
    ngx_modelgw_price_t               price;
    uint64_t                          price_id;    /* of group, id and price;
                                                      0: not priced */
    ngx_uint_t                        context;     /* tokens; 0: not given */
    ngx_uint_t                        max_output;  /* tokens; 0: not given */
    ngx_modelgw_caps_t                caps;
    ngx_uint_t                        embedding;   /* 1: used by /v1/embeddings
                                                      only; 0: never by it */
    ngx_http_modelgw_place_t          place;
    ngx_uint_t                        extras;      /* 1: the prices include
                                                      extras billed by the
                                                      vendor */
    uint32_t                          cell;        /* of it in the metrics */
    unsigned                          priced:1;
    unsigned                          free:1;
} ngx_http_modelgw_model_t;


/* a status by which a server refuses a call free of charge */

typedef struct {
    ngx_str_t                         name;
    ngx_uint_t                        status;
    ngx_uint_t                        as;          /* the same to nginx, which
                                                      does not know all */
    ngx_uint_t                        mask;        /* of "as" */
} ngx_http_modelgw_refusal_t;


typedef struct {
    ngx_str_t                         name;
    ngx_uint_t                        protocol;    /* NGX_MODELGW_CHAT and
                                                      others, a mask */
    ngx_array_t                       families;    /* of ngx_str_t: prefixes */
    ngx_str_t                         owned_by;
    ngx_str_t                         upstream;    /* "https://NAME" */
    ngx_str_t                         host;        /* NAME */

    /* the header that carries the group's credential */
    ngx_str_t                         header;      /* as configured */
    ngx_str_t                         header_lowcase;
    ngx_uint_t                        header_hash; /* of header_lowcase */
    ngx_str_t                         header_value;
    ngx_str_t                         secret;      /* header_value without
                                                      "Bearer " */

    ngx_array_t                       models;      /* of
                                                 ngx_http_modelgw_model_t:
                                                 listed ones */
    ngx_array_t                       patterns;    /* of the same: patterns,
                                                      first match is used */
    ngx_array_t                       denied;      /* of ngx_str_t: fields
                                                      of a body */
    ngx_array_t                       allowed;     /* of ngx_str_t: fields
                                                      not denied by default */

    ngx_http_modelgw_names_t          pass;        /* those of pass_header */
    ngx_http_modelgw_known_header_t   known[NGX_HTTP_MODELGW_KNOWN_HEADERS];
                                                   /* of this worker, see
                                                      pass_header.c */

    ngx_modelgw_scan_plan_t          *plans[NGX_MODELGW_PROTOCOLS];
                                                   /* scanners of requests */

    ngx_http_upstream_srv_conf_t     *servers;     /* the upstream block */
    ngx_uint_t                        retry;       /* a mask, see group.c */

    /* limits of keys without their own; 0: no limit */
    uint32_t                          rpm;
    uint32_t                          tpm;
    uint32_t                          concurrency;
    ngx_modelgw_budget_t              budget;

    uint32_t                          cell;        /* of it in the metrics */
    ngx_uint_t                        health;      /* its place in the zone of
                                                      health */

    ngx_http_modelgw_place_t          place;       /* of the block, or of a
                                                      key before it */
    ngx_http_modelgw_place_t          upstream_place;
    unsigned                          declared:1;
    unsigned                          ssl:1;       /* the upstream is https */
} ngx_http_modelgw_group_t;


/* roles in the admin interface, one bit each */

#define NGX_HTTP_MODELGW_ROLE_VIEWER   0x01
#define NGX_HTTP_MODELGW_ROLE_BILLING  0x02
#define NGX_HTTP_MODELGW_ROLE_ADMIN    0x04
#define NGX_HTTP_MODELGW_ROLE_HOLDER   0x08        /* of a service key */


typedef struct {
    ngx_str_t                         name;
    u_char                            digest[NGX_MODELGW_KEY_DIGEST];
    ngx_uint_t                        role;        /* not HOLDER */
    time_t                            expires;     /* as that of a key */
} ngx_http_modelgw_operator_t;


/*
 * models= lists of keys, in keys.c; shared memory beside the ledger, in zone.h
 */

typedef struct ngx_http_modelgw_lists_s  ngx_http_modelgw_lists_t;
typedef struct ngx_http_modelgw_shared_s  ngx_http_modelgw_shared_t;


/* the element of a protocol, one bit, in an array with one for each of them */

#define ngx_http_modelgw_plan(plans, protocol)                                \
    ((plans)[__builtin_ctzl(protocol)])


typedef struct {
    ngx_array_t                       groups;      /* of
                                                 ngx_http_modelgw_group_t * */
    ngx_modelgw_keys_t               *keys;        /* NULL: no modelgw_keys */
    ngx_uint_t                        managed_max; /* keys made by operators */
    ngx_modelgw_managed_t            *managed;     /* in a zone of its own;
                                                      NULL: there are none */
    ngx_shm_zone_t                   *managed_zone;
    ngx_http_modelgw_place_t          managed_place; /* file NULL: not set */
    ngx_array_t                      *operators;   /* of
                                               ngx_http_modelgw_operator_t;
                                               NULL: no modelgw_operators */
    ngx_shm_zone_t                   *sessions_zone; /* NULL: the same */
    ngx_str_t                         key_prefix;
    ngx_modelgw_skip_pt               skip;
    ngx_modelgw_scan_plan_t          *plans[NGX_MODELGW_PROTOCOLS];
                                                   /* scanners of answers */
    ngx_modelgw_scan_t               *scans[NGX_MODELGW_PROTOCOLS];
                                                   /* the worker's, for events;
                                                      NULL: not created yet */
    ngx_modelgw_tape_t               *tape;        /* the worker's; NULL: not
                                                      created yet */

    ngx_modelgw_ledger_t             *ledger;      /* in the zone */
    ngx_shm_zone_t                   *zone;
    size_t                            zone_size;   /* bytes */
    ngx_str_t                         ledger_path; /* NUL-terminated; len 0:
                                                      no credit */
    ngx_msec_t                        ledger_flush; /* ms */
    time_t                            ledger_keep; /* seconds */
    int64_t                           founding;    /* nano-euro */
    ngx_http_modelgw_place_t          founding_place;
    ngx_modelgw_cluster_conf_t       *cluster;     /* NULL: one machine */
    ngx_http_modelgw_place_t          cluster_place;
    ngx_http_modelgw_place_t          budget_place; /* of the first budget= */
    ngx_str_t                         budget_name;  /* of its key or group */
    ngx_fd_t                          ledger_lock; /* the cycle's own */
    ngx_fd_t                          ledger_file; /* the cycle's own */
    ngx_http_modelgw_shared_t        *shared;      /* in the zone */
    ngx_shm_zone_t                   *health_zone; /* NULL: no groups */
    ngx_cycle_t                      *cycle;
    time_t                            config_time; /* when it took effect */
    uint32_t                          worker;      /* number of the process in
                                                      the ledger */

    ngx_modelgw_metrics_t            *metrics;     /* in their zone; NULL: no
                                                      modelgw_metrics */
    size_t                            metrics_size; /* bytes of the zone */
    ngx_uint_t                        metrics_keys; /* with counters of their
                                                      own, at most */

    ngx_modelgw_memo_t               *memo;        /* the worker's */

    ngx_http_modelgw_lists_t         *lists;       /* NULL after their check */
    ngx_http_handler_pt               proxy;       /* content handler that
                                                      proxy_pass sets; NULL: no
                                                      proxy_pass was read */
    unsigned                          metered:1;   /* a location has
                                                      modelgw_metrics */
    unsigned                          used:1;      /* a location has "modelgw
                                                      on" or flat errors */
} ngx_http_modelgw_main_conf_t;


typedef struct {
    ngx_array_t                       names;       /* of
                                                   ngx_http_server_name_t; set
                                                   by an admin location */
    ngx_http_upstream_init_peer_pt    peer_init;   /* of an upstream block, as
                                                      it was before retry.c;
                                                      NULL: as it is */
    unsigned                          flat:1;      /* one of its locations has
                                                      "modelgw on" or
                                                      "modelgw_admin" */
    ngx_http_modelgw_place_t          aliases;     /* "modelgw on" of a location
                                                      with modelgw_aliases;
                                                      line 0: none */
    unsigned                          aliased:1;   /* a path without "/v1" may
                                                      reach one */
    unsigned                          cors:1;      /* a gateway location has
                                                      modelgw_cors */
    unsigned                          balanced:1;  /* the servers of the block
                                                      are a list of nginx */
} ngx_http_modelgw_srv_conf_t;


/* action if a client closes its connection before the end of the answer */

#define NGX_HTTP_MODELGW_ABORT_AUTO   0            /* cut streams, drain other
                                                      answers */
#define NGX_HTTP_MODELGW_ABORT_CUT    1
#define NGX_HTTP_MODELGW_ABORT_DRAIN  2


typedef struct {
    ngx_flag_t                        enable;
    ngx_flag_t                        memo;
    ngx_flag_t                        flat_errors; /* NGX_CONF_UNSET: as in
                                                      the server */
    ngx_flag_t                        error_compat;
    ngx_flag_t                        translate_strict;
    ngx_flag_t                        aliases;
    ngx_array_t                      *cors;        /* of ngx_str_t: origins, or
                                                      "*" alone; NULL: off */
    size_t                            max_event_size;  /* bytes */
    ngx_uint_t                        abort;       /* one of the above */
    ngx_msec_t                        abort_timeout;  /* ms */
    ngx_msec_t                        keepalive;   /* ms; 0: off */
    ngx_uint_t                        own;         /* 1: "modelgw" is not
                                                      inherited */
    ngx_http_modelgw_place_t          place;       /* of "modelgw on" */
    ngx_http_modelgw_place_t          admin;       /* of modelgw_admin; line 0:
                                                      not set */
    ngx_http_modelgw_place_t          ready;       /* of modelgw_ready; the
                                                      same */
    ngx_uint_t                        admin_users; /* 1: "auth_basic" checks
                                                      them */
    ngx_http_complex_value_t         *admin_actor; /* NULL: not set, nor is
                                                      the role */
    ngx_http_complex_value_t         *admin_role;
    ngx_str_t                         topup_url;   /* len 0: none */
    ngx_str_t                         gateway_url; /* len 0: none */
    ngx_http_modelgw_place_t          metrics;     /* of modelgw_metrics; line
                                                      0: not set */
    ngx_uint_t                        metrics_keys; /* with series, at most */
    ngx_uint_t                        metrics_accounts;
    ngx_uint_t                        elsewhere;   /* 1: proxy_pass is not to
                                                      $modelgw_upstream */
} ngx_http_modelgw_loc_conf_t;


/*
 * Functions for directives and lines, of the type of ngx_command_t.set or with
 * the group, return NGX_CONF_OK, NGX_CONF_ERROR (logged) or a text that nginx
 * logs.
 */

/* conf.c */

/* For the module's context: NULL if there is no memory. */
void *ngx_http_modelgw_create_main_conf(ngx_conf_t *cf);
void *ngx_http_modelgw_create_srv_conf(ngx_conf_t *cf);
void *ngx_http_modelgw_create_loc_conf(ngx_conf_t *cf);

/* Sets defaults, checks keys and groups: NGX_CONF_OK, _ERROR (logged). */
char *ngx_http_modelgw_init_main_conf(ngx_conf_t *cf, void *conf);

/* Always NGX_CONF_OK; the result is checked by the next one. */
char *ngx_http_modelgw_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);

/*
 * Checks and adjusts the location of cf->ctx after it was merged.
 *     NGX_CONF_OK, NGX_CONF_ERROR (logged)
 */
char *ngx_http_modelgw_check_loc_conf(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *mlcf);

/*
 * modelgw, modelgw_key_prefix, modelgw_abort, modelgw_keepalive,
 * modelgw_cors, modelgw_topup_url and modelgw_gateway_url
 */
char *ngx_http_modelgw_set_enable(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_modelgw_set_key_prefix(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_modelgw_set_abort(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_modelgw_set_keepalive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_modelgw_set_cors(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_modelgw_set_url(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Whether text has 1 to max bytes, all letters, digits or in "also". */
ngx_uint_t ngx_http_modelgw_conf_word(ngx_str_t *text, const char *also,
    size_t max);

/* Whether text is a valid id of a key, an account or a top-up. */
ngx_uint_t ngx_http_modelgw_conf_id(ngx_str_t *text);

/* Whether the text is in the array of ngx_str_t. */
ngx_uint_t ngx_http_modelgw_conf_listed(ngx_array_t *names, ngx_str_t *text);


/* option.c: options of a line */

typedef struct ngx_http_modelgw_option_s  ngx_http_modelgw_option_t;

/*
 * Sets the field from the value.
 *     NGX_OK
 *     NGX_DECLINED  the value is not valid
 *     NGX_BUSY      the field is set already, by another line
 */
typedef ngx_int_t (*ngx_http_modelgw_option_pt)(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);

struct ngx_http_modelgw_option_s {
    ngx_str_t                         name;        /* with "=" if it has a
                                                      value */
    ngx_http_modelgw_option_pt        set;
    size_t                            offset;      /* of the field in the
                                                      object */
    const char                       *takes;       /* valid values, for
                                                      messages */
    ngx_conf_enum_t                  *words;       /* NULL: not words */
};


typedef struct {
    ngx_http_modelgw_option_t        *table;       /* last name is empty */
    void                             *object;      /* with the fields */
    const char                       *what;        /* for messages: "model" */
    ngx_str_t                        *name;        /* of the model */
    const char                       *after;       /* begins the word after the
                                                      first of a next line:
                                                      "sha256:"; NULL: any */
} ngx_http_modelgw_options_t;

/*
 * Sets fields by the words of the line from the given index on.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_option_parse(ngx_conf_t *cf, ngx_uint_t first,
    ngx_http_modelgw_options_t *o);

/* The same for a directive, whose options set fields of the object. */
ngx_int_t ngx_http_modelgw_option_directive(ngx_conf_t *cf, ngx_uint_t first,
    ngx_http_modelgw_option_t *table, void *object);

/*
 * Setters of options, of the type ngx_http_modelgw_option_pt, with what they
 * take, for messages.
 */

#define NGX_HTTP_MODELGW_COUNT_MAX    1000000000
#define NGX_HTTP_MODELGW_COUNT_TAKES                                          \
    "a number from 1 to " ngx_value(NGX_HTTP_MODELGW_COUNT_MAX)
#define NGX_HTTP_MODELGW_BUDGET_TAKES                                         \
    "euro for a window, as 50.00/month: /day, /week, /month, /total"
#define NGX_HTTP_MODELGW_ID_TAKES     "1 to 64 letters, digits and \"._@:-\""
#define NGX_HTTP_MODELGW_WORD_TAKES   "one of"
#define NGX_HTTP_MODELGW_WORDS_TAKES  "with commas between"

/* A number from 1 to NGX_HTTP_MODELGW_COUNT_MAX; the field is ngx_uint_t. */
ngx_int_t ngx_http_modelgw_option_count(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);

/* The same; the field is uint32_t, and must be 0 before. */
ngx_int_t ngx_http_modelgw_option_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);

/* A budget; the field is ngx_modelgw_budget_t, and must be zero before. */
ngx_int_t ngx_http_modelgw_option_budget(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);

/* An id, see conf_id(); the field is ngx_str_t, the text is not copied. */
ngx_int_t ngx_http_modelgw_option_id(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);

/* One of the option's words; the field is ngx_uint_t. */
ngx_int_t ngx_http_modelgw_option_word(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);

/*
 * Sets *n to the value of a word: NGX_OK, NGX_DECLINED (unknown).  The list
 * ends with an empty name.
 */
ngx_int_t ngx_http_modelgw_option_word_find(ngx_conf_enum_t *words,
    ngx_str_t *text, ngx_uint_t *n);

/* Some of them, with commas between: the bits of all in a ngx_uint_t. */
ngx_int_t ngx_http_modelgw_option_words(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);


/* group.c */

/* modelgw_group: reads the block. */
char *ngx_http_modelgw_group(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/*
 * Returns the group of that name.  If it is new, it is created with the place
 * and "declared" 0.  NULL: no memory.
 */
ngx_http_modelgw_group_t *ngx_http_modelgw_group_named(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *name,
    ngx_http_modelgw_place_t *place);

/* Returns the group of that name that is configured, or NULL. */
ngx_http_modelgw_group_t *ngx_http_modelgw_group_find(
    ngx_http_modelgw_main_conf_t *mmcf, u_char *name, size_t len);

/* At the end of the http block: NGX_OK, NGX_ERROR (logged). */
ngx_int_t ngx_http_modelgw_group_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/* Returns the refusal of that status; NULL: the group does not retry it. */
ngx_http_modelgw_refusal_t *ngx_http_modelgw_group_refusal(
    ngx_http_modelgw_group_t *group, ngx_uint_t status);

/* Returns the group with a family of the id, or NULL. */
ngx_http_modelgw_group_t *ngx_http_modelgw_group_of_family(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *id);

/* Whether the id belongs to a family of the group. */
ngx_uint_t ngx_http_modelgw_group_owns(ngx_http_modelgw_group_t *group,
    ngx_str_t *id);


/* model.c: the model line of a group, and the search for models */

/* the options of the line; the object is a model */
extern ngx_http_modelgw_option_t  ngx_http_modelgw_model_options[];

/* Adds the model of the line. */
char *ngx_http_modelgw_model(ngx_conf_t *cf, ngx_http_modelgw_group_t *group);

/* Whether text is a valid model id: 1 to 256 of A-Z a-z 0-9 . _ : / @ + - */
ngx_uint_t ngx_http_modelgw_model_id(ngx_str_t *text);

/*
 * Finds the group's model with the service id, and sets *upstream_id to the
 * upstream's id of it (for a pattern, allocated from pool).
 *     NGX_OK
 *     NGX_DECLINED  the group has no such model
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_model_find(ngx_pool_t *pool,
    ngx_http_modelgw_group_t *group, ngx_str_t *id,
    ngx_http_modelgw_model_t **model, ngx_str_t *upstream_id);

/* Whether the key may use the model, which its group has. */
ngx_uint_t ngx_http_modelgw_model_enabled(ngx_modelgw_key_t *key,
    ngx_str_t *id);


/* credential.c */

/* The credential line of a group: sets its header and secret. */
char *ngx_http_modelgw_credential(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);


/* cluster.c */

/* modelgw_cluster CONNINFO [password=file:PATH] [option ...] */
char *ngx_http_modelgw_set_cluster(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


/* names.c: sets of header names */

/* Makes a set of a static list, which ends with an empty name. */
void ngx_http_modelgw_names_index(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *list);

/*
 * Adds a name, which is not copied.
 *     NGX_OK
 *     NGX_DECLINED  it is a duplicate
 */
ngx_int_t ngx_http_modelgw_names_insert(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *name);

/* Returns the entry that is _same() as the name, or a prefix of it, or NULL. */
ngx_http_modelgw_name_t *ngx_http_modelgw_names_find(
    ngx_http_modelgw_names_t *names, ngx_str_t *name);

/*
 * Whether the names are equal, in any case and with "_" for "-", as CGI and
 * WSGI see them.
 */
ngx_uint_t ngx_http_modelgw_names_same(ngx_str_t *lowcase, ngx_str_t *name);

/* Whether a header can match both a and b. */
ngx_uint_t ngx_http_modelgw_names_overlap(ngx_http_modelgw_name_t *a,
    ngx_http_modelgw_name_t *b);


/*
 * pass_header.c: which client headers are passed; the pass_header line of a
 * group
 */

/* To be called before the configuration is read. */
void ngx_http_modelgw_pass_header_init(void);

/*
 * Whether a client's header is passed to the group's upstream, by its name.
 *     NGX_OK        it is
 *     NGX_DECLINED  it is not, as it is not listed
 *     NGX_ABORT     it never is, as the module or the proxy sets it
 */
ngx_int_t ngx_http_modelgw_pass_header_action(ngx_http_modelgw_group_t *group,
    ngx_table_elt_t *h);

/* Adds the names of the line. */
char *ngx_http_modelgw_pass_header(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);

/*
 * Checks that pass_header does not cover the header of the group's credential.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_pass_header_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);


/* keys.c */

/* modelgw_keys: reads the block. */
char *ngx_http_modelgw_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Sets *budget to that of the key or of its group; limit 0: there is none. */
void ngx_http_modelgw_keys_budget(ngx_modelgw_key_t *key,
    ngx_modelgw_budget_t *budget);

/* Whether the key or its group has a limit or a budget: it needs a record. */
ngx_uint_t ngx_http_modelgw_keys_limited(ngx_modelgw_key_t *key);

/* Returns "a,b" as an array of ngx_str_t; NULL: no memory. */
ngx_array_t *ngx_http_modelgw_keys_models(ngx_pool_t *pool, ngx_str_t *text);

/* At the end of the http block: NGX_OK, NGX_ERROR (logged). */
ngx_int_t ngx_http_modelgw_keys_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/*
 * For lines of other files with hashes; "what" is for messages.  _file() checks
 * that only the owner and a group can write or replace the file that is read,
 * _digest() reads the second word of the line, "sha256:HEX", into digest, which
 * has room for NGX_MODELGW_KEY_DIGEST bytes.
 *     NGX_OK, or another code (logged)
 */
ngx_int_t ngx_http_modelgw_keys_file(ngx_conf_t *cf, const char *what,
    u_char *name);
ngx_int_t ngx_http_modelgw_keys_digest(ngx_conf_t *cf, const char *what,
    u_char *digest);

/* A day, of the type ngx_http_modelgw_option_pt; the field is time_t. */
ngx_int_t ngx_http_modelgw_keys_day(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);

#define NGX_HTTP_MODELGW_DAY_TAKES    "a day as YYYY-MM-DD"

/* Logs a warning that this expired then, seconds since the Epoch. */
void ngx_http_modelgw_keys_expired(ngx_conf_t *cf, const char *what,
    ngx_str_t *id, time_t expires);


/* operators.c */

/* modelgw_operators: reads the block. */
char *ngx_http_modelgw_operators(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * At the end of the http block: checks that no operator has the hash of a key.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_operators_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);

/* Returns the operator whose token has the digest, or NULL. */
ngx_http_modelgw_operator_t *ngx_http_modelgw_operators_find(
    ngx_http_modelgw_main_conf_t *mmcf, u_char *digest);

/* roles of operators, as words; a value has one bit */
extern ngx_conf_enum_t  ngx_http_modelgw_roles[];


/* lint.c: checks of gateway locations */

/*
 * Checks and adjusts the location of cf->ctx after it was merged.  own: it has
 * "modelgw on" itself.
 *     NGX_CONF_OK, NGX_CONF_ERROR (logged)
 */
char *ngx_http_modelgw_lint_location(ngx_conf_t *cf, ngx_uint_t own);

/*
 * Warns of servers in which paths without "/v1" reach no location with
 * modelgw_aliases; when the http block was read.
 */
void ngx_http_modelgw_lint_aliases(ngx_conf_t *cf);

/*
 * Checks the proxy's directives of this cycle as they are read.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_lint_proxy(ngx_conf_t *cf);

/*
 * Returns the configuration of an HTTP module, by its name, from those of a
 * level, or NULL if nginx has no such module.
 */
void *ngx_http_modelgw_lint_conf(ngx_conf_t *cf, void **confs,
    const char *name);


#endif /* _NGX_HTTP_MODELGW_CONF_H_INCLUDED_ */
