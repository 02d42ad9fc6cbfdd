// A real browser, and what a person does in a notebook, in one word each.
import { chromium } from 'playwright-core'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:http'
import assert from 'node:assert/strict'

const require = createRequire(import.meta.url)
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')

export const launch = () => chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-quic'],
})

// signIn opens a page of the server in a context of its own. No request may go
// to any origin but the server's two, and no script may fail.
export async function signIn(browser, server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 1000 }, ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(20000)
  page.faults = []
  const ours = [server.origin, server.frame]
  context.on('request', (r) => {
    const u = r.url()
    if (/^https?:/.test(u) && !ours.some((o) => u.startsWith(o + '/'))) page.faults.push('request to ' + u)
  })
  page.on('pageerror', (e) => page.faults.push('script: ' + e.stack))
  await page.goto(server.link)
  return page
}

export const connected = (page) => page.waitForFunction(() => document.documentElement.dataset.connection === 'open')

export async function newNotebook(page, server, title = 'Test') {
  await page.goto(server.origin + '/')
  await page.getByTestId('new-title').fill(title)
  await page.getByTestId('new').click()
  await page.waitForURL(/\/n\//)
  await connected(page)
}

// add makes a cell of the given text at the end and returns its element id.
export async function add(page, source) {
  await page.locator('[data-act=add-code]').click()
  await page.waitForFunction(() => document.activeElement.className.includes('cm-content') && document.activeElement.innerText.trim() === '')
  const id = await page.evaluate(() => document.activeElement.closest('article').id)
  await page.keyboard.insertText(source)
  return id
}

export async function run(page, source) {
  const id = await add(page, source)
  await page.keyboard.press('Control+Enter')
  return id
}

export const done = (page, id) => page.waitForFunction((id) => /ran \d/.test(document.getElementById(id + ':head').innerText), id, { timeout: 45000 })
export const shows = (page, id, text, timeout = 30000) => page.waitForFunction(([id, text]) => document.getElementById(id + ':outputs')?.innerText.includes(text), [id, text], { timeout })
export const outputs = (page, id) => page.locator(`[id="${id}:outputs"]`).innerText()
export const printed = async (page, id) => (await page.locator(`[id="${id}:outputs"] pre`).first().textContent()).trim().split('\n')

// clean fails if the page did what no page may do.
export function clean(page) { assert.deepEqual(page.faults, []) }

// accessible fails on any violation axe finds.
export async function accessible(page, what) {
  await page.evaluate(axe)
  const r = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
  assert.deepEqual(r.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ')).slice(0, 3).join(', ')}`), [], what)
}

// sink counts what reaches a server that nothing may reach.
export async function sink() {
  const s = { hits: [] }
  s.server = createServer((q, r) => { s.hits.push(q.url); r.setHeader('Access-Control-Allow-Origin', '*'); r.end('x') })
  await new Promise((resolve) => s.server.listen(0, '127.0.0.1', resolve))
  s.origin = `http://127.0.0.1:${s.server.address().port}`
  return s
}

export async function picture(page, name) {
  if (process.env.PICTURES) await page.screenshot({ path: new URL(`pictures/${name}.png`, import.meta.url).pathname })
}
