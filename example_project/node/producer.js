// Publish messages to a Django project that uses mq_django, with plain Redis commands.
//
//   node producer.js <queue> <name> '<JSON data>' [delay in ms]
//   node producer.js emails welcome '{"user_id":7}' 900000
//
// MQ_REDIS_URL names the Redis (unix:///path works too), MQ_NAMESPACE the namespace. See docs/protocol.md.
'use strict'

const { randomUUID } = require('node:crypto')
const { connect, keysOf } = require('./mq')

class Queue {
  constructor (redis, name) {
    this.redis = redis
    this.key = keysOf(name)
  }

  // One command: this is all there is to it.
  async publish (name, data, headers = {}) {
    const fields = { id: randomUUID(), type: name, data: JSON.stringify(data), ...headers }
    await this.redis.xadd(this.key('ready'), '*', ...Object.entries(fields).flat())
    return fields.id
  }

  // The body waits in a hash, its due time in a sorted set; the wake channel makes it exact.
  async publishLater (name, data, delayMs) {
    const id = randomUUID()
    const [seconds, micros] = await this.redis.time()
    const due = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000) + delayMs
    const replies = await this.redis.multi()
      .hset(this.key('waiting'), id, JSON.stringify({ type: name, data, time: due - delayMs }))
      .zadd(this.key('due'), due, id)
      .publish(this.key('wake'), `due ${due}`)
      .exec()
    const failed = replies.find(([error]) => error)
    if (failed) throw failed[0]
    return id
  }

  async cancel (id) {
    const [[, removed]] = await this.redis.multi().zrem(this.key('due'), id).hdel(this.key('waiting'), id).exec()
    return removed === 1
  }
}

async function main ([queueName, name, data, delayMs]) {
  // A write that is sent again by the client, after a reply was lost, is a message that is there twice.
  const redis = connect({ autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 })
  try {
    const queue = new Queue(redis, queueName)
    const value = JSON.parse(data)
    console.log(delayMs ? await queue.publishLater(name, value, Number(delayMs)) : await queue.publish(name, value))
  } finally {
    redis.disconnect()
  }
}

module.exports = { Queue }
if (require.main === module) main(process.argv.slice(2)).catch(error => { console.error(String(error)); process.exitCode = 1 })
