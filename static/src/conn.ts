// The connection to the notebook. It comes back by itself, sends again what was
// not answered, and says what state it is in.

export interface Patch {
  op: "replace" | "append" | "insert" | "move" | "remove" | "cell" | "source" | "lines" | "queue" | "page";
  target?: string;
  after?: string;
  html?: string;
  text?: string;
  version?: number;
  source?: string;
  first?: number;
  at?: number;
}

export interface Usage { procs: number; memory: number; cpu_ms: number }

interface Message {
  hello?: { seq: number; server: string; resumed: boolean };
  reload?: boolean;
  seq?: number;
  patch?: Patch[] | null;
  notice?: string;
  id?: number | null;
  ok?: unknown;
  error?: { code: string; message: string; data?: unknown };
  usage?: Usage;
  ping?: number;
}

/** OpError is the server's no, with its reason as a sentence. */
export class OpError extends Error {
  constructor(readonly code: string, message: string, readonly data?: unknown) { super(message); }
}

export type Status = "connecting" | "open" | "waiting" | "expired";

export interface Handlers {
  patch(patches: Patch[], notice: string): void;
  reload(): Promise<void>;
  usage(u: Usage): void;
  status(s: Status): void;
  build(server: string): void;
}

interface Waiting {
  body: string;
  resend: boolean; // ops are; questions are not
  resolve(v: unknown): void;
  reject(e: Error): void;
}

const firstDelay = 250, maxDelay = 8000, silence = 50_000;

export class Connection {
  private ws?: WebSocket;
  private seq: number;
  private next = 1;
  private readonly waiting = new Map<number, Waiting>();
  private delay = firstDelay;
  private failures = 0;
  private heard = 0;
  private stale = false; // the page is being fetched again; seq stays behind until it is here
  private latest = 0;
  private timer = 0;

  constructor(private readonly notebook: string, seq: number, private readonly on: Handlers) {
    this.seq = seq;
    addEventListener("online", () => this.hurry());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.hurry(); });
    setInterval(() => this.check(), 5000);
    this.connect();
  }

  /** op asks for a change. It is sent again after a break, with the same key, so it happens once. */
  op<T = unknown>(op: string, args: object = {}): Promise<T> {
    return this.send(op, args, true) as Promise<T>;
  }

  /** question asks the kernel; it fails when the connection breaks. */
  question<T = unknown>(op: string, args: object = {}): Promise<T> {
    if (this.ws?.readyState !== WebSocket.OPEN) return Promise.reject(new OpError("unavailable", ""));
    return this.send(op, args, false) as Promise<T>;
  }

  private send(op: string, args: object, resend: boolean): Promise<unknown> {
    const id = this.next++;
    const body = JSON.stringify(resend ? { id, op, args, key: crypto.randomUUID() } : { id, op, args });
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { body, resend, resolve, reject });
      if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(body);
    });
  }

  private connect(): void {
    clearTimeout(this.timer);
    this.on.status("connecting");
    const url = new URL(`/api/v1/notebooks/${encodeURIComponent(this.notebook)}/live`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    url.searchParams.set("view", "page");
    url.searchParams.set("since", String(this.seq));
    const ws = new WebSocket(url, "sandbook.v1");
    this.ws = ws;
    this.heard = Date.now();
    ws.onmessage = (e) => { if (ws === this.ws && typeof e.data === "string") this.receive(JSON.parse(e.data)); };
    ws.onclose = (e) => { if (ws === this.ws) this.closed(e.code); };
  }

  private closed(code: number): void {
    this.ws = undefined;
    for (const [id, w] of this.waiting) {
      if (!w.resend) {
        this.waiting.delete(id);
        w.reject(new OpError("unavailable", ""));
      }
    }
    if (code === 4401) {
      this.on.status("expired");
      return;
    }
    this.on.status("waiting");
    this.failures++;
    if (this.failures % 4 === 2) void this.signedIn();
    this.timer = window.setTimeout(() => this.connect(), this.delay * (0.75 + Math.random() / 2));
    this.delay = Math.min(maxDelay, this.delay * 2);
  }

  // A refused upgrade looks like a broken connection, so the page asks.
  private async signedIn(): Promise<void> {
    try {
      const r = await fetch("/api/v1/status", { headers: { accept: "application/json" } });
      if (r.status === 401 || r.status === 403) {
        clearTimeout(this.timer);
        this.on.status("expired");
      }
    } catch { /* no network: the next try will tell */ }
  }

  private hurry(): void {
    if (!this.ws && this.timer) {
      this.delay = firstDelay;
      this.connect();
    }
  }

  // The server pings every 20 s; a connection that is silent much longer is dead.
  private check(): void {
    if (this.ws && Date.now() - this.heard > silence) {
      const ws = this.ws;
      ws.onclose = null;
      ws.close();
      this.closed(1006);
    }
  }

  private receive(m: Message): void {
    this.heard = Date.now();
    if (m.hello) this.greeted(m.hello);
    if (m.reload) void this.reload();
    if (m.patch || m.notice) this.on.patch(m.patch ?? [], m.notice ?? "");
    if (m.seq) this.reached(m.seq);
    if (m.usage) this.on.usage(m.usage);
    if (m.ping) this.ws?.send(JSON.stringify({ pong: m.ping }));
    if (typeof m.id === "number") this.answered(m.id, m);
  }

  private greeted(hello: { seq: number; server: string; resumed: boolean }): void {
    this.delay = firstDelay;
    this.failures = 0;
    if (hello.resumed) this.reached(hello.seq);
    else this.latest = hello.seq;
    this.on.status("open");
    this.on.build(hello.server);
    for (const w of this.waiting.values()) this.ws?.send(w.body);
  }

  private reached(seq: number): void {
    this.latest = Math.max(this.latest, seq);
    if (!this.stale) this.seq = Math.max(this.seq, this.latest);
  }

  private async reload(): Promise<void> {
    this.stale = true;
    try {
      await this.on.reload();
      this.stale = false;
      this.reached(this.latest);
    } catch {
      this.ws?.close(); // try again from where the page is
    }
  }

  private answered(id: number, m: Message): void {
    const w = this.waiting.get(id);
    if (!w) return;
    this.waiting.delete(id);
    if (m.error) w.reject(new OpError(m.error.code, m.error.message, m.error.data));
    else w.resolve(m.ok);
  }
}
