// Calls: search, one call with its cost worked out, CSV.

import { html, useState, useGet, count, ms, Time, Money, Badge, Link, AccountLink, KeyLink, notify,
         Problem, Loaded, Page, Section, Facts, Table, Pager, Field, Filter, Copy }
  from "./ui.js";
import { path, download, euro, nano, isHolder } from "./api.js";

const OUTCOMES = ["reported", "estimated", "unanswered", "refused", "unsent"];
const ENDS = ["complete", "client", "upstream", "timeout", "killed", "stopped", "lost"];

// status, and what is unusual
const Result = ({ of: c }) => html`<span class="badges">
  <${Badge} text=${c.status || "none"} kind=${c.status === 200 ? "good" : "bad"} />
  ${c.outcome !== "reported" && html` <${Badge} text=${c.outcome} />`}
  ${c.end !== "complete" && html` <${Badge} text=${c.end === "client" ? "client left" : c.end} />`}</span>`;

export const callColumns = ({ account = true, key = true } = {}) => [
  ["Time (UTC)", c => html`<${Link} to=${["calls", c.id]}><${Time} at=${c.time} short /><//>`],
  key && ["Key", c => html`<${KeyLink} id=${c.key} />`],
  account && ["Account", c => html`<${AccountLink} id=${c.account} />`],
  ["Model", c => c.model],
  ["Result", c => html`<${Result} of=${c} />`],
  ["Input", c => count(c.input_tokens + c.cache_read_tokens + c.cache_write_tokens + c.cache_write_1h_tokens), "num"],
  ["Output", c => count(c.output_tokens), "num"],
  ["Cost (€)", c => html`<${Money} of=${c.cost} />`, "num"],
  ["First byte", c => ms(c.first_byte_ms), "num"],
  ["Duration", c => ms(c.duration_ms), "num"],
];

export function Calls({ params }) {
  const from = useGet("/calls", { limit: 50, ...params });
  const holder = isHolder();
  return html`
    <${Page} title="Calls" actions=${html`<${Csv} params=${params} />`}>
      <${Filter} at="calls" params=${params}>
        <${Field} label="Request id" kind="search" name="request_id" value=${params.request_id} class="long"
          hint="what the client was told in the header request-id; the last 24 hours, unless From says more" />
        ${!holder && html`<${Field} label="Account" name="account" value=${params.account} />`}
        <${Field} label="Key" name="key" value=${params.key} />
        <${Field} label="Model" name="model" value=${params.model} />
        <${Field} label="Outcome" kind="select" name="outcome" value=${params.outcome || ""} options=${[["", "All"], ...OUTCOMES]} />
        <${Field} label="End" kind="select" name="end" value=${params.end || ""} options=${[["", "All"], ...ENDS]} />
        <${Field} label="Status" name="status" inputmode="numeric" value=${params.status} placeholder="200, 529, 0: none" />
        <${Field} label="From (UTC)" name="from" list="times" value=${params.from} placeholder="-24h or 2027-01-01" />
        <${Field} label="To (UTC)" name="to" list="times" value=${params.to} placeholder="now" />
        <${Field} label="Cost at least (€)" name="min_cost" inputmode="decimal" value=${params.min_cost} />
        <datalist id="times">${["-1h", "-24h", "-7d", "-30d", "today", "yesterday"].map(t => html`<option value=${t} />`)}</datalist>
      <//>
      <${Loaded} from=${from}>${data => html`
        <${Table} name="Calls" rows=${data.calls} columns=${callColumns({ account: !holder })}
          empty=${Object.values(params).some(v => v) ? html`<p>No call matches. What the gateway refused itself was not sent, and is in
            ${holder ? " its operator's" : " the"} access log only${params.request_id && !params.from
              ? ". A request id is looked for in the last 24 hours: say an earlier From" : ""}. <a href="#/calls">Show all calls</a>.</p>`
            : html`<p>No calls yet. <a href=${holder ? "#/connect" : "#/start"}>Make the first one</a>, and it is listed here.</p>`} />
        <${Pager} at="calls" params=${params} data=${data} />`}<//>
    <//>`;
}

