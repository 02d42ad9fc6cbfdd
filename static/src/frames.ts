// Active outputs: each in a frame of another origin, sandboxed, drawn when it
// comes near the window. Whatever a frame says is hostile.
import { all, byId, h } from "./dom";
import { ask, dark, onTheme } from "./ui";
import { t } from "./words";

const maxLive = 20, maxAsked = 5, maxHeight = 20_000, maxText = 32 << 20;

interface Live { frame: HTMLIFrameElement; port: MessagePort }

const live = new Map<HTMLElement, Live>();
let origin = "";

const watcher = new IntersectionObserver((entries) => {
  for (const e of entries) if (e.isIntersecting && e.target instanceof HTMLElement) void show(e.target);
}, { rootMargin: "500px" });

function stop(box: HTMLElement): void {
  const l = live.get(box);
  if (!l) return;
  live.delete(box);
  l.port.close();
  l.frame.remove();
  box.classList.remove("drawn");
}

// makeRoom takes the frame down that is farthest from the window.
function makeRoom(): void {
  for (const box of live.keys()) if (!box.isConnected) stop(box);
  if (live.size < maxLive) return;
  const distance = (box: HTMLElement) => Math.abs(box.getBoundingClientRect().top - innerHeight / 2);
  const far = [...live.keys()].sort((a, b) => distance(b) - distance(a))[0];
  if (far) stop(far);
}

async function content(box: HTMLElement): Promise<string> {
  const blob = box.dataset["blob"];
  if (!blob) return String(JSON.parse(box.dataset["text"] ?? '""'));
  const url = new URL(blob, location.href);
  if (url.origin !== location.origin) throw new Error("foreign");
  const r = await fetch(url);
  if (!r.ok || Number(r.headers.get("content-length") ?? 0) > maxText) throw new Error(String(r.status));
  return r.text();
}

async function show(box: HTMLElement): Promise<void> {
  if (live.has(box) || box.dataset["failed"] !== undefined || !origin) return;
  makeRoom();
  const { port1: port, port2 } = new MessageChannel();
  const frame = h("iframe", {
    sandbox: "allow-scripts allow-downloads", src: origin + "/v1", title: box.dataset["title"] || t("Interactive output"),
    referrerpolicy: "no-referrer", loading: "eager", "data-testid": "frame",
  });
  frame.height = "0";
  live.set(box, { frame, port });
  // The frame has no origin to address; the port goes to it once, and only our
  // frame page can be there: the policy of this page allows no other.
  let loads = 0;
  frame.addEventListener("load", () => {
    if (loads++ === 0) frame.contentWindow?.postMessage({ type: "sandbook.port" }, "*", [port2]);
    else if (live.get(box)?.frame === frame) failed(box, t("it left its frame for another address"));
  });
  port.onmessage = (e) => void heard(box, e.data);
  box.append(frame);
}

function failed(box: HTMLElement, why: string): void {
  stop(box);
  box.dataset["failed"] = "";
  box.after(h("p", { class: "note" }, t("This figure could not be drawn: %s", why.slice(0, 300))));
}

// follow asks before it opens what an output links to: the address may carry
// what the output knows, and an output can make a click look like another.
let asking = false;

async function follow(box: HTMLElement, href: string): Promise<void> {
  const asked = Number(box.dataset["asked"] ?? 0);
  let url: URL;
  try { url = new URL(href); } catch { return; }
  if (asking || asked >= maxAsked || !["http:", "https:", "mailto:"].includes(url.protocol)) return;
  box.dataset["asked"] = String(asked + 1);
  asking = true;
  const shown = url.href.length > 300 ? url.href.slice(0, 300) + "…" : url.href;
  const answer = await ask(t("Open a link of this output?"), [h("p", {}, t("Its address may tell %s what the code knows.", url.host || url.protocol)), h("p", { class: "address" }, shown)],
    [{ label: t("Open"), value: "open" }, { label: t("Cancel"), value: "", primary: true }]);
  asking = false;
  if (answer === "open") open(url.href, "_blank", "noopener,noreferrer");
}

async function heard(box: HTMLElement, m: unknown): Promise<void> {
  const l = live.get(box);
  if (!l || typeof m !== "object" || m === null) return;
  const { type, height, message, href } = m as { type?: unknown; height?: unknown; message?: unknown; href?: unknown };
  switch (type) {
    case "ready":
      try {
        l.port.postMessage({ type: "render", mime: box.dataset["mime"] ?? "", text: await content(box), theme: dark() ? "dark" : "light" });
      } catch (e) {
        failed(box, String(e));
      }
      break;
    case "size":
      if (typeof height === "number" && Number.isFinite(height)) l.frame.height = String(Math.min(maxHeight, Math.max(0, Math.ceil(height))));
      break;
    case "link":
      if (typeof href === "string") void follow(box, href);
      break;
    case "drawn":
      box.classList.add("drawn");
      break;
    case "error":
      box.dataset["error"] = typeof message === "string" ? message.slice(0, 300) : "";
      break;
    case "failed":
      failed(box, box.dataset["error"] ?? "");
  }
}

/** frames looks for active outputs that are new on the page. */
export function frames(root: ParentNode = document): void {
  for (const box of all(".active", root)) watcher.observe(box);
  for (const box of live.keys()) if (!box.isConnected) stop(box);
}

export function startFrames(): void {
  origin = byId("cells")?.dataset["frame"] ?? "";
  onTheme(() => { for (const l of live.values()) l.port.postMessage({ type: "theme", theme: dark() ? "dark" : "light" }); });
  frames();
}
