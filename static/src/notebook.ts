// The notebook page: what the server rendered, made live.
import { Cells } from "./cells";
import { Connection, type Patch, type Status } from "./conn";
import { all, byId, h, wholePage } from "./dom";
import { Editing } from "./editing";
import { frames, startFrames } from "./frames";
import { startKeys } from "./keys";
import { math } from "./math";
import { apply, refresh } from "./patch";
import { noVariables, remember, usage, variables } from "./rail";
import { pageGrew, startScroll } from "./scroll";
import { localTimes, shared, toast } from "./ui";
import { duration, t } from "./words";

const root = byId("cells")!;
const readonly = root.dataset["readonly"] !== undefined;
let conn: Connection;

const editing = new Editing(() => conn, {
  run: (cell, how) => cells.run(cell, how),
  split: (cell, at) => cells.splitAt(cell, at),
  leave: (cell) => cells.leave(cell),
  step: (cell, direction) => cells.step(cell, direction),
}, readonly);
const cells = new Cells(() => conn, editing, readonly);

// ---- time that runs ----

const since = new WeakMap<Element, number>();

function tick(): void {
  for (const el of all(".elapsed")) {
    let start = since.get(el);
    if (start === undefined) since.set(el, start = performance.now() - Number(el.dataset["elapsed"] ?? 0));
    const text = duration(performance.now() - start);
    if (el.textContent !== text) el.textContent = text;
  }
  for (const el of all("[data-up]")) {
    const ms = Math.max(1000, Date.now() - Number(el.dataset["up"]));
    // Seconds for the first minute, then minutes.
    const text = ms < 60_000 ? t("%s s", Math.floor(ms / 1000)) : ms < 3_600_000 ? t("%d min", Math.floor(ms / 60_000)) : duration(ms);
    if (el.textContent !== text) el.textContent = text;
  }
}

// What scrolls can be scrolled with keys, once it is near the window.
const scrollers = new IntersectionObserver((entries) => {
  for (const e of entries) {
    const el = e.target as HTMLElement;
    if (!e.isIntersecting) continue;
    if (el.scrollWidth > el.clientWidth || el.scrollHeight > el.clientHeight) el.tabIndex = 0;
    else el.removeAttribute("tabindex");
  }
}, { rootMargin: "1500px" });
const watched = new WeakSet<Element>();

function watchScrollers(): void {
  for (const el of all("pre.source, .traceback pre, .output-html, .text.long, .md pre, .math.display")) {
    if (watched.has(el)) continue;
    watched.add(el);
    scrollers.observe(el);
  }
}

// ---- patches ----

let buffered: Patch[] | null = null; // while the page is fetched again
let busy = !!document.querySelector("#actions [data-act=interrupt]");

function settle(order: boolean): void {
  localTimes();
  frames();
  math();
  remember();
  watchScrollers();
  tick();
  if (order) editing.relabel();
  cells.settled(order);
  const now = !!document.querySelector("#actions [data-act=interrupt]");
  if (busy && !now) variables(conn);
  if (byId("rail-kernel")?.hidden) noVariables();
  busy = now;
  const stop = document.querySelector<HTMLButtonElement>("#thumb [data-act=interrupt]");
  if (stop) stop.disabled = !now;
}

function patched(patches: Patch[], notice: string): void {
  if (notice) byId("live")!.textContent = notice;
  if (buffered) {
    buffered.push(...patches);
    return;
  }
  if (patches.length === 0) return;
  const order = apply(patches, editing, (n) => t("waits, number %d in line", n));
  if (order || patches.some((p) => p.op !== "lines" && p.op !== "queue")) settle(order);
  pageGrew();
}

async function reload(): Promise<void> {
  buffered ??= [];
  const r = await fetch(location.pathname, { headers: { accept: "text/html" } });
  if (!r.ok) throw new Error(String(r.status));
  const page = wholePage(await r.text());
  const late = buffered ?? [];
  buffered = null;
  refresh(page, editing);
  apply(late, editing, (n) => t("waits, number %d in line", n));
  settle(true);
}

// ---- the state of the connection ----

let lost = 0;

function status(s: Status): void {
  const el = byId("offline")!;
  document.documentElement.dataset["connection"] = s;
  if (s === "open") {
    if (!el.hidden) byId("live")!.textContent = t("Connected again. Nothing was lost.");
    clearTimeout(lost);
    lost = 0;
    el.hidden = true;
    variables(conn, 600);
    editing.restore();
  } else if (s === "expired") {
    el.replaceChildren(h("span", {}, t("The sign-in has run out. Sign in again; your text is kept in this tab.")), h("a", { class: "button", href: "/login?next=" + encodeURIComponent(location.pathname) }, t("Sign in")));
    el.hidden = false;
  } else if (s === "waiting" && !lost) {
    // A blink is not worth a word.
    lost = window.setTimeout(() => {
      el.replaceChildren(h("span", {}, t("Reconnecting — nothing is lost.")));
      el.hidden = false;
    }, 700);
  }
}

let told = false;

function build(server: string): void {
  if (told || !server || server === root.dataset["build"]) return;
  told = true;
  toast(t("The server has been updated. Reload when it suits you; nothing is lost."), { label: t("Reload"), run: () => location.reload() }, 0);
}

// ---- input() of the code ----

document.addEventListener("submit", (e) => {
  const form = e.target instanceof HTMLFormElement && e.target.id === "input" ? e.target : null;
  if (!form) return;
  e.preventDefault();
  const field = form.querySelector<HTMLInputElement>("input")!;
  const button = form.querySelector("button")!;
  button.disabled = true;
  conn.op("input.reply", { run: form.dataset["run"], value: field.value }).catch((err: Error) => {
    button.disabled = false;
    toast(err.message);
  });
});

shared();
startFrames();
math();
tick();
setInterval(tick, 200);
startScroll();
if (matchMedia("(max-width: 1100px)").matches) document.querySelector<HTMLDetailsElement>(".rail-fold")!.open = false;
conn = new Connection(root.dataset["notebook"]!, Number(root.dataset["seq"]), { patch: patched, reload, usage, status, build });
cells.start();
startKeys(cells, readonly);
settle(false);
