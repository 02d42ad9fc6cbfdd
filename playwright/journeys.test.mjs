import { test, before, after } from 'node:test'
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Server } from './server.mjs'
import { launch, signIn, connected, newNotebook, add, run, done, shows, outputs, printed, clean, accessible, picture } from './browser.mjs'

let browser, server
before(async () => { browser = await launch(); server = await Server.start('--demo', '--memory', '1GiB') })
after(async () => { await browser?.close(); await server?.end() })

const inNotebook = (name, fn, options) => test(name, async () => {
  const page = await signIn(browser, server, options)
  try {
    await newNotebook(page, server, name.slice(0, 60))
    await fn(page)
    clean(page)
  } finally { await page.context().close() }
})

test('first run: the link, the demo notebook, a table and a plot', async () => {
  const page = await signIn(browser, server)
  await accessible(page, 'list')
  await page.getByText('A first look').click()
  await connected(page)
  await accessible(page, 'notebook, idle')
  const cells = await page.locator('article').evaluateAll((a) => a.map((x) => x.id))
  await page.locator(`[id="${cells[1]}"] pre.source`).click()
  await page.locator(`[id="${cells[1]}"] .cm-content`).waitFor()
  await page.keyboard.press('Shift+Enter')
  await done(page, cells[1])
  assert.match(await outputs(page, cells[1]), /September\s+1490/)
  assert.equal(await page.evaluate(() => document.activeElement.id), cells[2])
  await page.keyboard.press('Shift+Enter')
  await done(page, cells[2])
  await page.waitForFunction((id) => document.querySelector(`[id="${id}"] img.out-image`)?.naturalWidth > 100, cells[2])
  assert.match(await page.locator('#kernel').innerText(), /Python 3.*bubblewrap, (\d+) of \1 checks/s)
  await page.evaluate(() => window.scrollTo(0, 0))
  await page.mouse.move(5, 5)
  await picture(page, 'notebook-light')
  clean(page)
  await page.context().close()
})

inNotebook('output comes while it runs, a progress bar is one line', async (page) => {
  const id = await run(page, "import time\nfor i in range(30):\n    print(f'\\rstep {i}', end=''); time.sleep(0.1)\nprint('\\ndone')")
  await shows(page, id, 'step 5')
  assert.ok(!(await outputs(page, id)).includes('done'), 'it is still running')
  await page.locator(`[id="${id}"] .elapsed`).waitFor()
  await accessible(page, 'notebook, running')
  await done(page, id)
  assert.deepEqual(await printed(page, id), ['step 29', 'done'])
})

inNotebook('interrupt stops a loop and keeps what the kernel knows', async (page) => {
  await done(page, await run(page, 'x = 42'))
  const id = await run(page, 'while True: pass')
  await page.locator(`[id="${id}"] .elapsed`).waitFor()
  await page.getByTestId('interrupt').click()
  await done(page, id)
  assert.match(await page.locator(`[id="${id}:head"]`).innerText(), /interrupted/)
  const last = await run(page, 'x')
  await shows(page, last, '42')
})

inNotebook('an error names the line', async (page) => {
  const id = await run(page, 'def f():\n    return 1/0\n\nf()')
  await done(page, id)
  const text = await outputs(page, id)
  assert.match(text, /ZeroDivisionError: division by zero/)
  assert.match(text, /line 2, in f/)
})

inNotebook('a reload in the middle of a run loses nothing', async (page) => {
  const id = await run(page, "import time\nfor i in range(40):\n    print('tick', i); time.sleep(0.1)")
  await shows(page, id, 'tick 5')
  await page.reload()
  await shows(page, id, 'tick 39')
  await done(page, id)
  assert.deepEqual(await printed(page, id), Array.from({ length: 40 }, (_, i) => `tick ${i}`))
})

