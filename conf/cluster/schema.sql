-- The books of a cluster of modelgw nodes.  PostgreSQL 13 and later; nothing here that CockroachDB or
-- YugabyteDB do not have (no LISTEN, no advisory lock, no partition, no trigger, no PL/pgSQL).
-- Amounts are nano-euro, times milliseconds since the Epoch, by the database's clock where one decides something.

CREATE SCHEMA modelgw;

-- one row
CREATE TABLE modelgw.cluster (
    one          BOOLEAN NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    id           TEXT    NOT NULL,          -- random, made once: a node's journal belongs to it
    version      INTEGER NOT NULL,          -- of this schema
    oldest       INTEGER NOT NULL,          -- schema version that a node must know at least
    keys_version BIGINT  NOT NULL,          -- of the last change of a key or an account
    clerk        TEXT    NOT NULL,          -- node that rolls up, and until when
    clerk_until  BIGINT  NOT NULL
);

CREATE TABLE modelgw.nodes (
    num          INTEGER NOT NULL PRIMARY KEY,
    journal      TEXT    NOT NULL UNIQUE,   -- random id of its journal file: that is who it is
    name         TEXT    NOT NULL,          -- for people
    version      INTEGER NOT NULL,
    epoch        BIGINT  NOT NULL,          -- grows with each start and write-off
    process      TEXT    NOT NULL,          -- random id of the process that started last; "": written off since
    pos          BIGINT  NOT NULL,          -- its journal is in "calls" up to here
    call         BIGINT  NOT NULL DEFAULT 0, -- id of the call at pos: by it a copy of the journal is found; 0: none
    joined       BIGINT  NOT NULL,
    seen         BIGINT  NOT NULL,
    state        INTEGER NOT NULL,          -- 0 member, 1 left, 2 written off
    drain        BOOLEAN NOT NULL DEFAULT false,  -- asked to leave
    keys_version BIGINT  NOT NULL DEFAULT 0, -- it knows all changes up to this
    journal_end  BIGINT  NOT NULL DEFAULT 0  -- last position of its journal, as it said last
);

-- free: what no node has.  An account's balance is free + what its leases have left.
-- A name with "#" is the budget of a key for one window, see "budgets"; names of accounts have none.
CREATE TABLE modelgw.accounts (
    name         TEXT    NOT NULL PRIMARY KEY,
    free         BIGINT  NOT NULL,
    opened       BIGINT  NOT NULL,
    recall       BIGINT  NOT NULL DEFAULT 0, -- number of the last recall
    state        TEXT    NOT NULL DEFAULT 'open',
    note         TEXT    NOT NULL DEFAULT '',
    version      BIGINT  NOT NULL DEFAULT 0  -- cluster.keys_version when it was changed
);
CREATE INDEX accounts_version ON modelgw.accounts (version);

-- budgets that are lent like accounts: "name" is their row in accounts and leases
CREATE TABLE modelgw.budgets (
    key          TEXT    NOT NULL,
    starts       BIGINT  NOT NULL,          -- calls that ended from here
    ends         BIGINT  NOT NULL,          -- up to here, exclusive
    name         TEXT    NOT NULL UNIQUE,
    lim          BIGINT  NOT NULL,          -- what it is in this window
    since        BIGINT  NOT NULL DEFAULT 0, -- when the configuration was loaded that has said so; 0: it is the key's own
    PRIMARY KEY (key, starts, ends)
);

-- Totals that only grow.  Left of a lease: granted - returned - forced - spent.  granted and forced are the
-- database's word, returned and spent the node's journal's.  Written under the lock of the node's row in nodes.
CREATE TABLE modelgw.leases (
    node         INTEGER NOT NULL,
    account      TEXT    NOT NULL,
    granted      BIGINT  NOT NULL DEFAULT 0,
    returned     BIGINT  NOT NULL DEFAULT 0,
    forced       BIGINT  NOT NULL DEFAULT 0, -- taken back without the node
    spent        BIGINT  NOT NULL DEFAULT 0, -- sum(cost) of its calls up to nodes.pos
    held         BIGINT  NOT NULL DEFAULT 0, -- as it said last; for people
    answered     BIGINT  NOT NULL DEFAULT 0, -- number of the recall it has answered
    PRIMARY KEY (node, account)
);
CREATE INDEX leases_account ON modelgw.leases (account);

