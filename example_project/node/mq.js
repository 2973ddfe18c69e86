// What the producer and the consumer share: the connection, the keys of a queue, and the scripts.
'use strict'

const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { Redis } = require('ioredis')

const LUA = join(__dirname, '..', '..', 'mq_django', 'transport', 'lua')

exports.connect = options => {
  if (!process.env.MQ_REDIS_URL) throw new Error('Set MQ_REDIS_URL, such as redis://queues.internal:6379/0')
  return new Redis(process.env.MQ_REDIS_URL.replace(/^unix:\/\//, ''), options)
}

exports.keysOf = queue => kind => `${process.env.MQ_NAMESPACE || 'mq'}:{${queue}}:${kind}`

// A line `-- with <name>` stands for the file parts/<name>.lua.
exports.script = function script (name) {
  return readFileSync(join(LUA, `${name}.lua`), 'utf8').replace(/^-- with (\w+)$/gm, (_, part) => script(`parts/${part}`))
}
