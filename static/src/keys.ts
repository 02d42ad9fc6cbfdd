// Command mode: the keys Jupyter's users have in their fingers.
import type { Cells } from "./cells";
import { byId } from "./dom";

// Names of actions by key. A pair is two keys within a second.
const keys: Record<string, string> = {
  "a": "add-above", "b": "add-below", "m": "to-text", "y": "to-code", "r": "to-raw", "z": "restore",
  "x": "cut", "c": "copy", "v": "paste", "M": "merge", "h": "shortcuts",
};
const pairs: Record<string, string> = { "dd": "delete", "ii": "interrupt", "00": "restart" };

const typing = (el: Element | null): boolean =>
  !!el && (el.matches("input, textarea, select") || !!el.closest("[contenteditable=true], .cm-editor, dialog, .menu-panel"));

export function startKeys(cells: Cells, readonly: boolean): void {
  let last = "", when = 0;
  document.addEventListener("keydown", (e) => {
    const at = e.target instanceof Element ? e.target : null;
    if (e.defaultPrevented || e.isComposing || typing(at) || document.querySelector("dialog[open]")) return;
    if (e.key === "Enter" && (e.shiftKey || e.ctrlKey || e.metaKey || e.altKey)) {
      if (readonly) return;
      e.preventDefault();
      cells.act(e.shiftKey ? "run-next" : e.altKey ? "run-insert" : "run");
      return;
    }
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const control = at?.closest("button, summary, a[href]");
    if ((e.key === "Enter" || e.key === " ") && control) return;
    const arrow = e.key === "ArrowDown" || e.key === "ArrowUp";
    if (arrow && (!at?.closest("#cells") || at.closest(".text.long, .source")) && at !== document.body) return;
    const pair = last + e.key;
    const fresh = Date.now() - when < 1000;
    last = e.key;
    when = Date.now();
    const act = fresh && pairs[pair] ? pairs[pair]! : keys[e.key];
    if (e.key === "Enter") void cells.edit(cells.selected, undefined);
    else if (e.key === "j" || e.key === "ArrowDown") cells.move(1);
    else if (e.key === "k" || e.key === "ArrowUp") cells.move(-1);
    else if (act && (!readonly || act === "shortcuts" || act === "copy")) {
      cells.act(act);
      last = "";
    } else return;
    e.preventDefault();
  });
  byId("shortcuts")?.addEventListener("click", (e) => { if (e.target === e.currentTarget) (e.currentTarget as HTMLDialogElement).close(); });
}