inNotebook('two tabs: one document, and a conflict shows both texts', async (page) => {
  const id = await run(page, "print('shared')")
  await done(page, id)
  const other = await page.context().newPage()
  await other.goto(page.url())
  await connected(other)
  await shows(other, id, 'shared')
  for (const p of [page, other]) {
    await p.locator(`[id="${id}"] .who`).click()
    await p.keyboard.press('Enter')
    await p.locator(`[id="${id}"] .cm-content`).waitFor()
  }
  await Promise.all([page.keyboard.type('AAA'), other.keyboard.type('BBB')])
  await Promise.race([page.locator('dialog[open]').waitFor(), other.locator('dialog[open]').waitFor()])
  const loser = await page.locator('dialog[open]').count() ? page : other
  await loser.bringToFront()
  const dialog = await loser.locator('dialog[open]').innerText()
  assert.ok(dialog.includes('AAA') && dialog.includes('BBB'), dialog)
  await accessible(loser, 'conflict dialog')
  await loser.locator('dialog[open] [data-value=both]').click()
  await page.waitForFunction(() => document.body.innerText.includes('AAA') && document.body.innerText.includes('BBB'))
})

inNotebook('input is asked in the page, a password is not shown', async (page) => {
  const id = await run(page, "n = input('Your name: ')\nprint('Hello', n)")
  await page.waitForFunction(() => document.activeElement.id === 'input-value') // one can type at once
  await page.keyboard.type('Ana')
  await page.keyboard.press('Enter')
  await shows(page, id, 'Hello Ana')
  const secret = await run(page, "import getpass\nprint(len(getpass.getpass()))")
  const field = page.getByTestId('input-value')
  await field.waitFor()
  assert.equal(await field.getAttribute('type'), 'password')
  await field.fill('hunter2')
  await page.keyboard.press('Enter')
  await shows(page, secret, '7')
  assert.ok(!(await page.locator('body').innerText()).includes('hunter2'))
})

inNotebook('cells: add, kinds, move, split, merge, delete and undo, by the keys', async (page) => {
  const first = await add(page, 'a = 1\nb = 2')
  await page.keyboard.press('Escape')
  await page.keyboard.press('b')
  await page.waitForFunction((id) => document.activeElement.closest('article').id !== id && document.activeElement.className.includes('cm-content'), first)
  const second = await page.evaluate(() => document.activeElement.closest('article').id)
  await page.keyboard.insertText('# Heading\n\nEuler: $e^{i\\pi}+1=0$')
  await page.keyboard.press('Escape')
  await page.keyboard.press('m')
  await page.waitForFunction((id) => document.getElementById(id).dataset.kind === 'markdown', second)
  await page.keyboard.press('Shift+Enter')
  await page.waitForFunction((id) => document.querySelector(`[id="${id}"] h1`)?.textContent === 'Heading' && document.querySelector(`[id="${id}"] .katex`), second)
  await page.locator(`[id="${first}"] .who`).click()
  await page.keyboard.press('Enter')
  await page.locator(`[id="${first}"] .cm-content`).waitFor()
  await page.keyboard.press('Control+Home')
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Control+Shift+Minus')
  await page.waitForFunction(([a, b]) => { const c = document.activeElement.closest('article'); return c && c.id !== a && c.id !== b }, [first, second])
  await page.keyboard.press('Escape')
  const third = await page.evaluate(() => document.activeElement.id)
  await page.keyboard.press('k')
  await page.keyboard.press('Shift+M')
  await page.waitForFunction((id) => !document.getElementById(id), third)
  await page.keyboard.press('d')
  await page.keyboard.press('d')
  await page.waitForFunction((id) => !document.getElementById(id), first)
  await page.keyboard.press('z')
  await page.locator(`[id="${first}"]`).waitFor()
  await page.keyboard.press('h')
  await page.locator('#shortcuts[open]').waitFor()
  await accessible(page, 'shortcuts')
  await page.keyboard.press('Escape')
})

