// The rail: variables are asked for, memory comes by itself.
import type { Connection, Usage } from "./conn";
import { byId, h } from "./dom";

interface Variable { name: string; type: string; shape?: string; size?: number; value?: string }

export function usage(u: Usage): void {
  const el = byId("usage-memory");
  if (el && Number.isFinite(u.memory)) {
    el.textContent = Math.round(u.memory / 2 ** 20).toLocaleString("en");
    last = el.textContent;
  }
}

let last = "";

/** remember puts the last known figure into a part that was written anew. */
export function remember(): void {
  const el = byId("usage-memory");
  if (el && last) el.textContent = last;
}

let timer = 0;

/** variables asks again soon, unless the kernel is busy. */
export function variables(conn: Connection, wait = 250): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => {
    if (document.querySelector("#actions [data-act=interrupt]") || !document.querySelector("#kernel .dot.ok")) return;
    conn.question<Variable[] | null>("variables").then(show, () => { /* no kernel */ });
  }, wait);
}

function show(list: Variable[] | null): void {
  const section = byId("rail-variables");
  const ul = section?.querySelector("ul");
  if (!section || !ul) return;
  const vars = Array.isArray(list) ? list.slice(0, 40) : [];
  section.hidden = vars.length === 0;
  ul.replaceChildren(...vars.map((v) => {
    const kind = v.shape ? `${v.type} ${v.shape}` : v.type;
    const brief = v.value && v.value.length <= 24 && !v.shape ? v.value : kind;
    return h("li", { title: `${kind}${v.value ? "\n" + v.value : ""}` }, h("code", {}, v.name), h("span", { class: "v" }, brief));
  }));
}

/** noVariables says that there is no kernel to have any. */
export function noVariables(): void {
  show(null);
}