function Csv({ params }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const save = async () => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await download("/calls", { ...params, after: "" }, "calls.csv");
      notify("calls.csv is downloaded");
    } catch (e) {
      setError(e);
    }
    setBusy(false);
  };
  return html`
    <button type="button" class="quiet" aria-disabled=${busy} onClick=${save}>${busy ? "Downloading…" : "Download CSV"}</button>
    <${Problem} error=${error} />`;
}


// tokens × price; prices are euro for a million tokens: nano-euro times 10^6

const CLASSES = [
  ["Input", "input_tokens", "input"],
  ["Cache read", "cache_read_tokens", "cache_read"],
  ["Cache write", "cache_write_tokens", "cache_write"],
  ["Cache write, 1 hour", "cache_write_1h_tokens", "cache_write_1h"],
  ["Output", "output_tokens", "output"],
];

function Cost({ call, price }) {
  if (!price) return html`<p>Its prices are not on record.</p><${Facts} items=${[["Charged", `€\u00a0${call.cost}`]]} />`;
  const lines = CLASSES.map(([name, tokens, rate]) =>
    ({ name, tokens: call[tokens], rate: price[rate], cost: BigInt(call[tokens]) * nano(price[rate]) }));
  const total = lines.reduce((all, line) => all + line.cost, 0n);
  const up = (total + 999999n) / 1000000n;
  const same = up === nano(call.cost);
  return html`
    <${Table} name="How the cost is made up" rows=${lines} columns=${[
      ["Tokens", l => l.name],
      ["Number", l => count(l.tokens), "num"],
      ["€ per million", l => html`<${Money} of=${l.rate} />`, "num price"],
      ["Cost (€)", l => html`<${Money} of=${euro(l.cost, 15)} />`, "num"],
    ]} />
    <${Facts} items=${[
      ["Sum", `€\u00a0${euro(total, 15)}`],
      ["Rounded up to the nano-euro", `€\u00a0${euro(up)}`],
      ["Charged", html`<strong>€\u00a0${call.cost}</strong>`],
      call.reasoning_tokens > 0 && ["Reasoning", `${count(call.reasoning_tokens)} tokens, part of the output`],
      ["Prices of", html`${price.group}/${price.model}, in force from <${Time} at=${price.from} />`],
    ]} />
    ${!same && html`<p class="hint">What is charged differs from the sum: ${call.outcome === "refused" || call.outcome === "unsent"
      ? "a call that was refused or not sent costs nothing." : "the cost of a call whose usage was not reported is at most what was held for it."}</p>`}`;
}

export function Call({ id }) {
  const from = useGet(path`/calls/${id}`);
  return html`
    <${Page} title=${`Call ${id}`} kicker=${html`<a href="#/calls">Calls</a>`}>
      <${Loaded} from=${from}>${({ call: c, price }) => html`
        <${Facts} items=${[
          ["Status", html`<${Badge} text=${c.status || "none"} kind=${c.status === 200 ? "good" : "bad"} />`],
          ["Outcome", html`<${Badge} text=${c.outcome} />`],
          ["End", html`<${Badge} text=${c.end} />`],
          ["Key", html`<${KeyLink} id=${c.key} />`],
          ["Account", html`<${AccountLink} id=${c.account} />`],
          ["Model", c.model],
          ["Began (UTC)", html`<${Time} at=${c.time} />`],
          ["Ended (UTC)", html`<${Time} at=${c.ended} />`],
          ["Duration", ms(c.duration_ms)],
          ["First byte after", ms(c.first_byte_ms)],
          ["Kind", [c.stream ? "stream" : "one answer", c.translated && "translated"].filter(t => t).join(", ")],
          ["Request id", c.request_id ? html`<code>${c.request_id}</code> <${Copy} text=${c.request_id} label="Copy the request id" />` : "–"],
        ]} />
        <${Section} title="Cost"><${Cost} call=${c} price=${price} /><//>`}<//>
    <//>`;
}
