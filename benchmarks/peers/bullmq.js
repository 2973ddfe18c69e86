// /// script
// dependencies = ["bullmq@6.7.0", "ioredis@5.11.1"]
//
// [tool.bench]
// name = "BullMQ"
// remaining = "redis.call('llen', 'bull:bench0:wait') + redis.call('llen', 'bull:bench0:active')"
// one_by_one = 8000
// bulk = 30000
// handled = 20000
// skips = ["threads"]
// fast = "concurrency 100, done jobs removed at once"
// safe = "concurrency 8, done jobs kept, lock of 5 s, stalled jobs looked for every 2.5 s and taken over up to 10 times"
// ///
'use strict'

const { Queue, Worker } = require('bullmq')
const { Redis } = require('ioredis')

const REMOVED = { removeOnComplete: { count: 0 }, removeOnFail: { count: 1000 } }
const FASTEST = { ...REMOVED, concurrency: 100 }
const SAFEST = { concurrency: 8, lockDuration: 5000, stalledInterval: 2500, maxStalledCount: 10 }

module.exports = async function open ({ url, queue: name, safest }) {
  const connection = new Redis(url, { maxRetriesPerRequest: null })
  const queue = new Queue(name, { connection })
  const options = safest ? { attempts: 3 } : REMOVED
  await queue.waitUntilReady()
  return {
    publish: (kind, data) => queue.add(kind, data, options),
    publishLater: (kind, data, delay) => queue.add(kind, data, { ...options, delay: Math.ceil(delay * 1000) }),
    publishMany: (kind, many, delay) => queue.addBulk(many.map(
      data => ({ name: kind, data, opts: { ...options, delay: Math.ceil(delay * 1000) } })
    )),
    push: (key, line) => connection.rpush(key, line),
    consume: (threads, handle) => {
      const worker = new Worker(name, job => handle(job.name, job.data), {
        connection, ...(safest ? SAFEST : FASTEST)
      })
      worker.on('error', error => console.error(error))
    }
  }
}
