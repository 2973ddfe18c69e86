// Publish messages to a Django project that uses mq_django, with plain Redis commands.
//
//   node producer.js <queue> <name> '<JSON data>' [delay in ms [key]]
//   node producer.js emails welcome '{"user_id":7}' 900000
//   MQ_PARTITIONS=64 node producer.js payments captured '{"id":1}' 0 order:7
//
// MQ_REDIS_URL names the Redis (unix:///path works too), MQ_NAMESPACE the namespace, MQ_PARTITIONS how many partitions the
// queue has. See docs/protocol.md.
'use strict'

const { randomUUID } = require('node:crypto')
const { connect, keysOf, partitionOf, tagOf } = require('./mq')

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

// The key of a message chooses the partition, which is a queue of its own.
class PartitionedQueue {
  constructor (redis, name, partitions) {
    this.parts = Array.from({ length: partitions }, (_, number) => new Queue(redis, tagOf(name, number, partitions)))
  }

  async publish (name, data, key) {
    const part = this.parts[partitionOf(key, this.parts.length)]
    const id = await part.publish(name, data, { partitionkey: key })
    // Consumers that have found nothing wait for this.
    if (await part.redis.del(part.key('asleep'))) await part.redis.publish(part.key('arrivals'), 'ready')
    return id
  }
}

async function main ([queueName, name, data, delayMs, key]) {
  // A write that is sent again by the client, after a reply was lost, is a message that is there twice.
  const redis = connect({ autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 })
  try {
    const [partitions, value] = [Number(process.env.MQ_PARTITIONS || 1), JSON.parse(data)]
    if (partitions > 1) return console.log(await new PartitionedQueue(redis, queueName, partitions).publish(name, value, key))
    const queue = new Queue(redis, queueName)
    console.log(Number(delayMs) ? await queue.publishLater(name, value, Number(delayMs)) : await queue.publish(name, value))
  } finally {
    redis.disconnect()
  }
}

module.exports = { PartitionedQueue, Queue }
if (require.main === module) main(process.argv.slice(2)).catch(error => { console.error(String(error)); process.exitCode = 1 })
