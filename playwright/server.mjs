// A real server on a folder of its own, as its user would start it.
import { spawn, execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createServer } from 'node:net'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
export const binary = process.env.SANDBOOK_WEB || join(root, 'bin', 'web')

const free = () => new Promise((resolve, reject) => {
  const s = createServer().listen(0, '127.0.0.1', () => { const { port } = s.address(); s.close(() => resolve(port)) }).on('error', reject)
})

export class Server {
  static async start(...args) {
    if (!existsSync(binary)) throw new Error(`${binary} is missing; run make build`)
    const s = new Server()
    s.data = mkdtempSync(join(tmpdir(), 'sbpw'))
    s.args = args
    s.port = await free()
    s.framePort = await free()
    await s.up()
    return s
  }

  // up runs the program and waits for the sign-in link.
  up() {
    return new Promise((resolve, reject) => {
      this.log = ''
      this.proc = spawn(binary, ['run', '--data', this.data, '--addr', `127.0.0.1:${this.port}`, '--frame-addr', `127.0.0.1:${this.framePort}`, ...this.args], { stdio: ['ignore', 'pipe', 'pipe'] })
      const late = setTimeout(() => reject(new Error('no sign-in link within 30 s: ' + this.log)), 30000)
      this.proc.stdout.on('data', (d) => {
        this.log += d
        const m = /http:\S+\/login\?token=\S+/.exec(this.log)
        if (m) { clearTimeout(late); this.link = m[0]; resolve() }
      })
      this.proc.stderr.on('data', (d) => { this.log += d })
      this.proc.on('exit', (code) => { if (!this.link) { clearTimeout(late); reject(new Error(`the server ended with ${code}: ${this.log}`)) } })
    })
  }

  get origin() { return `http://127.0.0.1:${this.port}` }
  get frame() { return `http://127.0.0.1:${this.framePort}` }

  down(signal = 'SIGKILL') {
    return new Promise((resolve) => {
      if (this.proc.exitCode !== null || this.proc.signalCode) return resolve()
      this.proc.on('exit', resolve)
      this.proc.kill(signal)
    })
  }

  // end leaves nothing behind.
  async end() {
    await this.down()
    execFileSync(binary, ['reap', '--data', this.data], { stdio: 'ignore' })
    rmSync(this.data, { recursive: true, force: true })
  }
}
