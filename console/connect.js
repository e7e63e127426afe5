// What to paste into clients, with this gateway's address.

import { html, useState, useGet, useMemo, Problem, Page, Field, Code, Loaded, Empty } from "./ui.js";
import { who, isHolder, path } from "./api.js";

const sh = text => /^[\w./:@-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
const js = JSON.stringify;

const HELLO = "Say hello in five words.";

// A block: [where it goes, text].  f: { base, model, small, key, messages };
// key is the secret, or $MODELGW_KEY of the environment.

const shellKey = f => f.secret ? `export MODELGW_KEY=${sh(f.secret)}\n` : "";

const CLIENTS = {
  curl: { text: f => [["Shell", `${shellKey(f)}curl -sS ${sh(f.base + "/v1/chat/completions")} \\
  -H "Authorization: Bearer $MODELGW_KEY" -H 'Content-Type: application/json' \\
  -d ${sh(`{"model":${js(f.model)},"max_tokens":100,
       "messages":[{"role":"user","content":${js(HELLO)}}]}`)}`]] },

  "Claude Code": { messages: true, text: f => [["Shell", `${shellKey(f)}export ANTHROPIC_BASE_URL=${sh(f.base)}
export ANTHROPIC_AUTH_TOKEN=$MODELGW_KEY
export ANTHROPIC_MODEL=${sh(f.model)}
export ANTHROPIC_DEFAULT_OPUS_MODEL=${sh(f.model)}
export ANTHROPIC_DEFAULT_SONNET_MODEL=${sh(f.model)}
export ANTHROPIC_DEFAULT_HAIKU_MODEL=${sh(f.small)}
claude`]], note: "The address has no /v1 here. Unset ANTHROPIC_API_KEY if it is set." },

  Codex: { note: html`Which tools Codex offers depends on the model's name; for names that it does not know it warns once.
      Versions before 0.81 spoke chat: <code>wire_api = "chat"</code>.`,
    text: f => [["~/.codex/config.toml", `model = ${js(f.model)}
model_provider = "modelgw"

[model_providers.modelgw]
name = "modelgw"
base_url = ${js(f.base + "/v1")}
env_key = "MODELGW_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2`], ["Shell", `${shellKey(f)}npm install -g @openai/codex
codex`]] },

  opencode: { text: f => [["opencode.json", JSON.stringify({
    $schema: "https://opencode.ai/config.json",
    provider: { modelgw: {
      npm: "@ai-sdk/openai-compatible", name: "modelgw",
      options: { baseURL: f.base + "/v1", apiKey: "{env:MODELGW_KEY}" },
      models: Object.fromEntries([...new Set([f.model, f.small])].map(m => [m, {}])),
    } },
    model: "modelgw/" + f.model, small_model: "modelgw/" + f.small,
  }, null, 2)], ["Shell", `${shellKey(f)}opencode`]] },

  "OpenAI Python": { text: f => [["Shell", `${shellKey(f)}pip install openai`], ["Python", `import os
from openai import OpenAI

client = OpenAI(base_url=${js(f.base + "/v1")}, api_key=os.environ["MODELGW_KEY"])
answer = client.chat.completions.create(
    model=${js(f.model)},
    messages=[{"role": "user", "content": ${js(HELLO)}}],
)
print(answer.choices[0].message.content)`]] },

  "OpenAI Node": { text: f => [["Shell", `${shellKey(f)}npm install openai`], ["JavaScript", `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${js(f.base + "/v1")}, apiKey: process.env.MODELGW_KEY });
const answer = await client.chat.completions.create({
  model: ${js(f.model)},
  messages: [{ role: "user", content: ${js(HELLO)} }],
});
console.log(answer.choices[0].message.content);`]] },

  "Anthropic Python": { messages: true, text: f => [["Shell", `${shellKey(f)}pip install anthropic`], ["Python", `import os
from anthropic import Anthropic

client = Anthropic(base_url=${js(f.base)}, api_key=os.environ["MODELGW_KEY"])
answer = client.messages.create(
    model=${js(f.model)},
    max_tokens=1000,
    messages=[{"role": "user", "content": ${js(HELLO)}}],
)
print(answer.content[0].text)`]] },

  "Anthropic Node": { messages: true, text: f => [["Shell", `${shellKey(f)}npm install @anthropic-ai/sdk`], ["JavaScript", `import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: ${js(f.base)}, apiKey: process.env.MODELGW_KEY });
const answer = await client.messages.create({
  model: ${js(f.model)},
  max_tokens: 1000,
  messages: [{ role: "user", content: ${js(HELLO)} }],
});
console.log(answer.content[0].text);`]] },
};

export const address = () => (who().gateway_url || location.origin).replace(/\/$/, "");

// group and models as a key has them (models null: all of the group); only:
// a single client
export function Connect({ group, models, secret, only }) {
  const all = useGet("/models");
  const [client, setClient] = useState(only || "curl");
  const [model, setModel] = useState("");

  const ids = useMemo(() => (all.data?.models || []).filter(m => m.kind !== "embedding" && (!group || m.group === group))
    .map(m => m.id).filter(id => models ? models.includes(id) : id[0] !== "~")
    .concat((models || []).filter(id => !all.data?.models.some(m => m.id === id))), [all.data, group, models]);

  if (all.error) return html`<${Problem} error=${all.error} retry=${all.reload} />`;
  if (!all.data) return html`<p class="loading">Loading…</p>`;
  if (!ids.length) return html`<${Empty}>No model of this key is known here: see <a href="#/models">Models</a>.<//>`;

  const chosen = ids.includes(model) ? model : ids[0];
  const f = { base: address(), model: chosen, small: ids.find(id => /small|mini|haiku|fast|flash/.test(id)) || chosen, secret };
  const { text, note, messages } = CLIENTS[client];
  const lacks = messages && !all.data.models.some(m => m.group === group && m.protocols.includes("messages"));

  return html`
    <div class="connect">
      ${!only && html`<div class="choices" role="group" aria-label="Client">${Object.keys(CLIENTS).map(name => html`
        <button type="button" class="quiet" aria-pressed=${name === client} onClick=${() => setClient(name)}>${name}</button>`)}</div>`}
      <${Field} label="Model" kind="select" value=${chosen} options=${ids} onChange=${event => setModel(event.target.value)} />
      ${!secret && html`<p class="hint">Put the key's secret into the environment first: <code>export MODELGW_KEY=sk-…</code></p>`}
      ${note && html`<p class="hint">${note}</p>`}
      ${lacks ? html`<${Empty}>Group ${group} does not speak the messages API, which ${client} uses: choose another group or client.<//>`
        : text(f).map(([where, block]) => html`<h2 class="where">${where}</h2><${Code} name=${`${client}: ${where}`} text=${block} />`)}
    </div>`;
}

export function ConnectPage({ params }) {
  const holder = isHolder();
  const key = holder ? who().key : params.key;
  const found = useGet(path`/keys/${key}`, null, { skip: !key });
  const groups = useGet("/groups", null, { skip: holder || !!key });
  const [group, setGroup] = useState("");

  if (key) {
    return html`<${Page} title="Connect" kicker=${`Key ${key}`}>
      <${Loaded} from=${found}>${k => html`<${Connect} group=${k.group} models=${k.models} />`}<//>
    <//>`;
  }
  return html`
    <${Page} title="Connect">
      <${Loaded} from=${groups}>${({ groups: all }) => {
        if (!all.length) return html`<${Empty}>No group is configured: add <code>modelgw_group</code> to nginx.conf.<//>`;
        const chosen = group || all[0].name;
        return html`
          <p class="hint">Blocks to paste, with the address of this gateway: <code>${address()}</code></p>
          <${Field} label="Group of the key" kind="select" class="short" value=${chosen} options=${all.map(g => g.name)}
            onChange=${event => setGroup(event.target.value)} />
          <${Connect} key=${chosen} group=${chosen} models=${null} />`;
      }}<//>
    <//>`;
}
