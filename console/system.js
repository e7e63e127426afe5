// Refusals, status, the nodes of a cluster, the audit log, operators.

import { html, useGet, count, size, notify, Time, Money, Badge, Link, KeyLink, Loaded, Page, Section, Facts, Tiles, Table, Pager, Field, Filter,
  Form, Opener } from "./ui.js";
import { path, patch, post, who } from "./api.js";


export function Refusals() {
  const from = useGet("/refusals");
  return html`
    <${Page} title="Refusals" actions=${html`<button type="button" class="quiet" onClick=${from.reload}>Refresh</button>`}>
      ${from.error?.status === 404 ? html`<div class="problem" role="alert">
          <p><strong>Refusals are not counted</strong></p>
          <p>Add a location with <code>modelgw_metrics;</code> to nginx.conf and reload nginx: refusals have the counters of the metrics.</p></div>`
        : html`<${Loaded} from=${from}>${data => html`
          <p class="hint">Requests that were refused since nginx was started, <${Time} at=${data.since} /> UTC. When and why: in the access log.</p>
          <${Section} title="By key">
            <${Table} name="Refusals by key" rows=${data.keys} columns=${[
              ["Key", k => html`<${KeyLink} id=${k.id} />`],
              ["Rate limited (429)", k => count(k.rate_limited), "num"],
              ["No credit (402)", k => count(k.insufficient_credit), "num"],
              ["Over budget (402)", k => count(k.budget_exceeded), "num"],
              ["Other refusals (4xx)", k => count(k.refused), "num"],
              ["Failed (5xx)", k => count(k.failed), "num"],
            ]} empty="No key was refused since the start." />
          <//>
          <${Section} title="By code">
            <${Table} name="Refusals by code" rows=${data.codes} columns=${[
              ["Code", c => html`<code>${c.code}</code>`],
              ["Group", c => c.group || "no valid key"],
              ["Endpoint", c => c.endpoint],
              ["Requests", c => count(c.requests), "num"],
            ]} empty="Nothing was refused since the start." />
          <//>
          <p><a href="#/keys">How the limits of keys stand now</a></p>`}<//>`}
    <//>`;
}


const Part = ({ n, max }) => max ? html`
  <span class="part"><meter min="0" max=${max} high=${max * 0.8} value=${n} aria-label="part in use">${n}</meter> <span>${count(n)} of ${count(max)}</span></span>` : count(n);

export function Status() {
  const from = useGet("/status", null, { every: 5000 });
  return html`
    <${Page} title="Status">
      <${Loaded} from=${from}>${s => html`
        <${Tiles} items=${[
          ["Gateway", html`<${Badge} text=${s.ok ? "admits calls" : "admits no calls"} kind=${s.ok ? "good" : "bad"} />`],
          ["Calls in flight", count(s.in_flight)],
          s.workers && ["Workers", count(s.workers.running), s.workers.leaving ? `${s.workers.leaving} leaving` : "none leaving"],
          ["Ledger", s.ledger ? html`<${Badge} text=${s.ledger.writable ? "writable" : "not writable"} kind=${s.ledger.writable ? "good" : "bad"} />` : "none"],
        ]} />
        ${s.cluster?.reason ? html`<div class="problem" role="alert"><p><strong>${s.ok ? "The cluster cannot be reached." : "No call is admitted."}</strong></p>
            <p>This node of the cluster is ${s.cluster.state}: ${s.cluster.reason}</p></div>`
          : !s.ok && html`<div class="problem" role="alert"><p><strong>No call is admitted.</strong></p>
          <p>Look at the disk of the ledger and at nginx's error log: it says why at the level alert.</p></div>`}
        <${Section} title="Upstreams">
          <${Table} name="Upstreams" rows=${s.groups} columns=${[
            ["Group", g => g.name],
            ["Errors in 5 minutes", g => g.error_ratio_5m === null ? "–"
              : html`<${Badge} text=${(g.error_ratio_5m * 100).toFixed(1) + " %"} kind=${g.error_ratio_5m > 0.2 ? "bad" : g.error_ratio_5m > 0.02 ? "warn" : "good"} />`],
            ["Last answer (UTC)", g => html`<${Time} at=${g.last_ok} none="none yet" />`],
            ["Last failure (UTC)", g => html`<${Time} at=${g.last_error} none="none" />`],
          ]} empty="No group is configured." />
        <//>
        ${s.ledger && html`<${Section} title="Ledger"><${Facts} items=${[
          ["File", html`<code>${s.ledger.path}</code>`],
          ["Size", size(s.ledger.size)],
          ["Ended calls not written yet", count(s.ledger.queue)],
          ["Oldest call in flight (UTC)", html`<${Time} at=${s.ledger.oldest_open} none="none" />`],
          ["Last flush took", `${s.ledger.last_flush_ms} ms`],
        ]} /><//>`}
        ${s.zone && html`<${Section} title="Shared memory"><${Facts} items=${[
          ["Accounts", html`<${Part} n=${s.zone.accounts} max=${s.zone.accounts_max} />`],
          ["Keys with limits", html`<${Part} n=${s.zone.keys} max=${s.zone.keys_max} />`],
          ["Calls", html`<${Part} n=${s.zone.calls} max=${s.zone.calls_max} />`],
        ]} /><//>`}
        <${Section} title="Versions"><${Facts} items=${[
          ["modelgw", s.version], ["nginx", s.nginx],
          ["Started (UTC)", html`<${Time} at=${s.started} />`],
          ["Configuration loaded (UTC)", html`<${Time} at=${s.config_time} />`],
        ]} /><//>
        <p class="hint">Asked again every 5 seconds.</p>`}<//>
    <//>`;
}


