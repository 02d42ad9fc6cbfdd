// KaTeX, with everything off that could lead out of a formula.
import katex from "katex";

export function set(el: HTMLElement, tex: string, display: boolean): void {
  katex.render(tex, el, { displayMode: display, throwOnError: false, trust: false, maxExpand: 500, maxSize: 30, strict: "ignore", errorColor: "var(--bad)" });
}
