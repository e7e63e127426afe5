// Accounts and their credit; a key holder's billing.

import { html, useState, useEffect, useRef, useGet, href, go, count, span, Time, Money, Euro, Badge, AccountLink, notify,
         Problem, Loaded, Page, Section, Facts, Tiles, Table, Pager, Field, Form, Filter, Opener }
  from "./ui.js";
import { who, mayKeys, mayMoney, path, post, patch, sum, nano, random } from "./api.js";
import { keyColumns, Limits, Revoke, Spend } from "./keys.js";
import { callColumns } from "./calls.js";


export function Accounts({ params }) {
  const from = useGet("/accounts", { limit: 50, ...params });
  return html`
    <${Page} title="Accounts" actions=${mayKeys() && html`<${OpenAccount} />`}>
      <${Filter} at="accounts" params=${params}>
        <${Field} label="Search" kind="search" name="q" value=${params.q} placeholder="part of the id or the note" />
        <${Field} label="Sort by" kind="select" name="sort" value=${params.sort || ""} options=${[
          ["", "Opened"], ["name", "Name"], ["balance", "Balance, lowest first"], ["spent", "Spent in 30 days, most first"]]} />
      <//>
      <${Loaded} from=${from}>${data => html`
        <${Table} name="Accounts" rows=${data.accounts} columns=${[
          ["Account", a => html`<${AccountLink} id=${a.id} />`],
          ["State", a => html`<${Badge} text=${a.state} />`],
          ["Balance (€)", a => html`<${Money} of=${a.balance} />`, "num"],
          ["Held (€)", a => html`<${Money} of=${a.held} />`, "num"],
          ["Spent 24 h (€)", a => html`<${Money} of=${a.spent_24h} />`, "num"],
          ["Spent 30 d (€)", a => html`<${Money} of=${a.spent_30d} />`, "num"],
          ["Keys", a => count(a.keys), "num"],
        ]} empty=${params.q ? html`<p>No account matches. <a href="#/accounts">Show all</a>.</p>`
          : html`<p>There are no accounts yet. An account holds the credit that its keys draw on; it is opened here, or by its first key.</p>`} />
        <${Pager} at="accounts" params=${params} data=${data} />`}<//>
    <//>`;
}

function OpenAccount() {
  return html`
    <${Opener} text="Open account" primary>${close => html`
      <${Form} name="Open account" submit="Open account" cancel=${close} send=${async v => {
        await post("/accounts", { id: v.id, founding: !!v.founding, ...(v.note && { note: v.note }) });
        notify(`Account ${v.id} is open`);
        close();
        go(["accounts", v.id]);
      }}>
        <${Field} label="Account id" name="id" required autofocus />
        <${Field} label="Note" name="note" hint="for operators only, at most 256 bytes" />
        <${Field} label="Give founding credit" kind="checkbox" name="founding" defaultChecked />
      <//>`}
    <//>`;
}


export function Account({ id }) {
  const from = useGet(path`/accounts/${id}`);
  const reload = from.reload;
  const actions = a => html`
    ${mayMoney() && html`<${TopUp} account=${a} done=${reload} /><${Correct} account=${a} done=${reload} />`}
    ${mayKeys() && html`<${Note} account=${a} done=${reload} /><${State} account=${a} done=${reload} />`}`;
  return html`
    <${Page} title=${id} kicker=${html`<a href="#/accounts">Accounts</a>`} actions=${from.data && actions(from.data)}>
      <${Loaded} from=${from}>${a => html`
        ${a.state === "closed" && html`<p class="hint">This account is closed: its keys get 401. The balance stays.</p>`}
        <${Balance} account=${a} />
        ${a.note && html`<${Facts} items=${[["Note", a.note]]} />`}
        <${Spend} of=${{ account: id }} />
        <${Keys} account=${id} />
        <${Calls} account=${id} />
        <${TopUps} list=${a.topups} />`}<//>
    <//>`;
}

