// Applying patches. Each says what is to be, so applying one twice does no harm.
import type { Patch } from "./conn";
import { all, byId, markup } from "./dom";
import { grew, isAway, keepAway } from "./scroll";

/** Editing is what the patches of a cell's text meet. */
export interface Editing {
  /** taken says that the server has this text now. */
  taken(cell: string, version: number, source: string): void;
  /** gone says that the cell's element is about to go. */
  gone(cell: string): void;
}

const cellID = (target: string): string => target.replace(/^cell:/, "");

/** place puts a cell after another, keeping live frames alive where the browser can. */
function place(el: Element, after: string): void {
  const cells = byId("cells")!;
  const prev = after ? byId(after) : null;
  const before = prev ? prev.nextElementSibling : cells.firstElementChild;
  if (before === el || (prev && prev === el.previousElementSibling)) return;
  const move = (cells as Element & { moveBefore?: (n: Node, ref: Node | null) => void }).moveBefore;
  if (el.isConnected && move) move.call(cells, el, before);
  else cells.insertBefore(el, before);
}

/** swap replaces an element and keeps what a person was doing in it. */
export function swap(old: Element, fresh: Element): void {
  const active = document.activeElement;
  const inside = active && active !== document.body && old.contains(active) ? active : null;
  if (old instanceof HTMLDetailsElement && fresh instanceof HTMLDetailsElement) fresh.open = old.open;
  const boxes = all(".text.long", old).map((e) => ({ id: e.parentElement?.id ?? "", top: e.scrollTop, open: e.classList.contains("open"), away: isAway(e) }));
  const typed = old.querySelector<HTMLInputElement>("#input-value");
  const field = fresh.querySelector<HTMLInputElement>("#input-value");
  if (typed && field && typed.form?.dataset["run"] === field.form?.dataset["run"]) field.value = typed.value;
  old.replaceWith(fresh);
  // Whoever is at the cell that begins to ask goes on typing in the answer.
  if (field && !typed && active?.closest("article") === fresh.closest("article")) field.focus({ preventScroll: true });
  // What is long while it prints is shown from its end, but to who reads further up.
  const running = !!fresh.closest("article")?.querySelector(".elapsed");
  for (const el of all(".text.long", fresh)) {
    const was = boxes.find((x) => x.id === el.parentElement?.id);
    el.classList.toggle("open", was?.open ?? false);
    if (was?.away) keepAway(el, was.top);
    else if (running) grew(el);
    else if (was) el.scrollTop = was.top;
  }
  if (inside) {
    const again = inside.id ? byId(inside.id) : inside instanceof HTMLElement && inside.dataset["testid"] ? fresh.querySelector<HTMLElement>(`[data-testid="${CSS.escape(inside.dataset["testid"])}"]`) : null;
    (again ?? (inside.tagName === "SUMMARY" ? fresh.querySelector<HTMLElement>("summary") : null) ?? fresh.closest<HTMLElement>("article"))?.focus({ preventScroll: true });
  }
}

function replace(p: Patch): void {
  const old = byId(p.target!);
  const fresh = markup(p.html ?? "");
  if (p.target === "title") { // an id that the cleaning takes for an attack
    if (old && !old.querySelector("input")) old.textContent = fresh.textContent!.trim();
    document.title = fresh.textContent!.trim() + " · Sandbook";
    return;
  }
  const el = fresh.firstElementChild;
  if (old && el) swap(old, el);
}

function append(p: Patch): void {
  const to = byId(p.target!);
  if (!to) return;
  for (const el of Array.from(markup(p.html ?? "").children)) {
    const same = el.id ? byId(el.id) : null;
    if (same) swap(same, el);
    else to.append(el);
    const text = el.querySelector(".text.long");
    if (text) grew(text);
  }
}

// lines: what stands before number first goes, and from number at on the new
// lines stand. A page that is further on is set back, and the next patch brings
// it forward again; one that lacks lines in between is left for a reload.
function lines(p: Patch): void {
  const pre = byId(p.target!);
  if (!pre) return;
  const first = p.first ?? 0, at = p.at ?? 0;
  const have = Number(pre.dataset["first"] ?? 0);
  const box = pre.closest(".text.long");
  while (pre.childElementCount > Math.max(0, at - have)) pre.lastElementChild!.remove();
  for (let i = have; i < first && pre.firstElementChild; i++) pre.firstElementChild.remove();
  pre.dataset["first"] = String(Math.max(have, first));
  pre.append(p.text === undefined ? markup(p.html ?? "") : plain(p.text));
  if (box) grew(box);
}

function plain(text: string): DocumentFragment {
  const out = document.createDocumentFragment();
  const list = text.split("\n");
  list.forEach((l, i) => {
    const span = document.createElement("span");
    span.textContent = i < list.length - 1 ? l + "\n" : l;
    out.append(span);
  });
  return out;
}

