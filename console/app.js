// The console of modelgw: static files that nginx serves beside the
// administration interface.  There is no build: these files are what runs.
//
//   api.js        requests, errors, the session, amounts
//   ui.js         routes, tables, forms, dialogs, plots
//   overview.js   overview, first start
//   accounts.js   accounts, top-ups; a key holder's billing
//   keys.js       keys: make, change, rotate, revoke
//   models.js     groups and models, prices
//   calls.js      calls, one call with its cost
//   system.js     refusals, status, nodes, audit log, operators
//   connect.js    what to paste into clients
//   app.js        this: sign-in, navigation, which screen
//
// A screen is a function of { parts, params } of its route.  Paths are relative
// to the page, so that it may be served from anywhere with api/ beside it.

import { render } from "./vendor/standalone.module.js";
import { html, useState, useEffect, useRef, useErrorBoundary, route, own, href, Page, Problem, Form, Field, notify } from "./ui.js";
import { who, isHolder, loadSession, signIn, signOut, ApiError } from "./api.js";
import { Overview, Start } from "./overview.js";
import { Accounts, Account, Billing } from "./accounts.js";
import { Keys, Key } from "./keys.js";
import { Models } from "./models.js";
import { Calls, Call } from "./calls.js";
import { Refusals, Status, Nodes, Actions, Operators } from "./system.js";
import { ConnectPage } from "./connect.js";


// way: [title, screen, screen of one]

const OPERATOR = {
  "": ["Overview", Overview],
  accounts: ["Accounts", Accounts, Account],
  keys: ["Keys", Keys, Key],
  models: ["Models", Models],
  calls: ["Calls", Calls, Call],
  refusals: ["Refusals", Refusals],
  status: ["Status", Status],
  nodes: ["Nodes", Nodes],
  actions: ["Audit log", Actions],
  operators: ["Operators", Operators],
  connect: ["Connect", ConnectPage],
  start: [null, Start],
};

const HOLDER = {
  "": ["Billing", Billing],
  models: ["Models", Models],
  calls: ["Calls", Calls, Call],
  connect: ["Connect", ConnectPage],
};

const screens = () => isHolder() ? HOLDER : OPERATOR;


// Theme: the system's until the button is used

const system = matchMedia("(prefers-color-scheme: dark)");

function theme(next) {
  try {
    if (next) localStorage.setItem("modelgw-theme", next);
    next = localStorage.getItem("modelgw-theme");
  } catch { /* no storage: this page only */ }
  const dark = next ? next === "dark" : system.matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  dispatchEvent(new Event("theme"));
}

system.addEventListener("change", () => theme());
theme();

function ThemeButton() {
  const [, draw] = useState(0);
  useEffect(() => {
    const next = () => draw(n => n + 1);
    addEventListener("theme", next);
    return () => removeEventListener("theme", next);
  }, []);
  const dark = document.documentElement.dataset.theme === "dark";
  return html`<button type="button" class="quiet" onClick=${() => theme(dark ? "light" : "dark")}>${dark ? "Light theme" : "Dark theme"}</button>`;
}


const KIND = s => s.role === "holder"
  ? `Signed in with the service key ${s.key} of account ${s.account}`
  : `Signed in as ${s.name}, operator with the role ${s.role}`;

function SignIn({ done, expired }) {
  useEffect(() => { document.title = "Sign in · modelgw"; }, []);
  const send = async ({ token }) => {
    if (!token) throw new ApiError(0, "", "Enter a token or a key");
    await signIn(token);
    notify(KIND(who()));
    done();
  };
  return html`
    <main id="main" class="signin">
      <div class="card">
        <h1>Sign in to modelgw</h1>
        ${expired && html`<p role="status">The session has ended. Sign in again, and this page is opened.</p>`}
        <${Form} name="Sign in" submit="Sign in" send=${send}>
          <input type="text" id="username" autocomplete="username" value="modelgw" hidden readonly />
          <${Field} label="Token or service key" kind="password" name="token" required
            autocomplete="current-password" spellcheck="false" autofocus />
        <//>
        <dl class="explain">
          <div><dt>Operator</dt><dd>a token that begins with <code>op-</code>, from <code>modelgwctl operator new</code>: all screens that your role allows.</dd></div>
          <div><dt>Key holder</dt><dd>a service key that begins with <code>sk-</code>: balance, usage and calls of its account.</dd></div>
        </dl>
      </div>
    </main>`;
}