const Balance = ({ account: a, more }) => html`
  <${Tiles} items=${[
    ["Balance", html`<${Euro} of=${a.balance} />`],
    ["Held for calls in flight", html`<${Euro} of=${a.held} />`],
    ["Available", html`<${Euro} of=${a.available} />`],
    ["Spent in 24 hours", html`<${Euro} of=${a.spent_24h} />`],
    ["Spent in 30 days", html`<${Euro} of=${a.spent_30d} />`],
    more,
  ]} />`;

const TopUps = ({ list }) => html`
  <${Section} title="Top-ups and corrections">
    <${Table} name="Top-ups and corrections" rows=${list} columns=${[
      ["Reference", t => t.id],
      ["Time (UTC)", t => html`<${Time} at=${t.time} short />`],
      ["Amount (€)", t => html`<${Money} of=${t.amount} />`, "num"],
    ]} empty="Nothing was paid in yet." />
    ${list.length >= 100 && html`<p class="hint">The newest 100.</p>`}
  <//>`;

function Keys({ account }) {
  const from = useGet("/keys", { account, limit: 20 });
  return html`
    <${Section} title="Keys" actions=${mayKeys() && html`<a href=${href("keys", { new: account })}>New key</a>`}>
      <${Loaded} from=${from}>${data => html`
        <${Table} name="Keys" rows=${data.keys} columns=${keyColumns({ account: false })} empty="This account has no keys." />
        ${data.next && html`<p><a href=${href("keys", { account })}>All keys of this account</a></p>`}`}<//>
    <//>`;
}

function Calls({ account }) {
  const from = useGet("/calls", { account, limit: 10 });
  return html`
    <${Section} title="Latest calls">
      <${Loaded} from=${from}>${data => html`
        <${Table} name="Latest calls" rows=${data.calls} columns=${callColumns({ account: false })}
          empty=${html`No calls yet. <a href="#/connect">Connect a client</a>.`} />
        ${data.next && html`<p><a href=${href("calls", who().role === "holder" ? {} : { account })}>All calls</a></p>`}`}<//>
    <//>`;
}


// The reference is made when the dialog opens: however often it is sent, it
// counts once.

function Booking({ account, close, correction }) {
  const [reference] = useState(() => (correction ? "fix-" : "topup-") + random());
  const [result, setResult] = useState(null);
  const done = useRef();
  useEffect(() => done.current?.focus(), [result]);
  if (result) {
    return html`
      <div role="status" class="result">
        <p><strong>${result.new ? (correction ? "Corrected" : "Topped up") : "This reference is booked already: it counts once"}</strong></p>
        <${Facts} items=${[["Amount", `€\u00a0${result.amount}`], ["Balance now", `€\u00a0${result.balance}`], ["Reference", result.id]]} />
      </div>
      <div class="actions"><button type="button" ref=${done} onClick=${close}>Done</button></div>`;
  }
  const send = async v => {
    setResult(await post(path`/accounts/${account.id}/topups`, {
      id: v.id, amount: v.amount, ...(v.reason && { reason: v.reason }), ...(correction && { correction: true }),
    }));
  };
  return html`
    <${Form} name=${correction ? "Correction" : "Top up"} submit=${correction ? "Correct" : "Top up"} cancel=${close} send=${send}>
      <${Field} label="Amount in €" name="amount" inputmode="decimal" required autofocus
        placeholder=${correction ? "-9.00" : "10.00"} hint=${`Balance now: €\u00a0${account.balance}.${
          correction ? " A negative amount takes credit away, even below zero." : ""}`} />
      <${Field} label="Reason" name="reason" required=${correction} hint="at most 256 bytes" />
      <${Field} label="Reference" name="id" value=${reference} required
        hint="A payment or invoice number. The same reference is booked once, however often it is sent." />
    <//>`;
}

export const TopUp = ({ account, done }) => html`
  <${Opener} text="Top up" title=${`Top up ${account.id}`} primary closed=${done}>${close =>
    html`<${Booking} account=${account} close=${close} />`}<//>`;

