// What programs share: the connection, the keys of a queue, the scripts, what an entry says, and how a consumer sends heartbeats.
'use strict'

const { readFileSync } = require('node:fs')
const { hostname } = require('node:os')
const { join } = require('node:path')
const { crc32 } = require('node:zlib')
const { Redis } = require('ioredis')
const slotOf = require('cluster-key-slot')

const LUA = join(__dirname, '..', '..', 'mq_django', 'transport', 'lua')

exports.connect = options => {
  if (!process.env.MQ_REDIS_URL) throw new Error('Set MQ_REDIS_URL, such as redis://queues.internal:6379/0')
  return new Redis(process.env.MQ_REDIS_URL.replace(/^unix:\/\//, ''), options)
}

exports.keysOf = queue => kind => `${process.env.MQ_NAMESPACE || 'mq'}:{${queue}}:${kind}`

// A queue with partitions: that of a key, and the hash tag that stands in the place of the queue's name in the keys of one.
exports.partitionOf = (key, partitions) => crc32(key) % partitions
exports.tagOf = (queue, partition, partitions) => {
  for (let x = 0; ; x++) {
    const tag = `${queue}.${partition}.${x}`
    if (Math.floor(slotOf(tag) * partitions / 16384) === partition) return tag
  }
}

// A line `-- with <name>` stands for the file parts/<name>.lua.
exports.script = function script (name) {
  return readFileSync(join(LUA, `${name}.lua`), 'utf8').replace(/^-- with (\w+)$/gm, (_, part) => script(`parts/${part}`))
}

// Both forms of an entry: fields beside a JSON object override what the object says.
exports.decode = (entry, flat) => {
  const fields = {}
  for (let at = 0; at < flat.length; at += 2) fields[flat[at]] = flat[at + 1]
  const { message, ...beside } = fields
  const { data_base64: bytes, ...found } = { data: null, ...(message === undefined ? {} : JSON.parse(message)), ...beside }
  if (beside.data !== undefined) found.data = JSON.parse(beside.data)
  if (bytes != null) Object.assign(found, { data: bytes, datacontentencoding: 'base64' }) // the bytes of a CloudEvent
  return { id: entry, time: Number(entry.split('-')[0]), ...found, attempt: Number(found.attempt || 1) }
}

// A consumer that sends no heartbeat is never missed, and keeps what it held when it died.
// With `names`, the messages that it handles do not stay in `unhandled`: consumers that do not know a name put it there.
exports.join = async (redis, key, me, names) => {
  await redis.xgroup('CREATE', key('ready'), 'mq', '0', 'MKSTREAM').catch(error => { if (!/BUSYGROUP/.test(error)) throw error })
  const about = { host: hostname(), pid: process.pid, since_ms: Date.now(), version: 'node' }
  const roll = { [`supervisor:${me}`]: JSON.stringify(about), [`consumer:${me}`]: JSON.stringify({ ...about, supervisor: me, names }) }
  const beat = () => redis.multi().hincrby(key('consumers'), `beat:${me}`, 1).hset(key('consumers'), { ...roll, [`seen:${me}`]: Date.now() }).exec()
  await beat()
  const beating = setInterval(() => beat().catch(console.error), 2000)
  return async () => {
    clearInterval(beating)
    await redis.members_leave(3, key('consumers'), key('ready'), key('front'), 'mq', me, me)
  }
}
