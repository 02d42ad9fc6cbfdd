// Looking into the page, and the one way markup gets into it.
import DOMPurify from "dompurify";

export const byId = (id: string): HTMLElement | null => document.getElementById(id);

export const all = <T extends Element = HTMLElement>(sel: string, root: ParentNode = document): T[] =>
  Array.from(root.querySelectorAll<T>(sel));

/**
 * markup turns HTML of the server into nodes. It is cleaned once more here, and
 * what was cleaned is what is inserted: nothing is parsed a second time. No
 * other code of ours hands a string to a parser.
 */
export function markup(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, { RETURN_DOM_FRAGMENT: true, ADD_ATTR: ["spellcheck"], FORBID_TAGS: ["style"], FORBID_ATTR: ["style"] });
}

/** wholePage is markup for a page that was fetched. */
export function wholePage(html: string): ParentNode {
  return DOMPurify.sanitize(html, { RETURN_DOM: true, WHOLE_DOCUMENT: true, FORBID_TAGS: ["style"], FORBID_ATTR: ["style"] }) as unknown as ParentNode;
}

type Child = Node | string | null | false | undefined;

/** h makes an element. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attrs: Record<string, string | boolean | (() => void)> = {}, ...kids: Child[]): HTMLElementTagNameMap[K] {
  const el = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) {
    if (typeof v === "function") el.addEventListener(k, v);
    else if (v === true) el.setAttribute(k, "");
    else if (v !== false) el.setAttribute(k, v);
  }
  for (const kid of kids) if (kid) el.append(kid);
  return el;
}
