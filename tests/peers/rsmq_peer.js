// npm's rsmq at the other end of a pipe: a JSON line [method, options] in, a JSON line {ok} or {error} out.
'use strict'

const { createInterface } = require('node:readline')
const RSMQ = require('rsmq')
const redis = require('redis')

const [url, ns, realtime] = process.argv.slice(2)
const client = url.startsWith('unix://') ? redis.createClient({ path: url.slice(7) }) : redis.createClient(url)
const rsmq = new RSMQ({ client, ns, realtime: realtime === 'realtime' })
const lines = createInterface({ input: process.stdin })

async function answer (line) {
  const [method, options] = JSON.parse(line)
  try {
    const call = rsmq[method + 'Async']
    return { ok: Object.keys(options).length ? await call(options) : await call() }
  } catch (error) {
    return { error: error.name, message: error.message }
  }
}

// One at a time, so that answers come in the order of the questions.
let last = Promise.resolve()
lines.on('line', line => {
  last = last.then(() => answer(line)).then(told => process.stdout.write(JSON.stringify(told) + '\n'))
})
lines.on('close', () => last.then(() => client.quit()))
