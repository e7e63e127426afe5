// Keys: make, change, rotate, revoke; their limits as they stand.

import { html, useState, useRef, useGet, href, go, leaveFor, count, span, Time, Badge, AccountLink, KeyLink, notify,
         Problem, Loaded, Page, Section, Facts, Table, Pager, Field, Form, Filter, Opener, Dialog, Copy, Plot, series }
  from "./ui.js";
import { who, mayKeys, path, post, patch, signOut, sum, random } from "./api.js";
import { callColumns } from "./calls.js";
import { Connect } from "./connect.js";


const limit = (n, used) => n === null ? "–" : html`${used !== undefined && used !== null ? html`${count(used)} of ` : ""}${count(n)}`;

const Locked = () => html`<span class="badge off" title="A line of the configuration: changed there, by a reload">locked</span>`;

export const keyColumns = ({ account = true } = {}) => [
  ["Key", k => html`<${KeyLink} id=${k.id} />${k.source === "config" && html` <${Locked} />`}`],
  ["State", k => html`<${Badge} text=${k.state} />`],
  account && ["Account", k => html`<${AccountLink} id=${k.account} />`],
  ["Group", k => k.group],
  ["Requests a minute", k => limit(k.rpm, k.used?.rpm), "num"],
  ["Tokens a minute", k => limit(k.tpm, k.used?.tpm), "num"],
  ["At a time", k => limit(k.concurrency, k.used?.concurrency), "num"],
  ["Budget (€)", k => k.budget || "–"],
  ["Last used (UTC)", k => html`<${Time} at=${k.last_used} none="never" />`],
];

export function Keys({ params }) {
  const { new: account, ...filter } = params;
  const from = useGet("/keys", { limit: 50, ...filter });
  return html`
    <${Page} title="Keys" actions=${mayKeys() && html`<${NewKey} account=${account} done=${from.reload} />`}>
      <${Filter} at="keys" params=${filter}>
        <${Field} label="Search" kind="search" name="q" value=${params.q} placeholder="part of id, account or note" />
        <${Field} label="Account" name="account" value=${params.account} />
        <${Field} label="State" kind="select" name="state" value=${params.state || ""}
          options=${[["", "All"], "active", "expired", "revoked"]} />
      <//>
      <${Loaded} from=${from}>${data => html`
        <${Table} name="Keys" rows=${data.keys} columns=${keyColumns()}
          empty=${Object.values(filter).some(v => v) ? html`<p>No key matches. <a href="#/keys">Show all</a>.</p>`
            : html`<p>There are no keys yet. <a href="#/start">Make the first one and call the gateway with it</a>.</p>`} />
        <${Pager} at="keys" params=${filter} data=${data} />`}<//>
    <//>`;
}


// The secret is in this component alone, and gone with it.

export function Secret({ made, close }) {
  return html`
    <${Dialog} title=${`The secret of ${made.id}`} close=${close} wide>
      <p><strong>This is shown once.</strong> The gateway keeps only its hash: copy it now, and give it to its owner.</p>
      <div class="code secret">
        <pre tabindex="0" role="group" aria-label="Secret"><code>${made.key}</code></pre>
        <${Copy} text=${made.key} label="Copy the secret" autofocus />
      </div>
      <details>
        <summary>Connect a client with it</summary>
        <${Connect} group=${made.group} models=${made.models} secret=${made.key} />
      </details>
      <div class="actions"><button type="button" onClick=${close}>I have copied it</button></div>
    <//>`;
}

export const noManaged = html`
  <div class="problem">
    <p><strong>Keys cannot be made here</strong></p>
    <p>Add <code>modelgw_managed_keys 10000;</code> to <code>http { }</code> of nginx.conf, stop nginx and start it again, which a reload
      does not replace: then keys are kept in the ledger, and work at once. Until then they are lines of the keys file, made by
      <code>modelgwctl key new --keys</code>.</p>
  </div>`;