// The nodes of a cluster: any of them answers for all.

const NODE = { member: "good", draining: "warn", away: "bad", left: "off", "written off": "off" };

function Drain({ node, done }) {
  const back = node.state === "draining" || node.state === "left";
  const title = back ? "Rejoin" : "Drain";
  return html`
    <${Opener} text=${title} title=${`${title} ${node.name}?`}>${close => html`
      <${Form} name=${title} submit=${title} cancel=${close} send=${async () => {
        await patch(path`/nodes/${node.num}`, { drain: !back });
        notify(back ? `${node.name} is to join again` : `${node.name} is to leave`);
        close();
        done();
      }}>
        <p>${back ? "The node admits calls again." : "The node refuses new calls with 503, ships what it has, gives back what it has borrowed, and leaves. Take it out of the balancer first."}</p>
      <//>`}<//>`;
}

const WriteOff = ({ node, done }) => html`
  <${Opener} text="Write off" title=${`Write off ${node.name}?`} danger>${close => html`
    <${Form} name="Write off" submit="Write off" danger cancel=${close} send=${async v => {
      const { amount } = await post(path`/nodes/${node.num}/write-off`, { charge: Boolean(v.charge) });
      notify(`€ ${amount} of ${node.name} are taken back`);
      close();
      done();
    }}>
      <p>For a node that does not come back: what it has borrowed, € ${node.lent}, is free again. If it still runs, as much may be
        spent twice. Calls that it has not shipped are charged if it comes back.</p>
      <${Field} label="Charge the accounts for it" kind="checkbox" name="charge" hint="books the amount as calls that were lost" />
    <//>`}<//>`;