const Correct = ({ account, done }) => html`
  <${Opener} text="Correct" title=${`Correct the balance of ${account.id}`} closed=${done}>${close =>
    html`<${Booking} account=${account} close=${close} correction />`}<//>`;

const Note = ({ account, done }) => html`
  <${Opener} text="Edit note" title=${`Note of ${account.id}`}>${close => html`
    <${Form} name="Note" submit="Save" cancel=${close} send=${async v => {
      await patch(path`/accounts/${account.id}`, { note: v.note });
      notify("The note is saved");
      close();
      done();
    }}>
      <${Field} label="Note" kind="textarea" name="note" value=${account.note} hint="for operators only, at most 256 bytes" autofocus />
    <//>`}<//>`;

function State({ account, done }) {
  const closing = account.state === "open";
  return html`
    <${Opener} text=${closing ? "Close account" : "Reopen account"} title=${`${closing ? "Close" : "Reopen"} ${account.id}?`} danger=${closing}>${close => html`
      <${Form} name=${closing ? "Close account" : "Reopen account"} submit=${closing ? "Close account" : "Reopen account"}
        danger=${closing} cancel=${close} send=${async () => {
          await patch(path`/accounts/${account.id}`, { state: closing ? "closed" : "open" });
          notify(`Account ${account.id} is ${closing ? "closed" : "open"}`);
          close();
          done();
        }}>
        <p>${closing ? "All its keys get 401 from now on. Calls in flight go on, and the balance stays. It can be reopened."
          : "Its keys are admitted again."}</p>
      <//>`}<//>`;
}


// A key holder: its own account, read-only

export function Billing() {
  const { account, key, topup_url: url } = who();
  const from = useGet(path`/accounts/${account}`);
  const mine = useGet(path`/keys/${key}`);
  const week = useGet("/usage", { by: "day", from: "-7d" });

  // days before the first one with a cost do not count: the account may be new
  const lasts = a => {
    const rows = week.data?.usage || [];
    const old = rows.findLastIndex(r => nano(r.cost) > 0n);
    if (nano(a.available) <= 0n) return ["Lasts", "used up", "calls are refused until it is topped up"];
    if (old < 0) return ["Lasts", "–", week.data ? "nothing was spent in 7 days" : ""];
    const n = Math.min(old + 1, 7);
    const days = Number(a.available) / (Number(sum(rows.map(r => r.cost))) / n);
    return ["Lasts", days > 3650 ? "over 10 years" : days > 730 ? `about ${Math.round(days / 365)} years` : days < 2 ? `about ${span(Math.round(days * 86400))}` : `about ${count(Math.round(days))} days`,
            n > 1 ? `at the rate of the last ${n} days` : "at the rate of today"];
  };

  return html`
    <${Page} title="Billing" kicker=${`Account ${account}`} actions=${/^https?:/.test(url || "") && html`
      <a class="button" href=${url.replace("%s", encodeURIComponent(account))} rel="noreferrer">Top up</a>`}>
      <${Loaded} from=${from}>${a => html`
        ${a.state === "closed" && html`<p class="hint">This account is closed: calls are refused. Ask the operator.</p>`}
        <${Balance} account=${a} more=${lasts(a)} />
        <${Spend} of=${{ account }} />
        <${Section} title=${`This key: ${key}`} actions=${mine.data && mine.data.source === "ledger" && mine.data.state === "active"
            && html`<${Revoke} id=${key} self />`}>
          <${Problem} error=${mine.error} retry=${mine.reload} />
          ${mine.data && html`<${Limits} of=${mine.data} />`}
          ${mine.data?.source === "config" && html`<p class="hint">This key is kept in the gateway's configuration: only its operator can end it.</p>`}
        <//>
        <${Keys} account=${account} />
        <${Calls} account=${account} />
        <${TopUps} list=${a.topups} />`}<//>
    <//>`;
}
