// Handle messages that a Django project publishes with mq_django: node consumer.js <queue>, or of one of the MQ_PARTITIONS
// partitions of a queue: node consumer.js <queue> <number>
//
// Prints each message it handles as a line of JSON. A message named "fail" fails, to show retries and dead letters.
// Stop it with Ctrl-C or SIGTERM. MQ_REDIS_URL, MQ_NAMESPACE and MQ_MAX_ATTEMPTS are read. See docs/protocol.md.
'use strict'

const { randomBytes } = require('node:crypto')
const { hostname } = require('node:os')
const { connect, decode, join, keysOf, script, tagOf } = require('./mq')

const maxAttempts = Number(process.env.MQ_MAX_ATTEMPTS || 25)
const [queue, partition] = process.argv.slice(2)
const key = keysOf(partition === undefined ? queue : tagOf(queue, Number(partition), Number(process.env.MQ_PARTITIONS)))
const me = `${hostname()}-${process.pid}-${randomBytes(6).toString('hex')}`
const redis = connect({ maxRetriesPerRequest: null })
const reader = redis.duplicate() // a blocked read holds its connection
for (const name of ['stream_fetch', 'settle', 'members_leave']) {
  redis.defineCommand(name, { lua: script(name) })
}

async function handle (message) { // yours
  if (message.type === 'fail') throw new Error('as asked')
  console.log(JSON.stringify({ id: message.id, name: message.type, data: message.data, attempt: message.attempt }))
}

// Settle one delivery; `more` has the names of the keys that the outcome needs. See docs/protocol.md for the lists.
function settle (outcome, more, stream, entry, lists) {
  const args = [outcome, ['stream', ...more].join(' '), 'mq', me, 1, entry]
  for (const [name, values] of Object.entries(lists)) args.push(name, values.length, ...values)
  return redis.settle(1 + more.length, stream, ...more.map(key), ...args)
}

async function run (stream, [entry, flat]) {
  let message
  try {
    message = decode(entry, flat)
    await handle(message)
    return settle('ack', [], stream, entry, {})
  } catch (error) {
    if (!message || message.attempt >= maxAttempts) {
      const fields = message ? Object.entries({ ...message, data: JSON.stringify(message.data) }).flat() : ['deadraw', flat.join('\n')]
      fields.push('deadreason', message ? 'attempts' : 'undecodable', 'deaderror', String(error))
      fields.push('deadtraceback', String(error.stack), 'deadattempts', message ? message.attempt : 1)
      const ids = [message ? message.id : entry]
      return settle('bury', ['dead', 'dead-ids', 'dead-groups'], stream, entry, { ids, sizes: [fields.length], fields })
    }
    const body = JSON.stringify({ ...message, attempt: message.attempt + 1 })
    const delay = Math.min(3600000, 1000 * 2 ** (message.attempt - 1)) * (1 - Math.random() / 4)
    const lists = { ids: [message.id], delays: [Math.round(delay)], bodies: [body], wake: [key('wake')] }
    return settle('retry', ['due', 'waiting'], stream, entry, lists)
  }
}

// First what goes first, unless the queue is paused; then wait for what comes.
async function fetch () {
  const rooms = ['ready', 'front', 'control', 'priority', 'waiting'].map(key)
  const taken = await redis.stream_fetch(5, ...rooms, 'mq', me, 10)
  if (taken === 'PAUSED') return new Promise(resolve => setTimeout(resolve, 200, []))
  const [ready, front] = [taken[0].map(item => [key('ready'), item]), taken[1].map(item => [key('front'), item])]
  // Behind what is ready: what has a negative priority.
  const found = [...front.slice(0, taken[3]), ...ready, ...front.slice(taken[3])]
  if (found.length) return found
  const read = await reader.xreadgroup('GROUP', 'mq', me, 'COUNT', 10, 'BLOCK', 5000, 'STREAMS', key('ready'), '>')
  // A woken consumer wakes the next, while there is something with a priority.
  if (taken[2]) await redis.stream_fetch(5, ...rooms, 'mq', me, 0)
  return read ? read[0][1].map(item => [key('ready'), item]) : []
}

async function main () {
  let stopping = false
  for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => { stopping = true; reader.disconnect() })
  const leave = await join(redis, key, me, ['*']) // all names
  while (!stopping) {
    const found = await fetch().catch(error => { if (!stopping) throw error; return [] })
    for (const [stream, item] of found) await run(stream, item)
  }
  await leave()
  redis.disconnect()
}

main().catch(error => { console.error(error); process.exit(1) })
