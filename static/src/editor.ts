// The editor: CodeMirror with what a cell needs. Loaded when first used.
import { autocompletion, closeBrackets, closeCompletion, closeBracketsKeymap, completionKeymap, startCompletion, acceptCompletion, completionStatus, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
import { pythonLanguage } from "@codemirror/lang-python";
import { bracketMatching, defineLanguageFacet, indentOnInput, indentUnit, Language, LanguageSupport, syntaxHighlighting } from "@codemirror/language";
import { Annotation, EditorState, Prec, StateEffect, StateField, Transaction, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightSpecialChars, keymap, showTooltip, tooltips, type Tooltip } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import { GFM, parser as markdownParser } from "@lezer/markdown";

export interface Answer { matches?: string[]; cursor_start?: number; cursor_end?: number; metadata?: { _jupyter_types_experimental?: { text: string; type?: string; signature?: string }[] } }

export interface Hooks {
  label: string;
  kind: string;
  changed(text: string): void;
  run(how: "next" | "stay" | "insert"): void;
  leave(): void;
  blurred(): void;
  split(at: number): void;
  beyond(direction: -1 | 1): void;
  complete(code: string, pos: number): Promise<Answer | null>;
  inspect(code: string, pos: number): Promise<string>;
}

/** Editor is one mounted editor. */
export interface Editor {
  dom: HTMLElement;
  text(): string;
  /** set changes the text from outside, keeping cursor and scroll. */
  set(text: string): void;
  focus(where?: "start" | "end" | { x: number; y: number }): void;
  focused(): boolean;
  cursor(): number;
  label(name: string): void;
  destroy(): void;
}

const outside = Annotation.define<boolean>();

const markdown = (): LanguageSupport => {
  const data = defineLanguageFacet({});
  return new LanguageSupport(new Language(data, markdownParser.configure(GFM), [], "markdown"));
};

// Offsets of the kernel count characters; those of the editor count UTF-16 units.
const points = (s: string): number => Array.from(s).length;
const units = (s: string, n: number): number => Array.from(s).slice(0, n).join("").length;

const source = (hooks: Hooks) => async (c: CompletionContext): Promise<CompletionResult | null> => {
  const before = c.matchBefore(/[\w.%!/"'[\]-]+/);
  if (!c.explicit && (!before || before.text.length < 2)) return null;
  if (!c.explicit && !/[\w.]$/.test(before!.text)) return null;
  const code = c.state.doc.toString();
  const a = await hooks.complete(code, points(code.slice(0, c.pos)));
  if (!a?.matches?.length || c.aborted) return null;
  const types = new Map((a.metadata?._jupyter_types_experimental ?? []).map((x) => [x.text, x]));
  return {
    from: units(code, a.cursor_start ?? points(code.slice(0, c.pos))),
    to: units(code, a.cursor_end ?? points(code.slice(0, c.pos))),
    options: a.matches.slice(0, 300).map((label) => ({ label, type: types.get(label)?.type?.replace("instance", "variable"), detail: types.get(label)?.signature })),
    validFor: /^\w*$/,
  };
};

const setTip = StateEffect.define<Tooltip | null>();
const tip = StateField.define<Tooltip | null>({
  create: () => null,
  update(value, tr) {
    for (const e of tr.effects) if (e.is(setTip)) return e.value;
    return tr.docChanged || tr.selection ? null : value;
  },
  provide: (f) => showTooltip.from(f),
});

const inspect = (hooks: Hooks) => (view: EditorView): boolean => {
  const { state } = view;
  const pos = state.selection.main.head;
  if (!state.selection.main.empty || !/[\w.(,]$/.test(state.doc.lineAt(pos).text.slice(0, pos - state.doc.lineAt(pos).from))) return indentLess(view);
  const code = state.doc.toString();
  void hooks.inspect(code, points(code.slice(0, pos))).then((text) => {
    if (!text || !view.dom.isConnected) return;
    view.dispatch({ effects: setTip.of({ pos, above: true, create: () => {
      const dom = document.createElement("pre");
      dom.className = "cm-inspect";
      dom.textContent = text;
      return { dom };
    } }) });
  });
  return true;
};

const tab = (view: EditorView): boolean => {
  if (completionStatus(view.state) === "active") return acceptCompletion(view);
  const { main } = view.state.selection;
  const line = view.state.doc.lineAt(main.head);
  if (main.empty && /[\w.]$/.test(line.text.slice(0, main.head - line.from))) return startCompletion(view);
  return indentMore(view);
};

// beyond leaves the text upwards or downwards when the cursor can go no further.
const beyond = (v: EditorView, hooks: Hooks, direction: -1 | 1): boolean => {
  const { main } = v.state.selection;
  const edge = direction < 0 ? 0 : v.state.doc.length;
  const line = v.state.doc.lineAt(main.head).number;
  if (completionStatus(v.state) || !main.empty || line !== (direction < 0 ? 1 : v.state.doc.lines)) return false;
  if (v.moveVertically(main, direction > 0).head !== edge) return false;
  hooks.beyond(direction);
  return true;
};

const run = (hooks: Hooks, how: "next" | "stay" | "insert") => (v: EditorView): boolean => {
  closeCompletion(v);
  hooks.run(how);
  return true;
};

const keys = (hooks: Hooks): Extension => Prec.highest(keymap.of([
  { key: "Shift-Enter", run: run(hooks, "next") },
  { key: "Mod-Enter", run: run(hooks, "stay") },
  { key: "Ctrl-Enter", run: run(hooks, "stay") },
  { key: "Alt-Enter", run: run(hooks, "insert") },
  { key: "Ctrl-Shift-Minus", run: (v) => { hooks.split(points(v.state.sliceDoc(0, v.state.selection.main.head))); return true; } },
  { key: "Ctrl-_", run: (v) => { hooks.split(points(v.state.sliceDoc(0, v.state.selection.main.head))); return true; } },
  { key: "Escape", run: (v) => {
    if (completionStatus(v.state) === "active") return false; // close the list first
    if (v.state.field(tip, false)) { v.dispatch({ effects: setTip.of(null) }); return true; }
    hooks.leave();
    return true;
  } },
  { key: "ArrowUp", run: (v) => beyond(v, hooks, -1) },
  { key: "ArrowDown", run: (v) => beyond(v, hooks, 1) },
  { key: "Tab", run: tab, shift: inspect(hooks) },
]));

const look = EditorView.theme({
  "&": { fontSize: "13px", backgroundColor: "transparent" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", fontVariantLigatures: "none" },
  ".cm-content": { padding: "12px 0", caretColor: "var(--text)", minHeight: "45px" },
  ".cm-line": { padding: "0 16px" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--text)", borderLeftWidth: "1.5px" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "light-dark(#d5dbfb, #38406f)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--ok-bg)", outline: "1px solid var(--line)" },
  ".cm-specialChar": { color: "var(--wait)", backgroundColor: "var(--wait-bg)" },
  ".cm-tooltip": { border: "1px solid var(--line)", borderRadius: "8px", backgroundColor: "var(--surface)", color: "var(--text)", boxShadow: "var(--shadow)", overflow: "hidden" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "13px", maxHeight: "16em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", opacity: ".8" },
  ".cm-inspect": { margin: "0", padding: "10px 14px", maxWidth: "min(80ch, 90vw)", maxHeight: "320px", overflow: "auto", whiteSpace: "pre-wrap", fontSize: "12.5px" },
});

/** mount makes an editor in host. */
export function mount(host: HTMLElement, doc: string, hooks: Hooks): Editor {
  const python = hooks.kind === "code";
  const named = (name: string): Extension => EditorView.contentAttributes.of({ "aria-label": name, spellcheck: python ? "false" : "true", autocorrect: "off", autocapitalize: python ? "off" : "sentences", "data-testid": "editor" });
  const view = new EditorView({
    parent: host,
    state: EditorState.create({
      doc,
      extensions: [
        keys(hooks), look, named(hooks.label),
        history(), drawSelection(), highlightSpecialChars(), EditorState.allowMultipleSelections.of(true), EditorState.lineSeparator.of("\n"),
        indentUnit.of("    "), EditorState.tabSize.of(4), syntaxHighlighting(classHighlighter),
        python ? [new LanguageSupport(pythonLanguage), indentOnInput(), bracketMatching(), closeBrackets(), autocompletion({ override: [source(hooks)], icons: false, activateOnTypingDelay: 150 }), tip] : hooks.kind === "markdown" ? markdown() : [],
        python ? [] : EditorView.lineWrapping,
        tooltips({ parent: document.body, position: "fixed" }),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        EditorView.updateListener.of((u) => {
          if (u.docChanged && !u.transactions.every((tr) => tr.annotation(outside))) hooks.changed(u.state.doc.toString());
          if (u.focusChanged && !u.view.hasFocus) hooks.blurred();
        }),
      ],
    }),
  });
  return {
    dom: view.dom,
    text: () => view.state.doc.toString(),
    set(text) {
      const old = view.state.doc.toString();
      if (old === text) return;
      let from = 0, end = 0;
      while (from < Math.min(old.length, text.length) && old[from] === text[from]) from++;
      while (end < Math.min(old.length, text.length) - from && old[old.length - 1 - end] === text[text.length - 1 - end]) end++;
      view.dispatch({ changes: { from, to: old.length - end, insert: text.slice(from, text.length - end) }, annotations: [outside.of(true), Transaction.addToHistory.of(false)] });
    },
    focus(where) {
      view.focus();
      if (where === "start") view.dispatch({ selection: { anchor: 0 } });
      else if (where === "end") view.dispatch({ selection: { anchor: view.state.doc.length } });
      else if (where) {
        const pos = view.posAtCoords(where, false);
        view.dispatch({ selection: { anchor: pos } });
      }
    },
    focused: () => view.hasFocus,
    cursor: () => points(view.state.sliceDoc(0, view.state.selection.main.head)),
    label: (name) => view.contentDOM.setAttribute("aria-label", name),
    destroy: () => view.destroy(),
  };
}