export function Nodes() {
  const from = useGet("/nodes", null, { every: 5000 });
  const admin = who().role === "admin";
  return html`
    <${Page} title="Nodes">
      ${from.error?.status === 404 ? html`<div class="problem" role="alert"><p><strong>This is one machine</strong></p>
          <p>With <code>modelgw_cluster</code> in nginx.conf several share accounts, keys and limits.</p></div>`
        : html`<${Loaded} from=${from}>${({ cluster, nodes }) => html`
        <${Table} name="Nodes" rows=${nodes} columns=${[
          ["Node", n => n.num === cluster.self ? html`<strong>${n.name}</strong> (this one)` : n.name],
          ["State", n => html`<${Badge} text=${n.state} kind=${NODE[n.state]} />`],
          ["Seen (UTC)", n => html`<${Time} at=${n.seen} />`],
          ["Borrowed €", n => html`<${Money} of=${n.lent} />`, "num"],
          ["Held €", n => html`<${Money} of=${n.held} />`, "num"],
          ["Calls not shipped", n => count(n.behind), "num"],
          ["Version", n => n.version, "num"],
          ...(admin ? [["", n => html`${n.state !== "written off" && n.state !== "away" && html`<${Drain} node=${n} done=${from.reload} />`}
            ${n.state === "away" && html`<${WriteOff} node=${n} done=${from.reload} />`}`]] : []),
        ]} empty="No node has joined yet: nginx's error log says why." />
        <${Facts} items=${[["Cluster", html`<code>${cluster.id}</code>`], ["Version of its tables", cluster.version], ["Oldest nodes", cluster.oldest]]} />
        <p class="hint">Asked again every 5 seconds. What a node has borrowed is a part of the balances of accounts.</p>`}<//>`}
    <//>`;
}


const said = value => value === null || value === "" ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);

function Changes({ of: { before, after } }) {
  const names = [...new Set([...Object.keys(before || {}), ...Object.keys(after || {})])]
    .filter(n => n !== "version" && said(before?.[n] ?? null) !== said(after?.[n] ?? null));
  if (!names.length) return "–";
  return html`<ul class="changes">${names.map(n => html`<li>${n}: ${before && n in before && html`<del>${said(before[n])}</del> → `}${
    after && n in after ? html`<ins>${said(after[n])}</ins>` : "gone"}</li>`)}</ul>`;
}

const target = a => a.action.startsWith("key.") ? html`<${KeyLink} id=${a.target} />`
  : /^(account|topup|correction)/.test(a.action) ? html`<${Link} to=${["accounts", a.target]}>${a.target}<//>` : a.target;

export function Actions({ params }) {
  const from = useGet("/actions", { limit: 50, ...params });
  return html`
    <${Page} title="Audit log">
      <${Filter} at="actions" params=${params}>
        <${Field} label="Actor" name="actor" value=${params.actor} placeholder="alice, uid:0, configuration" />
        <${Field} label="Target" name="target" value=${params.target} placeholder="account, key, or group/model" />
      <//>
      <${Loaded} from=${from}>${data => html`
        <${Table} name="Audit log" rows=${data.actions} columns=${[
          ["Time (UTC)", a => html`<${Time} at=${a.time} />`],
          ["Actor", a => a.actor],
          ["Address", a => a.address || "–"],
          ["Action", a => html`<code>${a.action}</code>`],
          ["Target", target],
          ["Changes", a => html`<${Changes} of=${a} />`],
        ]} empty=${Object.values(params).some(v => v) ? html`<p>Nothing matches. <a href="#/actions">Show all</a>.</p>`
          : "Nothing was changed yet: every change by an operator, and what a reload changes in prices, is listed here."} />
        <${Pager} at="actions" params=${params} data=${data} />`}<//>
    <//>`;
}


export function Operators() {
  const from = useGet("/operators");
  return html`
    <${Page} title="Operators">
      <p class="hint">Operators are lines of the file that <code>modelgw_operators</code> includes: a change works after a reload of nginx, and a line
        that is taken out ends its sessions.</p>
      <${Loaded} from=${from}>${data => html`
        <${Table} name="Operators" rows=${data.operators} columns=${[
          ["Name", o => html`<${Link} to="actions" params=${{ actor: o.name }}>${o.name}<//>`],
          ["Role", o => html`<${Badge} text=${o.role} kind="off" />`],
          ["Expires (UTC)", o => html`<${Time} at=${o.expires} none="never" />`],
        ]} empty=${html`<p>No operators are declared. Make a token with <code>modelgwctl operator new NAME --role admin</code>.</p>`} />`}<//>
      <dl class="explain">
        <div><dt>viewer</dt><dd>sees everything but this page</dd></div>
        <div><dt>billing</dt><dd>also tops up and corrects</dd></div>
        <div><dt>admin</dt><dd>also keys, accounts, and this page</dd></div>
      </dl>
    <//>`;
}
