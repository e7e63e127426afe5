// The overview, and the way from nothing to the first call.

import { html, useState, useEffect, useGet, own, href, count, ms, Money, Euro, Badge, AccountLink, KeyLink, Link, Time,
         Problem, Loaded, Page, Section, Tiles, Table, Copy, Plot, series, Facts }
  from "./ui.js";
import { who, mayKeys, mayMoney, get, sum, nano, path } from "./api.js";
import { TopUp } from "./accounts.js";
import { KeyForm, noManaged } from "./keys.js";
import { Connect } from "./connect.js";

const RANGES = { "24h": ["24 hours", "hour"], "7d": ["7 days", "hour"], "30d": ["30 days", "day"] };

export function Overview({ params }) {
  const calls = useGet("/calls", { limit: 1 });
  if (calls.data && !calls.data.calls.length) return html`<${FirstCall} />`;
  if (calls.error?.status === 404) return html`<${Page} title="Overview"><${Problem} error=${calls.error} retry=${calls.reload} /><//>`;
  return html`<${Numbers} range=${own(RANGES, params.range) ? params.range : "24h"} />`;
}

const tokens = r => r.input_tokens + r.cache_read_tokens + r.cache_write_tokens + r.cache_write_1h_tokens;
const total = (rows, f) => rows.reduce((all, r) => all + f(r), 0);
const mean = (rows, f) => {
  const some = rows.filter(r => r.calls && f(r) !== null);
  return some.length ? Math.round(total(some, r => f(r) * r.calls) / total(some, r => r.calls)) : null;
};
const money = v => "€\u00a0" + +v.toPrecision(4);
const short = v => v >= 1e6 ? `${+(v / 1e6).toPrecision(3)} M` : v >= 1e3 ? `${+(v / 1e3).toPrecision(3)} k` : String(+v.toPrecision(3));

function Numbers({ range }) {
  const [text, by] = RANGES[range];
  const usage = useGet("/usage", { by, from: "-" + range }, { every: 60000 });
  const status = useGet("/status", null, { every: 10000 });
  const switches = html`
    <nav class="choices" aria-label="Time range">${Object.entries(RANGES).map(([r, [name]]) => html`
      <a class="button quiet" href=${href([], { range: r })} aria-current=${r === range ? "true" : undefined}>${name}</a>`)}</nav>`;
  return html`
    <${Page} title="Overview" actions=${switches}>
      <${Loaded} from=${usage}>${({ usage: rows }) => {
        const { times, of } = series(rows);
        const calls = total(rows, r => r.calls), errors = total(rows, r => r.errors);
        const spent = sum(rows.map(r => r.cost));
        return html`
          <${Tiles} items=${[
            [`Spend, ${text}`, html`<${Euro} of=${spent} />`],
            ["Calls", count(calls)],
            ["Errors", count(errors), calls ? `${(errors / calls * 100).toFixed(2)} % of calls` : ""],
            ["Tokens", short(total(rows, r => tokens(r) + r.output_tokens)), `${short(total(rows, tokens))} in, ${short(total(rows, r => r.output_tokens))} out`],
            ["Mean duration", ms(mean(rows, r => r.avg_ms)), `first byte ${ms(mean(rows, r => r.avg_first_byte_ms))}`],
            ["In flight now", status.data ? count(status.data.in_flight) : "–", status.data && html`<${Health} of=${status.data} />`],
          ]} />
          <${Section} title="Over time">
            <div class="plots">
              <${Plot} name=${`Spend by ${by}`} times=${times} bars lines=${[["Spend", of(r => Number(r.cost)), "--c1"]]} text=${money} />
              <${Plot} name=${`Calls by ${by}`} times=${times} lines=${[["Calls", of(r => r.calls), "--c2"], ["Errors", of(r => r.errors), "--c4"]]} text=${short} whole />
              <${Plot} name=${`Tokens by ${by}`} times=${times} lines=${[["Input", of(tokens), "--c1"], ["Output", of(r => r.output_tokens), "--c3"]]} text=${short} />
              <${Plot} name=${`Mean latency by ${by}`} times=${times}
                lines=${[["Duration", of(r => r.avg_ms), "--c1"], ["First byte", of(r => r.avg_first_byte_ms), "--c3"]]} text=${v => v < 1000 ? Math.round(v) + " ms" : +(v / 1000).toPrecision(3) + " s"} />
            </div>
          <//>`;
      }}<//>
      <div class="columns">
        <${Top} by="account" range=${range} title="Top accounts" link=${id => html`<${AccountLink} id=${id} />`} />
        <${Top} by="key" range=${range} title="Top keys" link=${id => html`<${KeyLink} id=${id} />`} />
        <${Top} by="model" range=${range} title="Top models" link=${id => html`<${Link} to="calls" params=${{ model: id, from: "-" + range }}>${id}<//>`} />
        <${Section} title="Upstreams" actions=${html`<a href="#/status">Status</a>`}>
          <${Problem} error=${status.error} retry=${status.reload} />
          ${status.data && html`<${Table} name="Upstreams" rows=${status.data.groups} columns=${[
            ["Group", g => g.name],
            ["Errors, 5 min", g => g.error_ratio_5m === null ? "–" : `${(g.error_ratio_5m * 100).toFixed(1)} %`, "num"],
            ["Last answer (UTC)", g => html`<${Time} at=${g.last_ok} none="none yet" />`],
          ]} empty="No group is configured." />`}
        <//>
      </div>
    <//>`;
}

