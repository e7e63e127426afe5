// What all screens are made of.  Texts of the interface are only ever children
// or attributes of html``, which makes text nodes of them.

import { h, useState, useEffect, useLayoutEffect, useRef, useMemo, useErrorBoundary }
  from "./vendor/standalone.module.js";
import htm from "./vendor/htm.module.js";
import { get, query, isHolder } from "./api.js";

export { useState, useEffect, useLayoutEffect, useRef, useMemo, useErrorBoundary };

// Not the html`` that comes with Preact: that keeps elements without values for
// ever, and with them what was around them, a secret too.  3: keep none.

export const html = htm.bind(function (...args) {
  this[0] = 3;
  return h(...args);
});


// Routes: #/calls/17?key=demo is { parts: ["calls", "17"], params: { key: "demo" } }

export function route() {
  const [way, search] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = way.split("/").filter(p => p).map(p => {
    try { return decodeURIComponent(p); } catch { return p; }
  });
  return { parts, params: Object.fromEntries(new URLSearchParams(search)) };
}

// an address may have any name, "constructor" too
export const own = (object, name) => Object.hasOwn(object, name) ? object[name] : undefined;

export const href = (parts, params) =>
  "#/" + [].concat(parts).map(encodeURIComponent).join("/") + query(params);

export const go = (parts, params) => { location.hash = href(parts, params); };

// the same, but "back" skips the page that was left
export const leaveFor = (parts, params) => location.replace(href(parts, params));


// Data: { data, error, reload } of a GET.  With every: again after so many ms,
// while the page is seen.

export function useGet(where, params, { every, skip } = {}) {
  const [state, set] = useState({});
  const [turn, again] = useState(0);
  const key = skip ? "" : where + query(params);

  useEffect(() => {
    if (!key) return undefined;
    const abort = new AbortController();
    let timer;
    const load = () => get(key, null, abort.signal).then(
      data => abort.signal.aborted || set({ data, key }),
      error => abort.signal.aborted || set(old => ({ ...(old.key === key && old), error, key })),
    ).finally(() => { if (every && !abort.signal.aborted) timer = setTimeout(next, every); });
    const next = () => {
      if (!document.hidden) load();
      else timer = setTimeout(next, every);
    };
    load();
    return () => { abort.abort(); clearTimeout(timer); };
  }, [key, turn]);

  const current = state.key === key ? state : {};
  return { ...current, loading: !current.data && !current.error, reload: () => again(turn + 1) };
}


// Texts

export const count = n => n === null || n === undefined ? "–" : n.toLocaleString("en");

export const ms = n => n === null || n === undefined ? "–"
  : n < 1000 ? `${n} ms` : `${(n / 1000).toFixed(n < 10000 ? 2 : 1)} s`;

export const size = n => n < 1e6 ? `${Math.ceil(n / 1e3)} KB` : `${(n / 1e6).toFixed(1)} MB`;

export const span = s => s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min`
  : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;

export const Time = ({ at, none = "–", short }) => at
  ? html`<time datetime=${at} title=${"Local time: " + new Date(at).toLocaleString()}>${
      at.replace("T", " ").replace(short ? /\.\d+Z$/ : /(\.000)?Z$/, "")}</time>`
  : none;

// the amount as it is, its decimal points one below the other
export const Money = ({ of }) => {
  if (of === null || of === undefined) return "–";
  const [euro, rest] = of.split(".");
  return html`<span class=${of[0] === "-" ? "money negative" : "money"}>${euro}<span>.${rest}</span></span>`;
};

export const Euro = ({ of }) => html`€\u00a0<${Money} of=${of} />`;

const KINDS = {
  active: "good", open: "good", complete: "good", reported: "good", ok: "good",
  closed: "off", revoked: "off", expired: "off", config: "off", ledger: "off",
  refused: "bad", failed: "bad", upstream: "bad", timeout: "bad", killed: "bad", lost: "bad",
};

export const Badge = ({ text, kind }) =>
  html`<span class=${"badge " + (kind || KINDS[text] || "warn")}>${text}</span>`;

export const Link = ({ to, params, children }) => html`<a href=${href(to, params)}>${children}</a>`;

// a key holder has no pages of these
export const AccountLink = ({ id }) => isHolder() ? id : html`<${Link} to=${["accounts", id]}>${id}<//>`;
export const KeyLink = ({ id }) => isHolder() ? id : html`<${Link} to=${["keys", id]}>${id}<//>`;


// Notices are read out by screen readers: the shell has the live region.

export const notify = text => dispatchEvent(new CustomEvent("notice", { detail: text }));

export const Problem = ({ error, retry }) => error && html`
  <div class="problem" role="alert">
    <p><strong>${error.message}</strong>${error.status > 0 && error.code && html` <code>${error.code}</code>`}</p>
    ${error.help && html`<p>${error.help}</p>`}
    ${retry && html`<button type="button" class="quiet" onClick=${retry}>Try again</button>`}
  </div>`;

