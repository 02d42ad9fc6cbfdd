import { test, before, after } from 'node:test'
import assert from 'node:assert/strict'
import { writeFileSync, mkdtempSync } from 'node:fs'
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
  `<button data-act=restart data-command=run>privileged</button><article id=cell-x class=cell></article>`,
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
  assert.equal(await page.evaluate(() => document.querySelector('#cells') !== null && document.querySelectorAll('#cell-x').length), 0, 'ids are not taken over')
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
