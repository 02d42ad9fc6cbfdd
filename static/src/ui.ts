// Toasts, questions, menus, the theme: what every page shares.
import { all, byId, h } from "./dom";
import { t } from "./words";

export function toast(text: string, action?: { label: string; run: () => void }, ms = 6000): void {
  const box = byId("toasts");
  if (!box) return;
  const el = h("div", { class: "toast", "data-testid": "toast" }, h("span", {}, text));
  const close = () => el.remove();
  if (action) {
    el.append(h("button", { type: "button", click: () => { close(); action.run(); } }, action.label));
  }
  box.append(el);
  while (box.children.length > 3) box.firstElementChild!.remove();
  if (ms > 0) setTimeout(close, ms);
}

/** ask shows a question; it resolves to the chosen value, or "" when closed. */
export function ask(title: string, body: (Node | string)[], choices: { label: string; value: string; primary?: boolean }[]): Promise<string> {
  return new Promise((resolve) => {
    const id = "ask-" + Math.random().toString(36).slice(2);
    const dialog = h("dialog", { "aria-labelledby": id, "data-testid": "dialog" }, h("h2", { id }, title), ...body);
    let answer = "";
    const acts = h("div", { class: "dialog-acts" });
    for (const c of choices) {
      acts.append(h("button", { type: "button", class: c.primary ? "primary" : "", "data-value": c.value, click: () => { answer = c.value; dialog.close(); } }, c.label));
    }
    dialog.append(acts);
    dialog.addEventListener("close", () => { dialog.remove(); resolve(answer); });
    document.body.append(dialog);
    dialog.showModal();
    acts.querySelector<HTMLElement>(".primary")?.focus();
  });
}

export const dark = (): boolean => {
  const set = document.documentElement.dataset["theme"];
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const themeWatchers: (() => void)[] = [];
export const onTheme = (f: () => void): void => { themeWatchers.push(f); };

function setTheme(theme: string): void {
  if (theme) document.documentElement.dataset["theme"] = theme;
  else delete document.documentElement.dataset["theme"];
  document.cookie = `theme=${theme}; path=/; max-age=${theme ? 31536000 : 0}; samesite=lax`;
  for (const b of all("[data-set-theme]")) b.setAttribute("aria-pressed", String(b.dataset["setTheme"] === theme));
  for (const f of themeWatchers) f();
}

/** closeMenus closes what is open, but not the menu that keep is in. */
export function closeMenus(keep?: Element | null): void {
  for (const d of all<HTMLDetailsElement>("details.menu[open]")) if (!keep || !d.contains(keep)) d.open = false;
}

/** localTimes shows clock times in the reader's own zone. */
export function localTimes(root: ParentNode = document): void {
  for (const el of all<HTMLTimeElement>("time[data-clock]", root)) {
    const at = new Date(el.dateTime);
    if (!Number.isNaN(at.getTime())) {
      el.textContent = at.toLocaleTimeString(document.documentElement.lang, { hour: "2-digit", minute: "2-digit", hour12: false });
      el.title = at.toLocaleString(document.documentElement.lang);
    }
  }
}

export function shared(): void {
  document.addEventListener("click", (e) => {
    const el = e.target instanceof Element ? e.target : null;
    const theme = el?.closest<HTMLElement>("[data-set-theme]");
    if (theme) setTheme(theme.dataset["setTheme"] ?? "");
    closeMenus(el);
    if (el?.closest(".menu-panel .menu-item") && !el.closest("form")) closeMenus();
  });
  document.addEventListener("keydown", (e) => {
    const open = document.querySelector<HTMLDetailsElement>("details.menu[open]");
    if (e.key === "Escape" && open) {
      open.open = false;
      open.querySelector("summary")?.focus();
      e.preventDefault();
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const f of themeWatchers) f(); });
  const lang = new URLSearchParams(location.search).get("lang");
  if (lang === "en" || lang === "zh") {
    document.cookie = `lang=${lang}; path=/; max-age=31536000; samesite=lax`;
    const url = new URL(location.href);
    url.searchParams.delete("lang");
    history.replaceState(null, "", url);
  }
  localTimes();
}

export function copyText(text: string): void {
  void navigator.clipboard?.writeText(text).then(() => toast(t("Copied."), undefined, 2000));
}
