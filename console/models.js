// Groups and models, as they are configured.

import { html, useGet, count, ms, Money, Link, Loaded, Page, Section, Facts, Table } from "./ui.js";
import { isHolder } from "./api.js";

const capabilities = m => m.kind === "embedding" ? "embeddings" : [
  m.thinking && m.thinking !== "off" && `thinking: ${m.thinking}`,
  m.effort?.length > 0 && `effort: ${m.effort.join(", ")}`,
  m.structured && m.structured !== "off" && `structured output: ${m.structured}`,
  m.sampling && m.sampling !== "both" && `sampling: ${m.sampling}`,
].filter(t => t).join("; ") || "–";

const limit = n => n === null || n === undefined ? "no limit" : count(n);

export function Models() {
  const holder = isHolder();
  const models = useGet("/models");
  const groups = useGet("/groups", null, { skip: holder });
  const usage = useGet("/usage", { by: "model", from: "-30d", limit: 1000 });
  const used = Object.fromEntries((usage.data?.usage || []).map(r => [r.model, r]));

  const table = rows => html`
    <${Table} name=${`Models of group ${rows[0]?.group}`} rows=${rows} columns=${[
      ["Model", m => m.id[0] === "~" ? html`<code>${m.id}</code>` : m.id],
      !holder && ["Upstream id", m => html`<code>${m.upstream_id}</code>`],
      ["Input (€)", m => html`<${Money} of=${m.input} />`, "num price"],
      ["Output (€)", m => html`<${Money} of=${m.output} />`, "num price"],
      ["Cache read (€)", m => html`<${Money} of=${m.cache_read} />`, "num price"],
      ["Write (€)", m => html`<${Money} of=${m.cache_write} />`, "num price"],
      ["1 h (€)", m => html`<${Money} of=${m.cache_write_1h} />`, "num price"],
      ["Context", m => count(m.context), "num"],
      ["Output max.", m => count(m.max_output), "num"],
      ["Calls, 30 d", m => m.id[0] === "~" ? "–" : html`<${Link} to="calls" params=${{ model: m.id, from: "-30d" }}>${count(used[m.id]?.calls || 0)}<//>`, "num"],
      ["Cost, 30 d (€)", m => m.id[0] === "~" ? "–" : html`<${Money} of=${used[m.id]?.cost || "0.00"} />`, "num"],
      ["Mean duration", m => ms(used[m.id]?.avg_ms), "num"],
      ["Capabilities", capabilities],
    ]} empty="This group has no models." />`;

  return html`
    <${Page} title="Models">
      <p class="hint">Prices are euro for a million tokens; Write and 1 h are cache writes.${!holder && html` Groups and models are those of nginx.conf: they change by a reload. An id
        that begins with <code>~</code> is a pattern.`}</p>
      <${Loaded} from=${models}>${data => holder ? table(data.models)
        : html`<${Loaded} from=${groups}>${g => g.groups.length ? g.groups.map(group => html`
            <${Section} title=${`Group ${group.name}`}>
              <${Facts} items=${[
                ["Upstream", html`<code>${group.upstream}</code>`],
                ["APIs", group.protocols.join(", ")],
                ["Families", (group.families || []).join(", ") || "–"],
                ["Requests a minute", limit(group.rpm)], ["Tokens a minute", limit(group.tpm)], ["Calls at a time", limit(group.concurrency)],
                group.budget && ["Budget of each key", `€\u00a0${group.budget}`],
              ]} />
              ${table(data.models.filter(m => m.group === group.name))}
            <//>`) : html`<p>No group is configured: add <code>modelgw_group</code> to nginx.conf.</p>`}<//>`}<//>
    <//>`;
}