// children(data) once it is there; the former data stays beside a later error
export const Loaded = ({ from, children }) => html`
  <${Problem} error=${from.error} retry=${from.reload} />
  ${from.data ? children(from.data) : from.loading && html`<p class="loading">Loading…</p>`}`;

export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

export function Page({ title, kicker, actions, children }) {
  useEffect(() => { document.title = `${title} · modelgw`; }, [title]);
  return html`
    <div class="head">
      <div>${kicker && html`<p class="kicker">${kicker}</p>`}<h1 tabindex="-1">${title}</h1></div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </div>
    ${children}`;
}

export const Section = ({ title, actions, children }) => html`
  <section aria-label=${title}>
    <div class="head"><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</div>
    ${children}
  </section>`;

// items: [name, value]...
export const Facts = ({ items }) => html`
  <dl class="facts">${items.filter(i => i).map(([name, value]) =>
    html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

export const Tiles = ({ items }) => html`
  <dl class="tiles">${items.filter(i => i).map(([name, value, more]) =>
    html`<div><dt>${name}</dt><dd>${value}${more && html`<small>${more}</small>`}</dd></div>`)}</dl>`;


// columns: [header, row => content, "num"?]; the first cell names the row

export function Table({ name, columns, rows, empty }) {
  columns = columns.filter(c => c);
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  return html`
    <div class="scroll" role="group" aria-label=${name} tabindex="0">
      <table aria-label=${name}>
        <thead><tr>${columns.map(([head, , kind]) =>
          html`<th scope="col" class=${kind}>${head}</th>`)}</tr></thead>
        <tbody>${rows.map(row => html`<tr>${columns.map(([, cell, kind], i) => i
          ? html`<td class=${kind}>${cell(row)}</td>`
          : html`<th scope="row" class=${kind}>${cell(row)}</th>`)}</tr>`)}</tbody>
      </table>
    </div>`;
}

// keyset paging: there is a next page, the first one, and the browser's "back"
export const Pager = ({ at, data, params }) => (data.next || params.after) && html`
  <nav class="pager" aria-label="Pages">
    ${params.after && html`<${Link} to=${at} params=${{ ...params, after: "" }}>First page<//>`}
    ${data.next && html`<${Link} to=${at} params=${{ ...params, after: data.next }}>Next page<//>`}
  </nav>`;


// Forms

let ids = 0;
const useId = () => useMemo(() => `f${++ids}`, []);

// kinds: those of <input>, and select (options), textarea, checkbox
export function Field({ label, hint, kind = "text", options, value, class: cls, ...rest }) {
  const id = useId();
  const ref = useRef();
  // autofocus counts for what is there when a dialog is opened, this also for
  // what is loaded afterwards
  useEffect(() => { if (rest.autofocus) ref.current.focus(); }, []);
  const more = { id, ref, "aria-describedby": hint ? id + "h" : undefined, ...rest };
  // as defaultValue, else what was typed is lost when the page is drawn again
  if (kind === "checkbox") more.value = value;
  else if (kind !== "select") more.defaultValue = value;
  const input = kind === "select"
    ? html`<select ...${more}>${options.map(o => {
        const [code, text] = Array.isArray(o) ? o : [o, o];
        return html`<option value=${code} selected=${code === value}>${text}</option>`;
      })}</select>`
    : kind === "textarea" ? html`<textarea rows="2" ...${more} />`
    : html`<input type=${kind} autocomplete="off" ...${more} />`;
  return html`
    <div class=${"field " + (kind === "checkbox" ? "check " : "") + (cls || "")}>
      ${kind === "checkbox" ? html`${input} <label for=${id}>${label}</label>`
        : html`<label for=${id}>${label}</label>${input}`}
      ${hint && html`<small id=${id + "h"}>${hint}</small>`}
    </div>`;
}

// send(values) is a promise; while it runs a second click does nothing
export function Form({ name, send, submit, danger, cancel, children }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const running = useRef(false);
  const onSubmit = async event => {
    event.preventDefault();
    if (running.current) return;
    running.current = true;
    setBusy(true);
    setError(null);
    const form = new FormData(event.target);
    const values = {};
    for (const [key, value] of form) values[key] = key.endsWith("[]") ? form.getAll(key) : value.trim();
    try {
      await send(values);
    } catch (e) {
      setError(e);
    }
    running.current = false;
    setBusy(false);
  };
  return html`
    <form aria-label=${name} onSubmit=${onSubmit}>
      ${children}
      <${Problem} error=${error} />
      <div class="actions">
        ${cancel && html`<button type="button" class="quiet" onClick=${cancel}>Cancel</button>`}
        <button type="submit" class=${danger ? "danger" : ""} aria-disabled=${busy}>${busy ? "Sending…" : submit}</button>
      </div>
    </form>`;
}

// a search or filter form: its values are the query of the hash
export function Filter({ at, params, children, submit = "Search" }) {
  const onSubmit = event => {
    event.preventDefault();
    const values = Object.fromEntries([...new FormData(event.target)].map(([k, v]) => [k, v.trim()]));
    if (href(at, values) === location.hash) dispatchEvent(new Event("again"));
    else go(at, values);
  };
  const more = Object.entries(params).some(([k, v]) => v && k !== "after" && k !== "sort");
  return html`
    <form class="filter" role="search" aria-label="Filter" onSubmit=${onSubmit} key=${location.hash}>
      ${children}
      <button type="submit">${submit}</button>
      ${more && html`<${Link} to=${at}>Clear<//>`}
    </form>`;
}


// a modal dialog; the browser keeps the focus inside and returns it afterwards

export function Dialog({ title, close, children, wide }) {
  const ref = useRef();
  const id = useId();
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`
    <dialog ref=${ref} class=${wide ? "wide" : ""} aria-labelledby=${id}
      onCancel=${event => { event.preventDefault(); close(); }}>
      <article>
        <header>
          <h2 id=${id}>${title}</h2>
          <button type="button" class="close" aria-label="Close" onClick=${close}>×</button>
        </header>
        ${children}
      </article>
    </dialog>`;
}

// a button that opens a dialog: children(close) is what is in it
export function Opener({ text, title, danger, primary, wide, closed, children }) {
  const [open, setOpen] = useState(false);
  const close = () => {
    setOpen(false);
    closed?.();
  };
  return html`
    <button type="button" class=${danger ? "danger quiet" : primary ? "" : "quiet"} onClick=${() => setOpen(true)}>${text}</button>
    ${open && html`<${Dialog} title=${title || text} close=${close} wide=${wide}>${children(close)}<//>`}`;
}

export function Copy({ text, label = "Copy", autofocus }) {
  const [done, setDone] = useState(false);
  const copy = async event => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // without https there is no clipboard of that name
      const button = event.target;
      const area = document.createElement("textarea");
      area.value = text;
      button.after(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      button.focus();
      if (!copied) {
        notify("The browser does not let this page copy: select the text, and copy it by hand");
        return;
      }
    }
    setDone(true);
    notify("Copied");
    setTimeout(() => setDone(false), 2000);
  };
  return html`<button type="button" class="quiet copy" aria-label=${label} autofocus=${autofocus} onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
}

