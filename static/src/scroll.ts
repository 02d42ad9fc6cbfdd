// Staying at the end of what grows, and only for who is there. Whether somebody
// is there is noted when they scroll, so that growing costs no layout.
import { all } from "./dom";

const away = new WeakSet<Element>(); // boxes scrolled up by a person
const due = new Set<Element>();
let pageAtEnd = false, pageDue = false, frame = 0;

const atEnd = (el: Element): boolean => el.scrollHeight - el.clientHeight - el.scrollTop < 12;

export const isAway = (box: Element): boolean => away.has(box);

/** keepAway carries over that somebody reads further up in a box. */
export function keepAway(box: Element, top: number): void {
  away.add(box);
  box.scrollTop = top;
}

function act(): void {
  frame = 0;
  for (const box of due) if (box.isConnected && !away.has(box)) box.scrollTop = 1e9;
  due.clear();
  if (pageDue && pageAtEnd) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  pageDue = false;
}

const soon = (): void => { frame ||= requestAnimationFrame(act); };

/** grew says that a box has more in it. */
export function grew(box: Element): void {
  due.add(box);
  soon();
}

/** pageGrew says that the page may be longer. */
export function pageGrew(): void {
  if (!pageAtEnd) return;
  pageDue = true;
  soon();
}

export function startScroll(): void {
  document.addEventListener("scroll", (e) => {
    const el = e.target;
    if (el === document) {
      const root = document.documentElement;
      pageAtEnd = root.scrollHeight > innerHeight + 200 && root.scrollHeight - innerHeight - scrollY < 12;
    } else if (el instanceof Element && el.matches(".text.long")) {
      if (atEnd(el)) away.delete(el);
      else if (!due.has(el)) away.add(el);
    }
  }, { capture: true, passive: true });
  for (const el of all(".text.long")) if (el.closest("article")?.querySelector(".elapsed")) grew(el);
}
