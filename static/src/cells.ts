// Cells as a person works with them: one is selected, in command or edit mode,
// and everything that can be done to it has a button and a key.
import type { Connection } from "./conn";
import { all, byId, h } from "./dom";
import type { Editing } from "./editing";
import { ask, copyText, toast } from "./ui";
import { t } from "./words";

type Result = { ids?: string[] };
type How = "next" | "stay" | "insert";
type Where = "start" | "end" | { x: number; y: number } | undefined;

// Markup that comes out of cells; no button in it is ours.
const foreign = ".text, .md, .still, .output-html, .traceback, .json";

export class Cells {
  private sel = "";
  private place = 0; // of the selected cell, for when it goes
  private clipboard: { kind: string; source: string } | null = null;
  private wanted: { cell: string; edit: boolean } | null = null; // a new cell that the patch has not brought yet

  constructor(private readonly conn: () => Connection, private readonly editing: Editing, private readonly readonly: boolean) {}

  // ---- finding ----

  private list(): HTMLElement[] { return all("#cells > article"); }
  private el(cell = this.sel): HTMLElement | null { return cell ? byId("cell:" + cell) : null; }
  private id(el: Element): string { return el.id.replace(/^cell:/, ""); }
  private kind(cell = this.sel): string { return this.el(cell)?.dataset["kind"] ?? ""; }
  private neighbour(by: number, cell = this.sel): string {
    const cells = this.list(), i = cells.findIndex((c) => this.id(c) === cell);
    const n = cells[i + by];
    return i >= 0 && n ? this.id(n) : "";
  }

  get selected(): string { return this.sel; }

  // ---- selecting and editing ----

  select(cell: string, focus = true): void {
    const el = this.el(cell);
    if (!el) return;
    if (cell !== this.sel) {
      const old = this.el();
      old?.classList.remove("selected", "editing");
      if (old) old.tabIndex = -1;
      for (const b of old ? all(".tools button", old) : []) b.tabIndex = -1;
      if (old && this.kind(this.id(old)) === "markdown") this.editing.close(this.id(old));
    }
    this.sel = cell;
    this.place = this.list().indexOf(el);
    el.classList.add("selected");
    el.tabIndex = 0;
    for (const b of all(".tools button", el)) b.tabIndex = 0;
    if (focus && !el.contains(document.activeElement)) this.show(el);
    else if (focus && document.activeElement !== el) el.focus({ preventScroll: true });
  }

  private show(el: HTMLElement): void {
    el.focus({ preventScroll: true });
    const box = el.getBoundingClientRect();
    if (box.top < 60 || box.bottom > innerHeight) el.scrollIntoView({ block: box.height > innerHeight - 100 ? "start" : "nearest" });
  }

  async edit(cell = this.sel, where?: Where): Promise<void> {
    if (this.readonly || !this.el(cell)) return;
    this.select(cell, false);
    const editor = await this.editing.open(cell);
    if (!editor || this.sel !== cell) return;
    editor.focus(where);
    this.el(cell)?.classList.add("editing");
  }

  /** leave goes from edit to command mode. */
  leave(cell: string): void {
    const el = this.el(cell);
    void this.editing.save(cell);
    el?.classList.remove("editing");
    if (this.kind(cell) === "markdown") this.editing.close(cell);
    el?.focus({ preventScroll: true });
  }

  /** step moves the cursor out of a text into the next one. */
  step(cell: string, direction: -1 | 1): void {
    const next = this.neighbour(direction, cell);
    if (!next) return;
    this.el(cell)?.classList.remove("editing");
    if (this.kind(next) === "markdown" && !this.editing.editor(next)) this.select(next);
    else void this.edit(next, direction < 0 ? "end" : "start");
  }

  move(by: -1 | 1): void {
    const next = this.neighbour(by);
    if (next) this.select(next);
  }

  /** settled is called when patches have been applied. */
  settled(order: boolean): void {
    if (this.wanted && this.el(this.wanted.cell)) {
      const w = this.wanted;
      this.wanted = null;
      if (w.edit) void this.edit(w.cell, "start");
      else this.select(w.cell);
    } else if (order && this.sel && !this.el()) {
      const cells = this.list(), el = cells[Math.min(this.place, cells.length - 1)];
      this.sel = "";
      if (el) this.select(this.id(el), document.activeElement === document.body);
    } else if (this.sel) {
      const el = this.el();
      if (el && !el.classList.contains("selected")) this.select(this.sel, false);
    }
  }

  private want(r: Result, edit: boolean): void {
    const cell = r.ids?.at(-1);
    if (!cell) return;
    this.wanted = { cell, edit };
    this.settled(false);
  }

  // ---- doing ----

  private op(op: string, args: object = {}): Promise<Result> {
    return this.conn().op<Result>(op, args).catch((e: Error) => {
      toast(e.message);
      throw e;
    });
  }

