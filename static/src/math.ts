// Formulas: marked by the server, set here when there are some.
import { all, byId, h } from "./dom";

let loading: Promise<typeof import("./katex")> | undefined;

export function math(root: ParentNode = document): void {
  const spans = all(".math:not(.set)", root);
  if (spans.length === 0) return;
  if (!loading) {
    const css = byId("cells")?.dataset["math"];
    if (css) document.head.append(h("link", { rel: "stylesheet", href: css }));
    loading = import("./katex");
  }
  void loading.then(({ set }) => {
    for (const el of spans) {
      if (el.classList.contains("set")) continue;
      set(el, el.textContent ?? "", el.classList.contains("display"));
      el.classList.add("set");
    }
  }, () => { loading = undefined; });
}
