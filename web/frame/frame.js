// The page that draws one active output. Its parent hands over one message port
// and, through it, what to draw. To the port come: ready, size, drawn, error.
"use strict";
(() => {
  const config = JSON.parse(document.getElementById("config").textContent);
  const out = document.getElementById("out");
  const maxHeight = 20000;
  let port = null;
  let errors = 0;

  const tell = (message) => { if (port) port.postMessage(message); };

  // fail reports what went wrong, in a sentence and not too often.
  const fail = (what) => {
    if (errors++ < 20) tell({ type: "error", message: String(what).slice(0, 500) });
  };

  addEventListener("error", (e) => fail(e.message || "This output has an error."));
  addEventListener("unhandledrejection", (e) => fail((e.reason && e.reason.message) || e.reason || "This output has an error."));
  document.addEventListener("securitypolicyviolation", (e) => {
    let host = e.blockedURI;
    try { host = new URL(e.blockedURI).host || host; } catch { /* "inline" and the like */ }
    fail("This output wanted to load something from " + host + ", which outputs may not do here.");
  });

  // What can reach a network past the policy of this page is taken away before
  // anything is drawn: browsers that do not know "webrtc 'block'" would let it
  // send what the output knows. A frame inside this one would bring it back, so
  // none is made, in whatever way it is asked for: as an element, or as markup,
  // which all passes here because the page's policy requires trusted types.
  for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "RTCIceTransport", "RTCDtlsTransport", "RTCSctpTransport", "WebTransport"]) {
    delete window[name];
  }
  const framed = "iframe|frame|frameset|object|embed|fencedframe|portal";
  const isFrame = (name) => new RegExp("^(.*:)?(" + framed + ")$", "is").test(name);
  const markupOfFrame = new RegExp("<(?=/?([^\\s<>/]*:)?(" + framed + ")\\b)|<(?=!ENTITY)", "gi");
  const plain = (html) => String(html).replace(markupOfFrame, "&lt;");
  const { createElement, createElementNS } = Document.prototype;
  const { define } = CustomElementRegistry.prototype;
  Document.prototype.createElement = function (name, options) {
    name = String(name);
    return createElement.call(this, isFrame(name) ? "x-frame" : name, options);
  };
  Document.prototype.createElementNS = function (space, name, options) {
    name = String(name);
    return createElementNS.call(this, space, isFrame(name) ? "x-frame" : name, options);
  };
  CustomElementRegistry.prototype.define = function (name, constructor) { return define.call(this, name, constructor); };
  delete Document.prototype.execCommand;
  let own = { createHTML: (html) => html };
  if (window.trustedTypes) {
    trustedTypes.createPolicy("default", { createHTML: plain, createScript: (text) => text, createScriptURL: (url) => url });
    own = trustedTypes.createPolicy("frame", own);
  }
  const unframe = (fragment) => {
    for (const e of fragment.querySelectorAll("*")) {
      if (isFrame(e.localName)) e.remove();
      else if (e.localName === "template" && e.content) unframe(e.content);
    }
    return fragment;
  };

  // Links open elsewhere, if the person agrees to it; the frame itself stays.
  addEventListener("click", (e) => {
    const a = e.target instanceof Element && e.target.closest("a[href]");
    if (!a || a.getAttribute("href").startsWith("#")) return;
    e.preventDefault();
    if (e.isTrusted) tell({ type: "link", href: String(a.href).slice(0, 4000) });
  }, true);

  // Size: measured on the wrapper, sent when it changed and has settled, and no
  // more than twenty growths a second.
  let begun = false, sent = -1, timer = 0, growths = [];
  const measure = () => {
    timer = 0;
    if (!out.firstChild) return; // nothing is drawn yet
    const height = Math.min(maxHeight, Math.max(0, Math.ceil(out.getBoundingClientRect().height)));
    if (Math.abs(height - sent) <= 1) return;
    const now = Date.now();
    growths = growths.filter((t) => now - t < 1000);
    if (height > sent) {
      if (growths.length >= 20) return;
      growths.push(now);
    }
    sent = height;
    tell({ type: "size", height });
  };
  const settle = () => { if (!timer) timer = setTimeout(measure, 50); };
  new ResizeObserver(settle).observe(out);

  const loaded = new Map();
  const load = (name) => {
    if (!config.assets.includes(name)) {
      return Promise.reject(new Error("The library " + name.replace(/(\.min)?\.js$/, "") +
        " is not installed on this server, so this output is shown as a still picture."));
    }
    if (!loaded.has(name)) {
      loaded.set(name, new Promise((resolve, reject) => {
        const s = document.createElement("script");
        s.src = new URL(config.assetPath + name, location.href).href;
        s.onload = resolve;
        s.onerror = () => reject(new Error("The library " + name + " could not be loaded. Reload the page to try again."));
        document.head.append(s);
      }));
    }
    return loaded.get(name);
  };
  const loadVega = async () => {
    await load("vega.min.js");
    await load("vega-lite.min.js");
    await load("vega-embed.min.js");
  };

  // markup draws HTML or SVG with its scripts, in order.
  const markup = async (text) => {
    if (/\bPlotly\b/.test(text) && config.assets.includes("plotly.min.js") && text.length < 3e6) await load("plotly.min.js");
    if (/\bvegaEmbed\b/.test(text) && config.assets.includes("vega-embed.min.js")) await loadVega();
    const range = document.createRange();
    range.selectNodeContents(out);
    out.append(unframe(range.createContextualFragment(own.createHTML(text))));
    document.dispatchEvent(new Event("DOMContentLoaded"));
    dispatchEvent(new Event("load"));
  };

  const plotly = async (text, theme) => {
    const figure = JSON.parse(text);
    await load("plotly.min.js");
    const layout = Object.assign({ paper_bgcolor: "rgba(0,0,0,0)", autosize: true }, figure.layout);
    if (theme === "dark" && !(figure.layout && figure.layout.paper_bgcolor)) {
      layout.font = Object.assign({ color: "#ddd" }, layout.font);
      layout.plot_bgcolor = layout.plot_bgcolor || "rgba(0,0,0,0)";
    }
    const box = document.createElement("div");
    out.append(box);
    await Plotly.newPlot(box, figure.data || [], layout, Object.assign({ responsive: true, displaylogo: false }, figure.config));
    if (Array.isArray(figure.frames)) await Plotly.addFrames(box, figure.frames);
  };

  const vega = async (text, mode, theme) => {
    const spec = JSON.parse(text);
    await loadVega();
    const box = document.createElement("div");
    out.append(box);
    await vegaEmbed(box, spec, { mode, renderer: "svg", actions: false, theme: theme === "dark" ? "dark" : undefined,
      config: { background: "transparent" } });
  };

  const script = async (text) => {
    const element = document.createElement("div");
    out.append(element);
    await new Function("element", text)(element);
  };

  const themed = (theme) => {
    if (theme === "dark" || theme === "light") document.documentElement.style.colorScheme = theme;
  };

  const draw = async ({ mime, text, theme }) => {
    themed(theme);
    if (mime === "text/html" || mime === "image/svg+xml") await markup(text);
    else if (mime === "application/javascript" || mime === "text/javascript") await script(text);
    else if (mime === "application/vnd.plotly.v1+json") await plotly(text, theme);
    else if (/^application\/vnd\.vegalite\.v[\d.]+\+json$/.test(mime)) await vega(text, "vega-lite", theme);
    else if (/^application\/vnd\.vega\.v[\d.]+\+json$/.test(mime)) await vega(text, "vega", theme);
    else throw new Error("An output of this type cannot be drawn here.");
  };

  const receive = (e) => {
    const m = e.data;
    if (typeof m !== "object" || m === null) return;
    if (m.type === "theme") themed(m.theme);
    if (m.type !== "render" || begun || typeof m.mime !== "string" || typeof m.text !== "string") return;
    begun = true;
    draw(m).then(() => { settle(); tell({ type: "drawn" }); }, (err) => {
      fail((err && err.message) || err);
      tell({ type: "failed" });
    });
  };

  // The port comes once, from the parent, and only from the application.
  const greet = (e) => {
    if (port || e.source !== parent || parent === window || !config.origins.includes(e.origin)) return;
    if (!e.data || e.data.type !== "sandbook.port" || e.ports.length !== 1) return;
    removeEventListener("message", greet);
    port = e.ports[0];
    port.onmessage = receive;
    tell({ type: "ready" });
  };
  addEventListener("message", greet);
})();
