// Editors of cells: mounted when needed, saved while typing, and never losing a
// text, whatever the server and other people do meanwhile.
import { OpError, type Connection } from "./conn";
import { all, byId, h } from "./dom";
import type { Editor, Hooks } from "./editor";
import { text as carried } from "./patch";
import { ask, toast } from "./ui";
import { t } from "./words";

const pause = 300; // between a keystroke and saving
const maxEditors = 24;

interface Draft {
  base: number; // version the server has, as far as we know
  saved: string; // its text
  now: string; // ours
  flight?: { source: string; done: Promise<boolean> };
  timer: number;
  asking?: boolean; // a conflict waits for the person
}

export interface Actions {
  run(cell: string, how: "next" | "stay" | "insert"): void;
  split(cell: string, at: number): void;
  leave(cell: string): void;
  step(cell: string, direction: -1 | 1): void;
}

type Conflict = { version: number; source: string; by?: { name?: string } };

const stash = (): string => "drafts:" + location.pathname;

export class Editing {
  private readonly drafts = new Map<string, Draft>();
  private readonly editors = new Map<string, Editor>();
  private readonly mounting = new Map<string, Promise<Editor | null>>();

  constructor(private readonly conn: () => Connection, private readonly on: Actions, private readonly readonly: boolean) {
    addEventListener("pagehide", () => this.keep());
    addEventListener("beforeunload", (e) => {
      this.keep();
      if (this.unsaved().length > 0) e.preventDefault();
    });
  }

  /** restore brings back what was typed and not saved before a reload. */
  restore(): void {
    let kept: Record<string, { base: number; now: string }> = {};
    try {
      kept = JSON.parse(sessionStorage.getItem(stash()) ?? "{}");
      sessionStorage.removeItem(stash());
    } catch { /* nothing kept */ }
    for (const [cell, k] of Object.entries(kept)) {
      const d = this.draft(cell);
      if (!d || d.saved === k.now) continue;
      d.base = k.base;
      d.now = k.now;
      void this.open(cell).then(() => this.save(cell));
    }
  }

  private unsaved(): [string, Draft][] {
    return [...this.drafts].filter(([, d]) => d.now !== d.saved);
  }

  private keep(): void {
    const left = this.unsaved().map(([cell, d]) => [cell, { base: d.base, now: d.now }]);
    try {
      if (left.length > 0) sessionStorage.setItem(stash(), JSON.stringify(Object.fromEntries(left)));
      else sessionStorage.removeItem(stash());
    } catch { /* storage is full or off */ }
  }

  private article(cell: string): HTMLElement | null { return byId("cell:" + cell); }

  private draft(cell: string): Draft | null {
    const d = this.drafts.get(cell);
    if (d) return d;
    const el = this.article(cell);
    if (!el) return null;
    const source = carried(el);
    const fresh: Draft = { base: Number(el.dataset["version"]), saved: source, now: source, timer: 0 };
    this.drafts.set(cell, fresh);
    return fresh;
  }

  /** source is the text of a cell as the person sees it. */
  source(cell: string): string { return this.draft(cell)?.now ?? ""; }

  version(cell: string): number { return this.draft(cell)?.base ?? 0; }

  editor(cell: string): Editor | undefined { return this.editors.get(cell); }

  /** open mounts the editor of a cell. */
  open(cell: string): Promise<Editor | null> {
    const have = this.editors.get(cell);
    if (have) return Promise.resolve(have);
    const coming = this.mounting.get(cell);
    if (coming) return coming;
    const p = this.mount(cell).finally(() => this.mounting.delete(cell));
    this.mounting.set(cell, p);
    return p;
  }

  private async mount(cell: string): Promise<Editor | null> {
    if (this.readonly) return null;
    const { mount } = await import("./editor");
    const article = this.article(cell), src = byId(`cell:${cell}:src`), d = this.draft(cell);
    if (!article || !src || !d) return null;
    const host = h("div", { class: "code editor" });
    const editor = mount(host, d.now, this.hooks(cell, article));
    src.after(host);
    src.hidden = true;
    this.editors.set(cell, editor);
    this.trim(cell);
    return editor;
  }

