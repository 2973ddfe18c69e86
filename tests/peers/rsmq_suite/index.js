// RSMQ's API in front of `mq_django.rsmq`, for RSMQ's own tests in test/test.js, which are unchanged (version 0.12.4).
// Each instance starts a Python process, tests/peers/rsmq_bridge.py, and writes its calls to it.
'use strict'

const { spawn } = require('node:child_process')
const { createInterface } = require('node:readline')
const redis = require('redis')

const url = process.env.MQ_REDIS_URL
const createClient = redis.createClient
// The tests connect to the default port, where somebody's real data may be.
redis.createClient = () => createClient(url.startsWith('unix://') ? { path: url.slice(7) } : url)

const METHODS = [
  'changeMessageVisibility', 'createQueue', 'deleteMessage', 'deleteQueue', 'getQueueAttributes', 'listQueues',
  'popMessage', 'receiveMessage', 'sendMessage', 'setQueueAttributes'
]

module.exports = class RedisSMQ {
  constructor ({ realtime = false }) {
    this.process = spawn(process.env.MQ_PYTHON, ['-m', 'tests.peers.rsmq_bridge', realtime ? 'realtime' : ''], {
      stdio: ['pipe', 'pipe', 'inherit']
    })
    this.callbacks = []
    createInterface({ input: this.process.stdout }).on('line', line => this.answered(JSON.parse(line)))
    for (const method of METHODS) {
      // They are passed on as functions, without their object.
      this[method] = (options, callback) => typeof options === 'function'
        ? this.call(method, {}, options)
        : this.call(method, options, callback)
      this[method + 'Async'] = options => new Promise((resolve, reject) => {
        this[method](options, (error, result) => error ? reject(error) : resolve(result))
      })
    }
  }

  call (method, options, callback) {
    this.callbacks.push(callback)
    this.process.stdin.write(JSON.stringify([method, options]) + '\n')
  }

  // Answers come in the order of the calls.
  answered ({ ok, error }) {
    const callback = this.callbacks.shift()
    if (error) {
      callback(Object.assign(new Error(error.message), { name: error.name }))
    } else {
      callback(null, ok)
    }
  }

  quit (callback) {
    this.call('quit', {}, callback)
    this.process.stdin.end()
  }
}