function NotFound() {
  return html`<${Page} title="Not found"><p>There is no such page. <a href="#/">Go to the first page</a>.</p><//>`;
}

// a screen that fails leaves the others alone
function Safe({ children }) {
  const [error] = useErrorBoundary(e => console.error(e));
  return error ? html`
    <div key="failed">
      <${Page} title="This page failed"><p>The console has a fault here: <code>${String(error)}</code>. Report it, please.</p><//>
    </div>` : html`<div key="page">${children}</div>`;
}

function Navigation({ at, open, close }) {
  const items = Object.entries(screens())
    .filter(([way, [title]]) => title && (way !== "operators" || who().role === "admin") && (way !== "nodes" || who().cluster));
  return html`
    <nav id="navigation" aria-label="Console" class=${open ? "open" : ""}>
      <ul>${items.map(([way, [title]]) => html`
        <li><a href=${href(way ? [way] : [])} aria-current=${at === way ? "page" : undefined} onClick=${close}>${title}</a></li>`)}
      </ul>
    </nav>`;
}

function Shell({ here, signedIn }) {
  const [open, setOpen] = useState(false);
  const [error, setError] = useState(null);
  const main = useRef();
  const first = useRef(!signedIn);
  const last = useRef();
  const session = who();
  const [way = "", id] = here.parts;
  const [, List, One] = own(screens(), way) || [];
  const Screen = here.parts.length > 2 ? NotFound : id ? One : List;
  const at = here.parts.join("/");

  // a new page is read from its heading on, also after signing in; so are other
  // rows of the same one, if what had the focus went with the former ones
  useEffect(() => {
    setOpen(false);
    if (!first.current && (at !== last.current || document.activeElement === document.body)) {
      scrollTo(0, 0);
      main.current.querySelector("h1")?.focus({ preventScroll: true });
    }
    first.current = false;
    last.current = at;
  }, [here]);

  const leave = () => {
    setError(null);
    signOut().catch(e => {
      e.message = `You are still signed in: ${e.message}`;
      setError(e);
    });
  };

  return html`
    <a class="skip" href="#main" onClick=${event => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <header class="top">
      <button type="button" class="quiet menu" aria-expanded=${open} aria-controls="navigation"
        onClick=${() => setOpen(!open)}>Menu</button>
      <a class="brand" href="#/">modelgw</a>
      <div class="session">
        <span class="who" title=${KIND(session)}>${session.name}<small> ${session.role === "holder" ? "key holder" : session.role}</small></span>
        <${ThemeButton} />
        <button type="button" class="quiet" onClick=${leave}>Sign out</button>
      </div>
    </header>
    <div class="body">
      <${Navigation} at=${way} open=${open} close=${() => setOpen(false)} />
      <main id="main" ref=${main} tabindex="-1">
        <${Problem} error=${error} retry=${leave} />
        <${Safe} key=${at + (here.again || "")}>
          ${Screen ? html`<${Screen} id=${id} params=${here.params} />` : html`<${NotFound} />`}
        <//>
      </main>
    </div>`;
}

function App() {
  const [here, setHere] = useState(route());
  const [state, setState] = useState("loading");
  const [error, setError] = useState(null);
  const [notice, setNotice] = useState("");
  const signedIn = useRef(false);

  const load = () => loadSession().then(
    session => { setError(null); setState(session ? "in" : "out"); }, setError);

  useEffect(() => {
    let timer;
    const onHash = () => setHere(route());
    const onAgain = () => setHere({ ...route(), again: Date.now() });
    const onOut = event => setState(event.detail);
    const onNotice = event => {
      clearTimeout(timer);
      setNotice(event.detail);
      timer = setTimeout(() => setNotice(""), 8000);
    };
    addEventListener("hashchange", onHash);
    addEventListener("again", onAgain);
    addEventListener("signedout", onOut);
    addEventListener("notice", onNotice);
    load();
  }, []);

  return html`
    <div class="notice" role="status" aria-live="polite">${notice && html`<span>${notice}</span>`}</div>
    ${error ? html`<main class="signin"><h1>modelgw</h1><${Problem} error=${error} retry=${load} /></main>`
      : state === "in" ? html`<${Shell} here=${here} signedIn=${signedIn.current} />`
      : state === "loading" ? html`<main class="signin"><h1>modelgw</h1><p class="loading">Loading…</p></main>`
      : html`<${SignIn} expired=${state === "expired"} done=${() => { signedIn.current = true; setState("in"); }} />`}`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