function NewKey({ account, done }) {
  const [open, setOpen] = useState(account !== undefined);
  const [made, setMade] = useState(null);
  const close = () => {
    setOpen(false);
    if (account !== undefined) leaveFor("keys");
  };
  return html`
    <button type="button" onClick=${() => setOpen(true)}>New key</button>
    ${open && html`<${Dialog} title="New key" close=${close} wide>
      ${who().managed_keys ? html`<${KeyForm} account=${account} cancel=${close} made=${key => {
        setOpen(false);
        setMade(key);
        done();
      }} />` : noManaged}
    <//>`}
    ${made && html`<${Secret} made=${made} close=${() => {
      setMade(null);
      (account !== undefined ? leaveFor : go)(["keys", made.id]);
    }} />`}`;
}

const number = text => text ? Number(text) : null;

// what the fields of a form are in a request; key: what was there before
function wanted(v, key) {
  const models = [...(v["models[]"] || []), ...(v.other || "").split(/[\s,]+/)].filter(m => m);
  const all = {
    models: models.length ? models.sort() : null, rpm: number(v.rpm), tpm: number(v.tpm), concurrency: number(v.concurrency),
    budget: v.budget ? `${v.budget}/${v.window}` : null, expires: v.expires || null, note: v.note,
  };
  if (!key) return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null && value !== ""));
  const before = { ...key, models: key.models && [...key.models].sort(), expires: key.expires && key.expires.slice(0, 10), note: key.note || "" };
  return Object.fromEntries(Object.entries(all)
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name] ?? null)));
}

function Limiting({ key_: key = {}, group, models }) {
  const all = models.filter(m => m.group === group);
  const known = all.filter(m => m.id[0] !== "~").map(m => m.id);
  const [budget = "", window = "month"] = (key.budget || "").split("/");
  const others = (key.models || []).filter(m => !known.includes(m));
  return html`
    <fieldset key=${group}>
      <legend>Models</legend>
      <p class="hint">None chosen: all of group ${group}.</p>
      <div class="checks">${known.map(id => html`
        <${Field} label=${id} kind="checkbox" name="models[]" value=${id} defaultChecked=${(key.models || []).includes(id)} />`)}</div>
      ${(others.length || all.length > known.length) && html`
        <${Field} label="Other models" name="other" value=${others.join(" ")} hint="ids that a pattern of the group admits" />`}
    </fieldset>
    <fieldset class="grid">
      <legend>Limits</legend>
      <${Field} label="Requests a minute" kind="number" name="rpm" min="1" value=${key.rpm ?? ""} placeholder="the group's" />
      <${Field} label="Tokens a minute" kind="number" name="tpm" min="1" value=${key.tpm ?? ""} placeholder="the group's" />
      <${Field} label="Calls at a time" kind="number" name="concurrency" min="1" value=${key.concurrency ?? ""} placeholder="the group's" />
      <${Field} label="Budget in €" name="budget" inputmode="decimal" value=${budget} placeholder="none" />
      <${Field} label="Budget period" kind="select" name="window" value=${window} options=${["day", "week", "month", "total"]} />
      <${Field} label="Expires (UTC)" kind="date" name="expires" value=${(key.expires || "").slice(0, 10)} hint="the first day it is refused" />
    </fieldset>
    <${Field} label="Note" name="note" value=${key.note || ""} hint="for operators only" />`;
}

export function KeyForm({ account, made, cancel, short }) {
  const from = useGet("/models");
  const groups = useGet("/groups");
  const [group, setGroup] = useState(null);
  const [typed, setTyped] = useState("");
  const timer = useRef();
  const suggest = text => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setTyped(text.trim()), 300);
  };
  const known = useGet("/accounts", { q: typed, limit: 20 }, { skip: !typed });
  const [idempotency] = useState(random);
  const error = from.error || groups.error;
  const again = () => { from.reload(); groups.reload(); };
  if (!from.data || !groups.data) return html`<${Problem} error=${error} retry=${again} />${!error && html`<p class="loading">Loading…</p>`}`;

  const names = groups.data.groups.map(g => g.name);
  if (!names.length) return html`<p>No group is configured: add <code>modelgw_group</code> to nginx.conf.</p>`;
  const chosen = group ?? names[0];
  const send = async v => made(await post("/keys", {
    ...(v.id && { id: v.id }), account: v.account, group: v.group, ...wanted(v),
    ...(!v.founding && { founding: false }),
  }, { "Idempotency-Key": "console-" + idempotency }));
  return html`
    <${Form} name="New key" submit="Make the key" cancel=${cancel} send=${send}>
      <div class="grid">
        <${Field} label="Account" name="account" required autofocus value=${account || ""} list="accounts"
          onInput=${event => suggest(event.target.value)} hint="one that exists, or a new name, which opens it" />
        <${Field} label="Key id" name="id" placeholder="made by the gateway" hint="used once only, e.g. alice-laptop" />
        <${Field} label="Group" kind="select" name="group" value=${chosen} options=${names}
          onChange=${event => setGroup(event.target.value)} />
      </div>
      <datalist id="accounts">${(known.data?.accounts || []).map(a => html`<option value=${a.id} />`)}</datalist>
      <${Field} label="Give founding credit, if this opens the account" kind="checkbox" name="founding" defaultChecked />
      ${short ? html`<details><summary>Models and limits</summary><${Limiting} group=${chosen} models=${from.data.models} /></details>`
        : html`<${Limiting} group=${chosen} models=${from.data.models} />`}
    <//>`;
}


