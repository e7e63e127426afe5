// Requests to the administration interface, and what its answers mean.

export class ApiError extends Error {
  constructor(status, code, message, retry, help) {
    super(message);
    this.status = status;
    this.code = code;
    this.retry = retry;
    this.known = help;
  }

  // what the reader can do about it
  get help() {
    const wait = this.retry ? `Try again in ${this.retry} s.` : "Try again in a moment.";
    return this.known || {
      NETWORK: "The gateway cannot be reached: check the connection and whether nginx is running, then try again.",
      SIGN_IN_REQUIRED: "Sign in again; this page is opened afterwards.",
      FORBIDDEN: "Your role does not allow this: ask an operator with the role admin.",
      LOST: "The connection broke, and the change may have been made all the same. Send it again from here: nothing is done twice.",
      TOPUP_CONFLICT: "Look at the account's top-ups: was this payment booked already, perhaps by a request whose answer was lost? Only for another payment choose another reference.",
      ACCOUNT_EXISTS: "Choose another id, or open the account that has this one.",
      KEY_EXISTS: "An id is never used twice, not even after it was revoked: choose another. If the answer to a first attempt was lost, the key is there, and rotating it makes a secret.",
      CONFIGURED_KEY: "Change it in the configuration, then reload nginx.",
      PRECONDITION_FAILED: "Somebody else has changed the key meanwhile: close this, look at it as it is now, and change it again.",
      "No ledger is configured": "Add modelgw_ledger to http { } of nginx.conf and reload nginx: accounts, calls and changes are kept in it.",
    }[this.code === "NOT_FOUND" ? this.message : this.code] || {
      404: "It may have been removed, or the address is mistyped.",
      429: `Too many requests. ${wait}`,
      503: `The gateway is busy, or cannot write its ledger: see Status. ${wait}`,
    }[this.status] || (this.status >= 500 ? "See nginx's error log, then try again." : "");
  }
}

// who is signed in: the answer of GET session

let session = null;

export const who = () => session;
export const isHolder = () => session.role === "holder";
export const mayKeys = () => session.role === "admin";
export const mayMoney = () => session.role === "admin" || session.role === "billing";

export const query = params => {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(params || {})) {
    if (value !== undefined && value !== null && value !== "") q.set(name, value);
  }
  // "+" is a plus to nginx
  return `?${q}`.replace(/\+/g, "%20").replace(/^\?$/, "");
};

// path`/accounts/${id}`: the parts are escaped
export const path = (texts, ...parts) =>
  texts.reduce((all, text, i) => all + encodeURIComponent(parts[i - 1]) + text);

// A worker answers four questions at a time, and the others with 503: so few
// are asked at once, and one that is refused is asked again.  What was begun is
// not aborted: the gateway works on it all the same.

const AT_ONCE = 3;
let asked = 0;
const queue = [];

async function turn(work) {
  if (asked >= AT_ONCE) await new Promise(next => queue.push(next));
  else asked++;
  try {
    return await work();
  } finally {
    if (queue.length) queue.shift()();
    else asked--;
  }
}

const ask = (method, where, body, headers) => fetch("api" + where, {
  method, credentials: "same-origin", cache: "no-store",
  headers: {
    "X-Modelgw-Console": "1",
    ...(body !== undefined && { "Content-Type": "application/json" }),
    ...headers,
  },
  body: body === undefined ? undefined : JSON.stringify(body),
});

const sleep = ms => new Promise(done => setTimeout(done, ms));

async function send(method, where, { body, headers, signal } = {}) {
  let answer;
  try {
    for (let i = 1; ; i++) {
      answer = await turn(() => {
        signal?.throwIfAborted();
        return ask(method, where, body, headers);
      });
      signal?.throwIfAborted();
      if (method !== "GET" || answer.status !== 503 || where === "/status" || i === 4) break;
      await sleep(250 * i);
    }
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ApiError(0, method === "GET" || where === "/session" ? "NETWORK" : "LOST", "No answer");
  }

  // a /status that is not ok is 503, with the whole answer
  if (answer.ok || (where === "/status" && answer.status === 503
      && answer.headers.get("Content-Type")?.startsWith("application/json"))) return answer;

  const { code = "", message = `HTTP status ${answer.status}` } =
    await answer.json().catch(() => ({}));
  if (code === "SIGN_IN_REQUIRED" && where !== "/session" && session) {
    session = null;
    dispatchEvent(new CustomEvent("signedout", { detail: "expired" }));
  }
  throw new ApiError(answer.status, code, message, answer.headers.get("Retry-After"));
}

async function json(method, where, options) {
  const answer = await send(method, where, options);
  const data = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (data === null && answer.status !== 204) {
    throw new ApiError(answer.status, "", "The answer is not JSON");
  }
  if (where === "/status" && data.ok === undefined) {
    throw new ApiError(answer.status, data.code, data.message, answer.headers.get("Retry-After"));
  }
  return data;
}

export const get = (where, params, signal) => json("GET", where + query(params), { signal });
export const post = (where, body = {}, headers) => json("POST", where, { body, headers });
export const patch = (where, body, headers) => json("PATCH", where, { body, headers });

export async function download(where, params, name) {
  const answer = await send("GET", where + query(params), { headers: { Accept: "text/csv" } });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export async function loadSession() {
  try {
    session = await get("/session");
    if (!session.role) session = null;
  } catch (e) {
    if (e.code !== "SIGN_IN_REQUIRED") throw e;
    session = null;
  }
  return session;
}

export async function signIn(token) {
  try {
    await post("/session", { token });
  } catch (e) {
    throw e.code === "SIGN_IN_REQUIRED" ? new ApiError(e.status, e.code, e.message, null,
      "Check that all of the token or key was pasted. It may also have expired, or been revoked.") : e;
  }
  if (!await loadSession()) {
    throw new ApiError(0, "COOKIE", "The token is right, but the browser has not kept the session's cookie. "
      + "Browsers keep it over https only, or on this very machine: open this page with https://.");
  }
}

// a session that the server does not know is ended, too
export async function signOut() {
  try {
    await json("DELETE", "/session");
  } catch (e) {
    if (e.code !== "SIGN_IN_REQUIRED") throw e;
  }
  session = null;
  dispatchEvent(new CustomEvent("signedout", { detail: "out" }));
}

// Amounts are decimal text, and are added as integers: nano-euro.

export const nano = text => {
  const [, sign, euro, rest = ""] = /^(-?)(\d+)\.?(\d*)$/.exec(text) || [0, "", "0"];
  return BigInt(euro + rest.padEnd(9, "0").slice(0, 9)) * (sign ? -1n : 1n);
};

export const euro = (n, digits = 9) => {
  const text = (n < 0n ? -n : n).toString().padStart(digits + 1, "0");
  return (n < 0n ? "-" : "") + text.slice(0, -digits) + "."
    + text.slice(-digits).replace(/0+$/, "").padEnd(2, "0");
};

export const sum = texts => euro(texts.reduce((all, text) => all + nano(text), 0n));

// getRandomValues is there without https, randomUUID is not
export const random = () =>
  [...crypto.getRandomValues(new Uint8Array(8))].map(b => b.toString(16).padStart(2, "0")).join("");