-- accounts that some node runs short of now
CREATE TABLE modelgw.recalls (
    account      TEXT    NOT NULL PRIMARY KEY,
    no           BIGINT  NOT NULL,
    until        BIGINT  NOT NULL
);

CREATE TABLE modelgw.topups (
    id           TEXT    NOT NULL PRIMARY KEY,
    account      TEXT    NOT NULL,
    amount       BIGINT  NOT NULL,
    time         BIGINT  NOT NULL,
    reason       TEXT    NOT NULL DEFAULT ''
);
CREATE INDEX topups_account ON modelgw.topups (account, time);

CREATE TABLE modelgw.calls (
    node         INTEGER NOT NULL,
    pos          BIGINT  NOT NULL,          -- in that node's journal
    id           BIGINT  NOT NULL,          -- unique in the cluster: its last 10 bits are the node's
    time         BIGINT  NOT NULL,
    ended        BIGINT  NOT NULL,
    key          TEXT    NOT NULL,
    account      TEXT    NOT NULL,
    model        TEXT    NOT NULL,
    input        BIGINT  NOT NULL,
    cache_read   BIGINT  NOT NULL,
    cache_write  BIGINT  NOT NULL,
    cache_write_1h BIGINT NOT NULL,
    output       BIGINT  NOT NULL,
    reasoning    BIGINT  NOT NULL,
    cost         BIGINT  NOT NULL,
    outcome      TEXT    NOT NULL,
    "end"        TEXT    NOT NULL,
    status       INTEGER NOT NULL,
    request_id   TEXT    NOT NULL,
    first_byte   BIGINT,
    flags        INTEGER NOT NULL,
    price        BIGINT  NOT NULL,
    PRIMARY KEY (node, pos)
);
CREATE INDEX calls_account ON modelgw.calls (account, ended);
CREATE INDEX calls_key     ON modelgw.calls (key, ended);
CREATE INDEX calls_ended   ON modelgw.calls (ended);
CREATE INDEX calls_id      ON modelgw.calls (id);

-- by the hour when calls ended, up to the mark "hours"
CREATE TABLE modelgw.hours (
    hour BIGINT NOT NULL, account TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL,
    calls BIGINT NOT NULL, errors BIGINT NOT NULL, input BIGINT NOT NULL, cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL, cache_write_1h BIGINT NOT NULL, output BIGINT NOT NULL, reasoning BIGINT NOT NULL,
    cost BIGINT NOT NULL, duration BIGINT NOT NULL, first_bytes BIGINT NOT NULL, first_byte BIGINT NOT NULL,
    PRIMARY KEY (hour, account, key, model)
);
CREATE INDEX hours_account ON modelgw.hours (account, hour);

CREATE TABLE modelgw.marks (
    name         TEXT    NOT NULL PRIMARY KEY,
    value        BIGINT  NOT NULL
);
INSERT INTO modelgw.marks VALUES ('hours', 0);

-- calls that were rolled up; by node, since a budget counts what a node has spent
CREATE TABLE modelgw.days (
    day TEXT NOT NULL, account TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, node INTEGER NOT NULL,
    calls BIGINT NOT NULL, errors BIGINT NOT NULL, input BIGINT NOT NULL, cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL, cache_write_1h BIGINT NOT NULL, output BIGINT NOT NULL, reasoning BIGINT NOT NULL,
    cost BIGINT NOT NULL, duration BIGINT NOT NULL, first_bytes BIGINT NOT NULL, first_byte BIGINT NOT NULL,
    PRIMARY KEY (day, account, key, model, node)
);

-- keys made by operators, a row a digest: one that is rotated with grace has two
CREATE TABLE modelgw.keys (
    digest       BYTEA   NOT NULL PRIMARY KEY, -- SHA-256 of the whole key
    id           TEXT    NOT NULL,
    account      TEXT    NOT NULL,
    "group"      TEXT    NOT NULL,
    models       TEXT    NOT NULL,          -- "" all, else a,b,c
    rpm          BIGINT  NOT NULL,
    tpm          BIGINT  NOT NULL,
    concurrency  BIGINT  NOT NULL,
    budget       BIGINT  NOT NULL,
    "window"     TEXT    NOT NULL,
    expires      BIGINT  NOT NULL,
    state        TEXT    NOT NULL,
    version      BIGINT  NOT NULL,          -- of the key, for If-Match
    created      BIGINT  NOT NULL,
    changed      BIGINT  NOT NULL,
    note         TEXT    NOT NULL,
    keys_version BIGINT  NOT NULL DEFAULT 0 -- cluster.keys_version when it was changed
);
CREATE INDEX keys_id ON modelgw.keys (id);
CREATE INDEX keys_account ON modelgw.keys (account);
CREATE INDEX keys_version ON modelgw.keys (keys_version);