const resets = s => s ? span(s) : "–";

export const Limits = ({ of: k }) => html`
  <${Table} name="Limits as they stand" rows=${[
    ["Requests a minute", k.rpm, k.used?.rpm, resets(k.resets_in?.rpm)],
    ["Tokens a minute", k.tpm, k.used?.tpm, resets(k.resets_in?.tpm)],
    ["Calls at a time", k.concurrency, k.used?.concurrency, "–"],
  ]} columns=${[
    ["Limit", r => r[0]],
    ["At most", r => r[1] === null ? "no limit" : count(r[1]), "num"],
    ["Used now", r => count(r[2]), "num"],
    ["Whole again in", r => r[3], "num"],
  ]} />
  ${k.budget && html`<${Facts} items=${[
    ["Budget", `€\u00a0${k.budget.replace("/", " a ").replace("a total", "in total")}`],
    ["Used of it", `€\u00a0${k.budget_used}`],
    k.budget_resets_in !== null && ["Begins anew in", span(k.budget_resets_in)],
  ]} />`}`;

export function Key({ id }) {
  const from = useGet(path`/keys/${id}`);
  const [made, setMade] = useState(null);
  const k = from.data;
  const mine = k && k.source === "ledger" && k.state !== "revoked" && mayKeys();
  return html`
    <${Page} title=${id} kicker=${html`<a href="#/keys">Keys</a>`} actions=${mine && html`
        <${Edit} of=${k} done=${from.reload} />
        <${Rotate} of=${k} made=${setMade} done=${from.reload} />
        <${Revoke} id=${id} done=${from.reload} />`}>
      <${Loaded} from=${from}>${k => html`
        ${k.source === "config" && html`<p class="hint"><${Locked} /> This key is a line of the configuration:
          it is changed and revoked there, by a reload of nginx, and shown here only.</p>`}
        <${Facts} items=${[
          ["State", html`<${Badge} text=${k.state} />`],
          ["Account", html`<${AccountLink} id=${k.account} />`],
          ["Group", k.group],
          ["Models", k.models ? k.models.join(", ") : "all of the group"],
          ["Expires (UTC)", html`<${Time} at=${k.expires} none="never" />`],
          ["Last used (UTC)", html`<${Time} at=${k.last_used} none="never" />`],
          k.old_secret_until && ["An older secret works until (UTC)", html`<${Time} at=${k.old_secret_until} />`],
          k.created && ["Made (UTC)", html`<${Time} at=${k.created} />`],
          ["Kept in", k.source === "config" ? "the configuration" : "the ledger"],
          k.note && ["Note", k.note],
        ]} />
        <${Section} title="Limits"><${Limits} of=${k} /><//>
        <${Spend} of=${{ key: id }} />
        <${Calls} of=${id} />`}<//>
      ${made && html`<${Secret} made=${made} close=${() => setMade(null)} />`}
    <//>`;
}