const Health = ({ of: s }) => s.ok ? html`<${Badge} text="healthy" kind="good" />`
  : html`<${Badge} text="admits no calls" kind="bad" />`;

// the answer is sorted by cost
function Top({ by, range, title, link }) {
  const from = useGet("/usage", { by, from: "-" + range, limit: 10 });
  return html`
    <${Section} title=${title}>
      <${Loaded} from=${from}>${({ usage }) => html`
        <${Table} name=${title} rows=${usage} columns=${[
          [by[0].toUpperCase() + by.slice(1), r => link(r[by])],
          ["Calls", r => count(r.calls), "num"],
          ["Errors", r => count(r.errors), "num"],
          ["Cost (€)", r => html`<${Money} of=${r.cost} />`, "num"],
        ]} empty=${`No calls in this time.`} />`}<//>
    <//>`;
}


// First start.  Without a key of this page, any call counts.

export function Start() {
  return html`<${FirstCall} />`;
}

function FirstCall() {
  const [made, setMade] = useState(null);
  const [call, setCall] = useState(null);
  const keys = useGet("/keys", { limit: 1, state: "active" });

  // asked every two seconds until there is one that was not there at first
  const waiting = !call && (made || keys.data?.keys.length > 0);
  useEffect(() => {
    if (!waiting) return undefined;
    let timer, over = false, old = made ? null : undefined;
    const ask = async () => {
      const found = document.hidden ? null
        : await get("/calls", { limit: 1, ...(made && { key: made.id }) }).catch(() => null);
      if (over) return;
      const newest = found?.calls[0] || null;
      if (found && old === undefined) old = newest?.id || null;
      if (newest && newest.id !== old) setCall(newest);
      else timer = setTimeout(ask, 2000);
    };
    ask();
    return () => { over = true; clearTimeout(timer); };
  }, [waiting, made]);

  const has = keys.data?.keys.length > 0;
  const account = made?.account || keys.data?.keys[0]?.account;
  const credit = useGet(path`/accounts/${account}`, null, { skip: !account });
  const poor = credit.data && nano(credit.data.available) <= 0n && html`
    <div class="problem"><p><strong>Account ${account} has no credit</strong></p>
      <p>Calls are refused with 402 until it is topped up${mayMoney() ? html`: <${TopUp} account=${credit.data} done=${credit.reload} />`
        : ": ask an operator with the role billing."}</p></div>`;
  const step = (n, title, done, content) => html`
    <li class=${done ? "done" : ""}><h2>${title}${done && html` <${Badge} text="done" kind="good" />`}</h2>${content}</li>`;

  return html`
    <${Page} title="Make the first call">
      <p class="hint">Three steps from here to a call that is charged.</p>
      <ol class="steps">
        ${step(1, "A key", made || call, made
          ? html`<p>Key <${KeyLink} id=${made.id} /> of account <${AccountLink} id=${made.account} />. Its secret is shown once, here:
              copy it now. It is gone when this page is left.</p>
            <div class="code secret"><pre tabindex="0" role="group" aria-label="Secret"><code>${made.key}</code></pre>
              <${Copy} text=${made.key} label="Copy the secret" /></div>`
          : html`<${Problem} error=${keys.error} retry=${keys.reload} />
            ${has && html`<p>There are keys: go on with the secret of one of them, or make another.</p>`}
            ${!mayKeys() ? !has && html`<p>Ask an operator with the role admin to make a key.</p>`
              : !who().managed_keys ? (has ? html`<details><summary>Make another key</summary>${noManaged}</details>` : noManaged)
              : has ? html`<details><summary>Make another key</summary><${KeyForm} short made=${setMade} /></details>`
              : keys.data && html`<${KeyForm} short made=${setMade} />`}`)}
        ${step(2, "A call", call, made || has
          ? html`${poor}<p>Paste this into a shell${!made && html`, with the secret of a key in <code>MODELGW_KEY</code>`}:</p>
              <${Connect} key=${made?.id} only="curl" group=${made?.group || keys.data.keys[0].group}
                models=${made ? made.models : keys.data.keys[0].models} secret=${made?.key} />`
          : html`<p class="hint">What to paste is shown when there is a key.</p>`)}
        ${step(3, "The call in the ledger", call, html`<div role="status">${call
          ? html`<p><strong>The call is here.</strong> Everything works.</p>
              <${Facts} items=${[["Model", call.model], ["Status", call.status || "none"], ["Tokens", `${count(tokens(call))} in, ${count(call.output_tokens)} out`],
                ["Cost", `€\u00a0${call.cost}`]]} />
              <p><a href=${href(["calls", call.id])}>How it was charged</a> · <a href="#/connect">Connect other clients</a> · <a href="#/accounts">Accounts and credit</a></p>`
          : waiting ? html`<p class="loading">Waiting for the call. One that the gateway refuses is not in the ledger: curl shows why.</p>`
          : html`<p class="hint">It is shown here as soon as it was made.</p>`}</div>`)}
      </ol>
    <//>`;
}