-- pico-euro per token; the id is made of all the rest
CREATE TABLE modelgw.prices (
    id           BIGINT  NOT NULL PRIMARY KEY,
    "group"      TEXT    NOT NULL,
    model        TEXT    NOT NULL,
    "from"       BIGINT  NOT NULL,
    input        BIGINT  NOT NULL,
    output       BIGINT  NOT NULL,
    cache_read   BIGINT  NOT NULL,
    cache_write  BIGINT  NOT NULL,
    cache_write_1h BIGINT NOT NULL
);

-- who has changed what; the id is its time, made unique among those of its node
CREATE TABLE modelgw.actions (
    node         INTEGER NOT NULL,
    id           BIGINT  NOT NULL,
    time         BIGINT  NOT NULL,
    actor        TEXT    NOT NULL,
    address      TEXT    NOT NULL,
    action       TEXT    NOT NULL,
    target       TEXT    NOT NULL,
    before       TEXT    NOT NULL,
    after        TEXT    NOT NULL,
    PRIMARY KEY (id, node)
);

-- limits a minute and calls in flight: may be lost, so PostgreSQL may keep them UNLOGGED
CREATE TABLE modelgw.limits (
    key          TEXT     NOT NULL,
    kind         INTEGER  NOT NULL,         -- 0 requests, 1 tokens, 2 calls in flight (its lock only)
    second       BIGINT   NOT NULL,         -- of the last change
    counts       BIGINT[] NOT NULL,         -- in each second from 60 before it to 5 after
    total        BIGINT   NOT NULL,         -- of these
    lim          BIGINT   NOT NULL,         -- as it was said last
    PRIMARY KEY (key, kind)
);
CREATE TABLE modelgw.slots (                -- for calls in flight that a node may have
    key          TEXT     NOT NULL,
    node         INTEGER  NOT NULL,
    slots        BIGINT   NOT NULL,
    lacks        BIGINT   NOT NULL,         -- that it could not get; negative:
                                            -- that it does not need
    seen         BIGINT   NOT NULL,         -- they count for 10 s from then
    PRIMARY KEY (key, node)
);

-- Every difference is 0, at any moment, whatever nodes are doing.  Budgets have rows of their own, with "#".
CREATE VIEW modelgw.audit AS
    SELECT account, sum(balance) AS balance, sum(derived) AS derived, sum(balance) - sum(derived) AS difference
    FROM (SELECT name AS account, free AS balance, 0 AS derived FROM modelgw.accounts
          UNION ALL SELECT account, granted - returned - forced - spent, 0 FROM modelgw.leases
          UNION ALL SELECT account, 0, amount FROM modelgw.topups
          UNION ALL SELECT account, 0, -cost FROM modelgw.calls
          UNION ALL SELECT account, 0, -cost FROM modelgw.days
          UNION ALL SELECT name, 0, lim FROM modelgw.budgets
          UNION ALL SELECT b.name, 0, -c.cost FROM modelgw.budgets b
              JOIN modelgw.calls c ON c.key = b.key AND c.ended >= b.starts AND c.ended < b.ends
          UNION ALL SELECT b.name, 0, -d.cost FROM modelgw.budgets b
              JOIN modelgw.days d ON d.key = b.key
                  AND extract(epoch FROM d.day::date) * 1000 >= b.starts
                  AND extract(epoch FROM d.day::date) * 1000 < b.ends) AS x
    GROUP BY account;

INSERT INTO modelgw.cluster (id, version, oldest, keys_version, clerk, clerk_until)
VALUES (md5(random()::text || clock_timestamp()::text), 1, 1, 0, '', 0);

-- Rows that are updated all the time: PostgreSQL keeps room for their next version on the same page, and cleans up
-- before the tables have grown.
ALTER TABLE modelgw.nodes SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE modelgw.accounts SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE modelgw.leases SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE modelgw.recalls SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE modelgw.limits SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE modelgw.slots SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