  private hooks(cell: string, article: HTMLElement): Hooks {
    return {
      kind: article.dataset["kind"] ?? "code",
      label: t("Text of cell %d", all("#cells > article").indexOf(article) + 1),
      changed: (text) => this.changed(cell, text),
      run: (how) => this.on.run(cell, how),
      leave: () => this.on.leave(cell),
      blurred: () => void this.save(cell),
      split: (at) => this.on.split(cell, at),
      beyond: (direction) => this.on.step(cell, direction),
      complete: (code, pos) => this.conn().question<never>("complete", { code, pos }).catch(() => null),
      inspect: (code, pos) => this.conn().question<{ found?: boolean; data?: Record<string, string> }>("inspect", { code, pos })
        // eslint-disable-next-line no-control-regex
        .then((a) => (a.found ? (a.data?.["text/plain"] ?? "").replace(/\x1b\[[\d;]*m/g, "") : ""), () => ""),
    };
  }

  /** close takes an editor away and shows the text as it reads. */
  close(cell: string): void {
    const e = this.editors.get(cell);
    if (!e) return;
    void this.save(cell);
    this.editors.delete(cell);
    const host = e.dom.parentElement;
    e.destroy();
    host?.remove();
    const src = byId(`cell:${cell}:src`);
    if (src) src.hidden = false;
  }

  // Many open editors are slow; the oldest that are saved and not in use go.
  private trim(but: string): void {
    for (const [cell, e] of this.editors) {
      if (this.editors.size <= maxEditors) return;
      const d = this.drafts.get(cell);
      if (cell !== but && !e.focused() && d && d.now === d.saved && !d.flight) this.close(cell);
    }
  }

  private changed(cell: string, text: string): void {
    const d = this.draft(cell);
    if (!d) return;
    d.now = text;
    clearTimeout(d.timer);
    d.timer = window.setTimeout(() => void this.save(cell), pause);
  }

  /** save sends what is not saved; it resolves to false when that did not work. */
  async save(cell: string): Promise<boolean> {
    for (;;) {
      const d = this.drafts.get(cell);
      if (!d) return true;
      clearTimeout(d.timer);
      if (d.asking) return false;
      if (d.flight) {
        if (!(await d.flight.done)) return false;
        continue;
      }
      if (d.now === d.saved) return true;
      const source = d.now;
      d.flight = { source, done: this.send(cell, d, source) };
      const ok = await d.flight.done;
      if (!ok) return false;
    }
  }

  private async send(cell: string, d: Draft, source: string): Promise<boolean> {
    try {
      const base = d.base;
      await this.conn().op("cell.edit", { cell, base, source });
      d.flight = undefined;
      d.saved = source;
      d.base = Math.max(d.base, base + 1);
      return true;
    } catch (e) {
      d.flight = undefined;
      if (e instanceof OpError && e.code === "conflict" && e.data) return this.conflict(cell, d, e.data as Conflict);
      if (e instanceof OpError && e.code === "not_found") return false;
      toast(t("Not saved: %s", e instanceof Error ? e.message : String(e)));
      return false;
    }
  }

  private async conflict(cell: string, d: Draft, theirs: Conflict): Promise<boolean> {
    d.base = theirs.version;
    d.saved = theirs.source;
    if (d.now === theirs.source) return true;
    d.asking = true;
    const who = theirs.by?.name || t("Somebody");
    const choice = await ask(t("This cell was changed meanwhile"), [
      h("p", {}, t("%s changed it while you were typing. Both texts are below; nothing has been lost.", who)),
      h("div", { class: "both" },
        h("section", {}, h("h3", {}, t("Your text")), h("pre", { tabindex: "0", "data-testid": "mine" }, d.now)),
        h("section", {}, h("h3", {}, t("The text on the server")), h("pre", { tabindex: "0", "data-testid": "theirs" }, theirs.source))),
    ], [
      { label: t("Keep mine"), value: "mine", primary: true },
      { label: t("Take theirs"), value: "theirs" },
      { label: t("Keep both"), value: "both" },
    ]);
    d.asking = false;
    const mine = d.now;
    if (choice === "theirs" || choice === "both") {
      d.now = d.saved;
      this.editors.get(cell)?.set(d.now);
      if (choice === "both") {
        await this.conn().op("cell.insert", { after: cell, kind: this.article(cell)?.dataset["kind"], source: mine }).catch(() => toast(mine, undefined, 0));
      }
      return true;
    }
    if (choice === "mine") return this.save(cell);
    return false; // closed: the text stays in the editor, and the next save asks again
  }

  // ---- what the patches tell ----

  taken(cell: string, version: number, source: string): void {
    const d = this.drafts.get(cell);
    if (!d || version <= d.base && source === d.saved) return;
    if (d.flight?.source === source || d.now === source) {
      d.base = Math.max(d.base, version);
      d.saved = source;
      return;
    }
    if (version < d.base || d.now !== d.saved || d.flight) return; // the next save finds out
    d.base = version;
    d.saved = d.now = source;
    this.editors.get(cell)?.set(source);
  }

  gone(cell: string): void {
    const e = this.editors.get(cell);
    if (e) {
      this.editors.delete(cell);
      e.destroy();
    }
    const d = this.drafts.get(cell);
    if (d) clearTimeout(d.timer);
    this.drafts.delete(cell);
  }

  relabel(): void {
    all("#cells > article").forEach((a, i) => {
      const name = a.querySelector(":scope > h2");
      if (name) name.textContent = t("Cell %d", i + 1);
      this.editors.get(a.id.replace(/^cell:/, ""))?.label(t("Text of cell %d", i + 1));
    });
  }
}
