// The few strings the script says, translated by the server.

let table: Record<string, string> | undefined;

const load = (): Record<string, string> => {
  const el = document.getElementById("words");
  try {
    return el?.textContent ? JSON.parse(el.textContent) : {};
  } catch {
    return {};
  }
};

/** t gives a string in the page's language; %d and %s are filled in order. */
export function t(en: string, ...args: (string | number)[]): string {
  table ??= load();
  let s = Object.hasOwn(table, en) ? table[en]! : en;
  for (const a of args) s = s.replace(/%[ds]/, () => String(a));
  return s;
}

/** duration says how long something takes, as the server does. */
export function duration(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 0.1) return t("%d ms", Math.round(s * 1000));
  if (s < 60) return t("%s s", s.toFixed(1));
  if (s < 3600) return t("%d min %d s", Math.floor(s / 60), Math.floor(s) % 60);
  return t("%d h %d min", Math.floor(s / 3600), Math.floor(s / 60) % 60);
}