inNotebook('a kernel says why it died, and the next run works', async (page) => {
  await run(page, 'hog = []\nwhile True: hog.append(bytearray(50_000_000))')
  await page.locator('#banner.bad').waitFor()
  const banner = await page.locator('#banner').innerText()
  assert.match(banner, /ran out of memory/)
  assert.match(banner, /1\.0 GiB/)
  await accessible(page, 'notebook, kernel died')
  await picture(page, 'died')
  const next = await run(page, '1+1')
  await shows(page, next, '2')
})

inNotebook('a flood is cut with an exact count, and the page stays small', async (page) => {
  const id = await run(page, "for i in range(200000): print('line', i)")
  await shows(page, id, 'line 199999', 60000)
  const r = await page.evaluate((id) => ({
    nodes: document.getElementsByTagName('*').length,
    lines: [...document.querySelectorAll(`[id="${id}:outputs"] pre`)].map((p) => p.textContent.trim().split('\n')),
    gap: document.querySelector(`[id="${id}"] .gap`).innerText,
  }), id)
  assert.ok(r.nodes < 6000, `${r.nodes} elements`)
  const shown = r.lines.flat().length
  const said = Number(/([\d,]+) lines/.exec(r.gap)[1].replaceAll(',', ''))
  assert.equal(shown + said, 200000, r.gap)
  const all = await page.evaluate(async (id) => (await fetch(document.querySelector(`[id="${id}"] .gap a`).href)).text(), id)
  assert.equal(all.trim().split('\n').length, 200000)
})

inNotebook('active output is drawn in a frame of another origin that reaches nothing', async (page) => {
  const id = await run(page, `from IPython.display import HTML
HTML('''<p id=x>still</p><script>
let r; try { r = 'reached ' + parent.document.title } catch (e) { r = e.name }
document.getElementById('x').textContent = 'drawn ' + (1+1) + ' ' + r + ' ' + self.origin
</script>''')`)
  await done(page, id)
  await page.locator(`[id="${id}"] .active`).scrollIntoViewIfNeeded()
  await page.locator(`[id="${id}"] .active.drawn`).waitFor()
  assert.equal(await page.frameLocator(`[id="${id}"] iframe`).locator('#x').innerText(), 'drawn 2 SecurityError null')
  const plot = await run(page, `from IPython.display import display
display({'application/vnd.plotly.v1+json': {'data': [{'y': [1, 3, 2], 'type': 'scatter'}], 'layout': {'height': 300}}, 'text/plain': 'a plot'}, raw=True)`)
  await done(page, plot)
  await page.locator(`[id="${plot}"] .active`).scrollIntoViewIfNeeded()
  await page.locator(`[id="${plot}"] .active.drawn`).waitFor({ timeout: 30000 })
  await page.frameLocator(`[id="${plot}"] iframe`).locator('.main-svg').first().waitFor()
})