// of: an account or a key, as the filter of /usage
export function Spend({ of: filter }) {
  const from = useGet("/usage", { by: "day", from: "-30d", ...filter });
  return html`
    <${Section} title="Usage, 30 days">
      <${Loaded} from=${from}>${({ usage }) => {
        const { times, of } = series(usage);
        return html`<div class="plots">
          <${Plot} name="Spend by day" note=${"€\u00a0" + sum(usage.map(r => r.cost))} times=${times} bars
            lines=${[["Spend", of(r => Number(r.cost)), "--c1"]]} text=${v => "€\u00a0" + +v.toPrecision(4)} />
          <${Plot} name="Calls by day" note=${count(usage.reduce((n, r) => n + r.calls, 0))} times=${times} bars
            lines=${[["Calls", of(r => r.calls), "--c2"], ["Errors", of(r => r.errors), "--c4"]]} text=${count} whole />
        </div>`;
      }}<//>
    <//>`;
}

function Calls({ of: key }) {
  const calls = useGet("/calls", { key, limit: 10 });
  return html`
    <${Section} title="Latest calls" actions=${html`<a href=${href("connect", { key })}>Connect a client</a>`}>
      <${Loaded} from=${calls}>${data => html`
        <${Table} name="Latest calls" rows=${data.calls} columns=${callColumns({ account: false, key: false })}
          empty="This key has made no calls." />
        ${data.next && html`<p><a href=${href("calls", { key })}>All calls of this key</a></p>`}`}<//>
    <//>`;
}

function Edit({ of: k, done }) {
  const from = useGet("/models");
  return html`
    <${Opener} text="Edit" title=${`Edit ${k.id}`} wide>${close => html`
      <${Problem} error=${from.error} retry=${from.reload} />
      ${from.data && html`
        <${Form} name="Edit key" submit="Save" cancel=${close} send=${async v => {
          const changes = wanted(v, k);
          if (Object.keys(changes).length) {
            try {
              await patch(path`/keys/${k.id}`, changes, { "If-Match": `"${k.version}"` });
            } finally {
              done();
            }
            notify(`Key ${k.id} is changed`);
          }
          close();
        }}>
          <${Limiting} key_=${k} group=${k.group} models=${from.data.models} />
        <//>`}`}<//>`;
}

const Rotate = ({ of: k, made, done }) => html`
  <${Opener} text="Rotate" title=${`Rotate ${k.id}`}>${close => html`
    <${Form} name="Rotate key" submit="Make a new secret" cancel=${close} send=${async v => {
      try {
        const key = await post(path`/keys/${k.id}/rotate`, v.grace ? { grace: v.grace } : {}, { "If-Match": `"${k.version}"` });
        close();
        made(key);
      } finally {
        done();
      }
    }}>
      <p>The key gets a new secret. Its account, limits and budget stay.</p>
      <${Field} label="The old secret works for" kind="select" name="grace" value="24h" options=${[
        ["", "no longer: it ends now"], ["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]]} />
    <//>`}<//>`;

export const Revoke = ({ id, self, done }) => html`
  <${Opener} text=${self ? "Revoke this key" : "Revoke"} title=${`Revoke ${id}?`} danger>${close => html`
    <${Form} name="Revoke key" submit="Revoke for ever" danger cancel=${close} send=${async () => {
      await post(self ? "/keys/self/revoke" : path`/keys/${id}/revoke`);
      notify(`Key ${id} is revoked`);
      close();
      if (self) await signOut().catch(() => {});
      else done();
    }}>
      <p>Calls with this key get 401 from now on, for ever: it cannot be undone, and its id is never used again.
        Answers that are being streamed finish.${self && " You are signed out."}</p>
    <//>`}<//>`;