  run(cell: string, how: How): void { void this.runCell(cell, how).catch(() => { /* said already */ }); }

  private async runCell(cell: string, how: How): Promise<void> {
    if (!cell) return;
    const code = this.kind(cell) === "code";
    const saved = this.editing.save(cell);
    if (!code) this.leave(cell);
    if (how === "next") this.next(cell);
    if (!(await saved)) return;
    if (code && this.editing.source(cell).trim()) await this.op("run", { scope: "cells", cells: [cell], versions: [this.editing.version(cell)] });
    if (how === "insert") this.want(await this.op("cell.insert", { after: cell, kind: "code", source: "" }), true);
  }

  private next(cell: string): void {
    const next = this.neighbour(1, cell);
    this.el(cell)?.classList.remove("editing");
    if (next) this.select(next);
    else void this.op("cell.insert", { after: cell, kind: "code", source: "" }).then((r) => this.want(r, true), () => { /* said */ });
  }

  splitAt(cell: string, at: number): void {
    void (async () => {
      if (!(await this.editing.save(cell))) return;
      this.want(await this.op("cell.split", { cell, base: this.editing.version(cell), at }), true);
    })().catch(() => { /* said */ });
  }

  private async saveAll(): Promise<boolean> {
    const done = await Promise.all(this.list().filter((c) => this.editing.editor(this.id(c))).map((c) => this.editing.save(this.id(c))));
    return done.every(Boolean);
  }

  private async runScope(scope: "all" | "above" | "below"): Promise<void> {
    if (await this.saveAll()) await this.op("run", scope === "all" ? { scope } : { scope, cells: [this.sel] });
  }

  private async insert(after: string | null, kind = "code", source = "", edit = true): Promise<void> {
    this.want(await this.op("cell.insert", after === null ? { kind, source } : { after, kind, source }), edit);
  }

  private async remove(cell: string): Promise<void> {
    if (!cell) return;
    await this.editing.save(cell);
    await this.op("cell.delete", { cell });
    toast(t("Cell deleted."), { label: t("Undo"), run: () => void this.restore(cell) });
  }

  private async restore(cell?: string): Promise<void> {
    await this.op("cell.restore", cell ? { cell } : {});
    if (cell) this.want({ ids: [cell] }, false);
  }

  private async shift(by: -1 | 1): Promise<void> {
    const after = by > 0 ? this.neighbour(1) : this.neighbour(-2);
    if (this.neighbour(by)) await this.op("cell.move", { cell: this.sel, after });
  }

  private async merge(): Promise<void> {
    const next = this.neighbour(1);
    if (!next || !(await this.editing.save(this.sel)) || !(await this.editing.save(next))) return;
    await this.op("cell.merge", { cell: this.sel });
  }

  private async setKind(kind: string): Promise<void> {
    if (this.kind() === kind || !(await this.editing.save(this.sel))) return;
    await this.op("cell.kind", { cell: this.sel, kind });
  }

  private copy(): void {
    if (!this.sel) return;
    this.clipboard = { kind: this.kind(), source: this.editing.source(this.sel) };
    copyText(this.clipboard.source);
  }

  private async paste(): Promise<void> {
    if (!this.clipboard) toast(t("There is nothing to paste. Copy or cut a cell first."));
    else await this.insert(this.sel || null, this.clipboard.kind, this.clipboard.source, false);
  }

  private async restart(all: boolean): Promise<void> {
    if (!document.querySelector("#banner [data-act=restart]")) { // a dead kernel has nothing to lose
      const yes = await ask(t("Restart the kernel?"), [h("p", {}, t("Its variables are lost. The text and the outputs of the cells stay."))], [
        { label: all ? t("Restart and run all") : t("Restart"), value: "yes", primary: true }, { label: t("Cancel"), value: "" },
      ]);
      if (!yes) return;
    }
    if (await this.saveAll()) await this.op("kernel.restart", { run_all: all });
  }

  private rename(): void {
    const title = byId("title");
    if (!title || this.readonly || title.querySelector("input")) return;
    const was = title.textContent ?? "";
    const field = h("input", { value: was, maxlength: "200", "aria-label": t("Title"), "data-testid": "title-input" });
    const done = (save: boolean) => {
      const now = field.value.trim();
      field.onblur = null;
      title.replaceChildren(save && now ? now : was);
      if (save && now && now !== was) void this.op("notebook.rename", { title: now }).catch(() => title.replaceChildren(was));
    };
    field.onblur = () => done(true);
    field.onkeydown = (e) => {
      if (e.key === "Enter") done(true);
      if (e.key === "Escape") done(false);
      e.stopPropagation();
    };
    title.replaceChildren(field);
    field.select();
  }