inNotebook('export and import give the same notebook', async (page) => {
  const id = await run(page, "import matplotlib.pyplot as plt\nprint('kept')\nplt.plot([1, 2]);")
  await done(page, id)
  const file = join(mkdtempSync(join(tmpdir(), 'sbpw')), 'out.ipynb')
  writeFileSync(file, await page.evaluate(async () => (await fetch(location.pathname + '/export.ipynb')).text()))
  const nb = JSON.parse(readFileSync(file, 'utf8'))
  assert.equal(nb.nbformat, 4)
  assert.ok(nb.cells.some((c) => (c.outputs || []).some((o) => o.data?.['image/png'])))
  await page.goto(server.origin + '/')
  await page.getByTestId('import').click()
  await page.getByTestId('import-file').setInputFiles(file)
  await page.getByTestId('import-go').click()
  await page.waitForURL(/\/n\//)
  await page.getByText('kept', { exact: true }).waitFor()
  await page.waitForFunction(() => document.querySelector('img.out-image')?.naturalWidth > 0)
  writeFileSync(file, '{"cells": [')
  await page.goto(server.origin + '/')
  await page.getByTestId('import').click()
  await page.getByTestId('import-file').setInputFiles(file)
  await page.getByTestId('import-go').click()
  assert.match(await page.getByTestId('problem').first().innerText(), /\.$/)
})

test('the list works without scripts, and a notebook reads without them', async () => {
  const page = await signIn(browser, server, { javaScriptEnabled: false })
  await page.getByTestId('new-title').fill('Plain <b>page</b>')
  await page.getByTestId('new').click()
  await page.goto(server.origin + '/?q=Plain')
  const row = page.getByTestId('row').filter({ hasText: 'Plain <b>page</b>' })
  await row.waitFor()
  await row.getByTestId('row-menu').click()
  await row.getByTestId('rename-title').fill('Renamed')
  await row.getByTestId('rename').click()
  await page.goto(server.origin + '/?q=Renamed')
  const renamed = page.getByTestId('row').filter({ hasText: 'Renamed' })
  await renamed.getByTestId('row-menu').click()
  await renamed.getByTestId('duplicate').click()
  await page.waitForURL(/\/n\//)
  await page.goto(server.origin + '/?q=copy')
  const copy = page.getByTestId('row').filter({ hasText: 'Renamed (copy)' }).first()
  await copy.getByTestId('row-menu').click()
  await copy.getByTestId('delete').click()
  await page.getByTestId('undo-delete').getByRole('button').click()
  await page.getByTestId('undo-delete').waitFor({ state: 'detached' })
  await page.goto(server.origin + '/?q=copy')
  await page.getByTestId('row').filter({ hasText: 'Renamed (copy)' }).first().waitFor()
  await page.goto(server.origin + '/')
  await page.getByText('A first look').click()
  await page.getByText('Nothing is lost').waitFor()
  assert.ok((await page.locator('article').count()) >= 9)
  clean(page)
  await page.context().close()
})

test('a server killed in the middle of a run: the page waits, and nothing is lost', async () => {
  const own = await Server.start()
  const page = await signIn(browser, own)
  try {
    await newNotebook(page, own)
    const id = await run(page, "import time\nfor i in range(60):\n    print('tock', i); time.sleep(0.1)")
    await shows(page, id, 'tock 5')
    await own.down('SIGKILL')
    await page.locator('#offline:not([hidden])').waitFor()
    assert.match(await page.locator('#offline').innerText(), /nothing is lost/i)
    await own.up()
    await shows(page, id, 'tock 59', 45000)
    await done(page, id)
    assert.deepEqual(await printed(page, id), Array.from({ length: 60 }, (_, i) => `tock ${i}`))
    assert.match(await page.locator('#rail').innerText(), /server restarted once/)
    clean(page)
  } finally {
    await page.context().close()
    await own.end()
  }
})

test('axe finds nothing: sign-in, dark, Chinese, phone; the phone has no sideways scroll', async () => {
  const anon = await browser.newPage()
  await anon.goto(server.origin + '/login')
  await accessible(anon, 'sign-in')
  await anon.getByTestId('token').fill('wrong')
  await anon.getByTestId('sign-in').click()
  assert.match(await anon.getByTestId('problem').innerText(), /not this server's token/)
  await accessible(anon, 'sign-in, wrong token')
  await anon.close()
  for (const [name, options, query] of [
    ['notebook-dark', { colorScheme: 'dark' }, ''],
    ['zh', { locale: 'zh-CN' }, ''],
    ['phone', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }, ''],
  ]) {
    const page = await signIn(browser, server, options)
    await accessible(page, name + ', list')
    await page.getByText('A first look').click()
    await connected(page)
    await page.waitForTimeout(300)
    await accessible(page, name + ', notebook')
    await picture(page, name)
    if (name === 'phone') {
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      assert.ok(over <= 0, `${over} pixels too wide`)
    }
    if (name === 'zh') assert.equal(await page.locator('html').getAttribute('lang'), 'zh-Hans')
    await page.goto(server.origin + '/docs' + query)
    await accessible(page, name + ', docs')
    clean(page)
    await page.context().close()
  }
})
