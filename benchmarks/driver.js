// What runs of a contender written for node: publish, publish at a pace, consume. The same as driver.py, in JavaScript.
//
//   node benchmarks/driver.js benchmarks/peers/bullmq.js publish --count 1000
'use strict'

const { spawn } = require('node:child_process')
const { parseArgs } = require('node:util')

const BULK = 1000
const WARM_UP = 20
const SLEEPS = { noop: 0, note: 0, work: 50, slow: 1000 }
const QUEUE = 'bench0'

const { values, positionals: [file, verb] } = parseArgs({
  allowPositionals: true,
  options: Object.fromEntries([
    ...['count', 'kind', 'delay', 'rate', 'slow-every', 'processes', 'threads'].map(name => [name, { type: 'string' }]),
    ...['bulk', 'child'].map(name => [name, { type: 'boolean' }])
  ])
})
const option = (name, otherwise) => Number(values[name] ?? otherwise)
const kind = values.kind ?? 'noop'
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
// The clock of all processes: CLOCK_MONOTONIC, as in Python.
const now = () => Number(process.hrtime.bigint())

function make (number, delay = 0) {
  const sent = now()
  return {
    n: number,
    sent_ns: sent,
    due_ns: sent + Math.round(delay * 1e9),
    customer: 'ada@example.com',
    total: '129.90',
    paid: true,
    note: 'A parcel for the neighbour, who is at home from five in the afternoon'
  }
}

// A handler of every kind of work; `push` appends a line to a list in Redis.
const handler = push => async (kind, data) => {
  if (kind === 'noop') return
  await sleep(SLEEPS[kind])
  await push('bench:notes', `${data.n} ${data.sent_ns} ${data.due_ns} ${now()} ${process.pid}`)
}

async function publish (contender) {
  const made = Array.from({ length: option('count', 1) }, (_, number) => make(number))
  const delay = option('delay', 0)
  if (!values.bulk && !delay && kind === 'noop') {
    for (const data of made.slice(0, WARM_UP)) await contender.publish(kind, data)
  }
  const began = now()
  if (values.bulk) {
    for (let at = 0; at < made.length; at += BULK) await contender.publishMany(kind, made.slice(at, at + BULK), delay)
  } else {
    for (const data of made) await (delay ? contender.publishLater(kind, data, delay) : contender.publish(kind, data))
  }
  return (now() - began) / 1e9
}

async function pace (contender) {
  const [every, delay, step] = [option('slow-every', 0), option('delay', 0), 1e9 / option('rate', 50)]
  const began = now()
  let at = began
  for (let number = 0; number < option('count', 1); number++) {
    at += step * (0.5 + Math.random())
    await sleep(Math.max(0, (at - now()) / 1e6))
    const later = delay * (0.5 + Math.random())
    const which = every && number % every === 50 ? 'slow' : kind
    await (delay ? contender.publishLater(which, make(number, later), later) : contender.publish(which, make(number)))
  }
  return (now() - began) / 1e9
}

// One process is this one; more are its children.
async function consume (contender) {
  const children = []
  for (let count = 1; count < option('processes', 1); count++) {
    children.push(spawn(process.execPath, [__filename, file, 'consume', '--threads', values.threads ?? '8']))
  }
  process.on('SIGTERM', () => {
    children.forEach(child => child.kill())
    process.exit()
  })
  await contender.consume(option('threads', 8), handler(contender.push))
}

async function main () {
  const open = require(require('node:path').resolve(file))
  const contender = await open({ url: process.env.BENCH_REDIS_URL, queue: QUEUE, safest: process.env.BENCH_MODE === 'safe' })
  if (verb === 'consume') return consume(contender)
  const seconds = await (verb === 'publish' ? publish : pace)(contender)
  process.stdout.write(JSON.stringify({ count: option('count', 1), seconds }) + '\n', () => process.exit())
}

main()