  private menu(button: Element | null): void {
    const menu = byId("cell-menu");
    if (!menu || !this.sel) return;
    if (menu.matches(":popover-open")) {
      menu.hidePopover();
      return;
    }
    menu.showPopover();
    const at = (button ?? this.el()!).getBoundingClientRect(), box = menu.getBoundingClientRect();
    menu.style.left = Math.max(8, Math.min(at.right - box.width, innerWidth - box.width - 8)) + "px";
    menu.style.top = Math.max(8, Math.min(at.bottom + 6, innerHeight - box.height - 8)) + "px";
    menu.querySelector("button")?.focus({ preventScroll: true });
  }

  // ---- every action by its name: data-act of a button, or a key ----

  private readonly acts: Record<string, (button: Element | null) => unknown> = {
    "run": () => this.runCell(this.sel, "stay"),
    "run-next": () => this.runCell(this.sel, "next"),
    "run-insert": () => this.runCell(this.sel, "insert"),
    "run-all": () => this.runScope("all"),
    "run-above": () => this.runScope("above"),
    "run-below": () => this.runScope("below"),
    "cancel": () => {
      const run = this.el()?.querySelector<HTMLElement>(".who[data-run]:has([data-place])")?.dataset["run"];
      return run ? this.op("run.cancel", { run }) : undefined;
    },
    "interrupt": () => this.op("kernel.interrupt"),
    "start": () => this.op("kernel.start"),
    "stop": () => this.op("kernel.stop"),
    "restart": () => this.restart(false),
    "restart-run-all": () => this.restart(true),
    "add-code": () => this.insert(null),
    "add-text": () => this.insert(null, "markdown"),
    "add-above": () => this.insert(this.neighbour(-1)),
    "add-below": () => this.insert(this.sel || null),
    "move-up": () => this.shift(-1),
    "move-down": () => this.shift(1),
    "cut": () => { this.copy(); return this.remove(this.sel); },
    "copy": () => this.copy(),
    "paste": () => this.paste(),
    "split": () => {
      const editor = this.editing.editor(this.sel);
      if (editor) this.splitAt(this.sel, editor.cursor());
      else toast(t("Choose a cell first."));
    },
    "merge": () => this.merge(),
    "to-code": () => this.setKind("code"),
    "to-text": () => this.setKind("markdown"),
    "to-raw": () => this.setKind("raw"),
    "clear": () => this.op("cell.clear", { cell: this.sel }),
    "clear-all": () => this.op("cell.clear"),
    "delete": () => this.remove(this.sel),
    "restore": () => this.restore(),
    "restore-notebook": () => this.op("notebook.restore").then(() => location.reload()),
    "rename": () => this.rename(),
    "cell-menu": (b) => this.menu(b),
    "shortcuts": () => (byId("shortcuts") as HTMLDialogElement | null)?.showModal(),
    "go-input": () => byId("input-value")?.focus(),
    "expand": (b) => {
      const box = b?.closest(".output")?.querySelector(".text");
      const open = box?.classList.toggle("open") ?? false;
      b?.setAttribute("aria-expanded", String(open));
      if (b) b.textContent = open ? t("Show less") : t("Show all");
    },
    "copy-text": (b) => copyText(b?.closest(".output")?.querySelector<HTMLElement>(".text")?.innerText ?? ""),
  };

  act(name: string, button: Element | null = null): void {
    const f = this.acts[name];
    if (!f) return;
    void Promise.resolve().then(() => f(button)).catch(() => { /* said already */ });
  }

  start(): void {
    document.addEventListener("click", (e) => this.clicked(e));
    document.addEventListener("dblclick", (e) => {
      const md = e.target instanceof Element ? e.target.closest(".src .md") : null;
      const cell = md?.closest("article");
      if (cell && !(e.target as Element).closest("a")) void this.edit(this.id(cell), "start");
    });
    byId("cells")!.addEventListener("focusin", (e) => {
      const cell = e.target instanceof Element ? e.target.closest("article") : null;
      if (!cell) return;
      if (this.id(cell) !== this.sel) this.select(this.id(cell), false);
      cell.classList.toggle("editing", !!(e.target as Element).closest(".editor"));
    });
    byId("title")!.addEventListener("click", () => this.rename());
    const first = this.list()[0];
    if (first) {
      this.sel = this.id(first);
      first.tabIndex = 0;
    }
  }

  private clicked(e: MouseEvent): void {
    const at = e.target instanceof Element ? e.target : null;
    if (!at) return;
    const button = at.closest<HTMLElement>("[data-act]");
    if (button && !at.closest(foreign)) {
      const cell = button.closest("article");
      if (cell) this.select(this.id(cell), false);
      if (button instanceof HTMLAnchorElement) e.preventDefault();
      if (button.closest("#cell-menu")) byId("cell-menu")?.hidePopover();
      this.act(button.dataset["act"]!, button);
      return;
    }
    const source = at.closest("pre.source");
    const cell = source?.closest("article");
    if (cell && getSelection()?.isCollapsed !== false) void this.edit(this.id(cell), { x: e.clientX, y: e.clientY });
  }
}