function cell(p: Patch, editing: Editing): void {
  const el = markup(p.html ?? "").firstElementChild;
  if (!el) return;
  const old = byId(p.target!);
  if (old) {
    editing.gone(cellID(p.target!));
    const had = old === document.activeElement || old.contains(document.activeElement);
    for (const c of ["selected", "editing"]) el.classList.toggle(c, c === "selected" && old.classList.contains(c));
    old.replaceWith(el);
    if (had) (el as HTMLElement).focus({ preventScroll: true });
  }
  if (p.op === "insert") place(old ? byId(p.target!)! : el, p.after ?? "");
  editing.taken(cellID(p.target!), p.version ?? 0, p.source ?? "");
}

function source(p: Patch, editing: Editing): void {
  const article = byId(p.target!);
  const shown = byId(p.target! + ":src");
  const fresh = markup(p.html ?? "").firstElementChild;
  if (!article || !shown || !fresh) return;
  (fresh as HTMLElement).hidden = shown.hidden;
  shown.replaceWith(fresh);
  article.dataset["version"] = String(p.version);
  article.dataset["source"] = JSON.stringify(p.source ?? "");
  editing.taken(cellID(p.target!), p.version ?? 0, p.source ?? "");
}

function queue(p: Patch, word: (n: number) => string): void {
  const first = document.querySelector(`.who[data-run="${CSS.escape(p.target!)}"] [data-place]`) as HTMLElement | null;
  const by = Number(first?.dataset["place"] ?? 1) - 1;
  if (by <= 0) return;
  for (const el of all("[data-place]")) {
    const n = Number(el.dataset["place"]) - by;
    if (n < 1) continue;
    el.dataset["place"] = String(n);
    el.textContent = word(n);
  }
}

/** apply carries patches out and reports whether the order of cells changed. */
export function apply(patches: Patch[], editing: Editing, word: (n: number) => string): boolean {
  let order = false;
  for (const p of patches) {
    switch (p.op) {
      case "replace": replace(p); break;
      case "append": append(p); break;
      case "lines": lines(p); break;
      case "source": source(p, editing); break;
      case "queue": queue(p, word); break;
      case "page": refresh(markup(p.html ?? ""), editing); order = true; break;
      case "insert":
      case "cell": cell(p, editing); order = true; break;
      case "move": {
        const el = byId(p.target!);
        if (el) place(el, p.after ?? "");
        order = true;
        break;
      }
      case "remove": {
        editing.gone(cellID(p.target!));
        byId(p.target!)?.remove();
        order = true;
        break;
      }
    }
  }
  return order;
}

const parts = ["kernel", "actions", "banner", "rail-files", "rail-kernel", "rail-history"];

/** refresh brings the page to what a freshly fetched one says, cell by cell. */
export function refresh(page: ParentNode, editing: Editing): void {
  const heading = page.querySelector("header h1");
  if (heading) replace({ op: "replace", target: "title", html: heading.textContent ?? "" });
  for (const id of parts) {
    const old = byId(id), fresh = page.querySelector("#" + id);
    if (old && fresh && old.outerHTML !== fresh.outerHTML) swap(old, fresh);
  }
  const fresh = all("#cells > article", page);
  const stays = new Set(fresh.map((c) => c.id));
  for (const old of all("#cells > article")) {
    if (stays.has(old.id)) continue;
    editing.gone(cellID(old.id));
    old.remove();
  }
  let after = "";
  for (const c of fresh) {
    const old = byId(c.id);
    const src = text(c);
    if (old && old.dataset["kind"] === c.dataset["kind"]) refreshCell(old, c, src, editing);
    else if (old) cell({ op: "cell", target: c.id, html: c.outerHTML, version: Number(c.dataset["version"]), source: src }, editing);
    else byId("cells")!.append(c);
    place(byId(c.id)!, after);
    after = c.id;
  }
}

function refreshCell(old: HTMLElement, fresh: HTMLElement, src: string, editing: Editing): void {
  for (const part of [":head", ":src", ":foot"]) {
    const a = byId(old.id + part), b = fresh.querySelector<HTMLElement>("#" + CSS.escape(old.id + part));
    if (!a || !b) continue;
    if (part === ":src") b.hidden = a.hidden;
    if (a.outerHTML !== b.outerHTML) swap(a, b);
  }
  const a = byId(old.id + ":outputs"), b = fresh.querySelector("#" + CSS.escape(old.id + ":outputs"));
  if (a && b) {
    const ids = Array.from(b.children, (o) => o.id).join();
    if (!ids.startsWith(Array.from(a.children, (o) => o.id).join())) swap(a, b);
    else {
      for (const o of Array.from(b.children)) {
        const was = byId(o.id);
        if (!was) a.append(o);
        else if (!was.querySelector(".active.drawn") && was.outerHTML !== o.outerHTML) swap(was, o);
      }
    }
  }
  old.dataset["version"] = fresh.dataset["version"];
  old.dataset["source"] = JSON.stringify(src);
  editing.taken(cellID(old.id), Number(fresh.dataset["version"]), src);
}

/** text is the exact source of a cell as its element carries it. */
export function text(article: HTMLElement): string {
  const carried = article.dataset["source"];
  if (carried !== undefined) {
    try {
      return String(JSON.parse(carried));
    } catch { /* not ours: read what is shown */ }
  }
  return article.querySelector("pre.source")?.textContent ?? "";
}