export const Code = ({ text, name }) => html`
  <div class="code">
    <pre tabindex="0" role="group" aria-label=${name}><code>${text}</code></pre>
    <${Copy} text=${text} label=${`Copy: ${name}`} />
  </div>`;


// Plots: times in seconds, lines: [name, values, "--colour"], text: how to
// write a value

const HEIGHT = 180;
const WHOLE = [...Array(13).keys()].flatMap(power => [1, 2, 5].map(n => n * 10 ** power));

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Plot({ name, times, lines, text, bars, whole, note }) {
  const ref = useRef();
  useEffect(() => {
    let plot;
    const draw = () => {
      plot?.destroy();
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 },
                     ticks: { show: false }, font: "11px system-ui", labelFont: "11px system-ui" };
      const step = times.length > 1 ? times[1] - times[0] : 3600;
      plot = new uPlot({
        width: ref.current.clientWidth || 300, height: HEIGHT,
        tzDate: t => uPlot.tzDate(new Date(t * 1000), "UTC"),
        cursor: { points: { size: 6 }, drag: { x: false, y: false } },
        legend: { live: true },
        scales: { x: { range: (u, low, high) => bars ? [low - step / 2, high + step / 2] : [low, high] },
                  y: { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: 60, size: 38, values: [
                 [86400, "{D} {MMM}", null, null, null, null, null, null, 1],
                 [3600, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
                 [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
               ] },
               { ...axis, size: 62, space: 26, ...(whole && { incrs: WHOLE }), values: (u, all) => all.map(v => v === null ? "" : text(v)) }],
        series: [{ label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" },
          ...lines.map(([label, , stroke]) => ({
            label, stroke: colour(stroke), width: 1.5, points: { show: times.length < 3 },
            fill: colour(stroke) + "22",
            ...(bars && { paths: uPlot.paths.bars({ size: [0.7, 40] }), fill: colour(stroke) + "bb", width: 0,
                          points: { show: false } }),
            value: (u, v) => v === null || v === undefined ? "–" : text(v),
          }))],
      }, [times, ...lines.map(l => l[1])], ref.current);
    };
    draw();
    const watch = new ResizeObserver(() => plot.setSize({ width: ref.current.clientWidth || 300, height: HEIGHT }));
    watch.observe(ref.current);
    addEventListener("theme", draw);
    return () => { removeEventListener("theme", draw); watch.disconnect(); plot.destroy(); };
  }, [JSON.stringify([times, lines])]);
  return html`
    <figure class="plot"><figcaption>${name}${note && html` <strong>${note}</strong>`}</figcaption>
      <div ref=${ref} role="img" aria-label=${`Plot: ${name}${note ? ", " + note : ""}`} /></figure>`;
}

// rows of usage by hour or day, newest first, are the points of a plot
export const series = rows => {
  const old = [...rows].reverse();
  return {
    times: old.map(r => Date.parse(r.hour || r.day) / 1000),
    of: f => old.map(f),
  };
};
