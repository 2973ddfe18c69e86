// /// script
// dependencies = ["rsmq@0.12.4"]
//
// [tool.bench]
// name = "npm rsmq"
// remaining = "redis.call('zcard', 'rsmq:bench0')"
// one_by_one = 8000
// bulk = 0
// handled = 30000
// skips = ["threads"]
// fast = "popMessage, which takes and deletes in one call, in 50 loops; one of them asks an empty queue each 5 ms"
// safe = "receiveMessage and deleteMessage in 8 loops, visible again after 10 s; one asks an empty queue each 5 ms"
// ///
'use strict'

const RSMQ = require('rsmq')
const redis = require('redis')

const PAUSE_MS = 5

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

module.exports = async function open ({ url, queue: qname, safest }) {
  const client = redis.createClient(url)
  const rsmq = new RSMQ({ client })
  await rsmq.createQueueAsync({ qname, vt: 10, maxsize: -1 }).catch(() => {})
  const send = (kind, data, delay) => rsmq.sendMessageAsync({ qname, message: JSON.stringify({ kind, data }), delay })
  const take = () => safest ? rsmq.receiveMessageAsync({ qname }) : rsmq.popMessageAsync({ qname })

  let found = null
  let tell = () => {}
  async function loop (handle, isFirst) {
    while (true) {
      const { id, message } = await take()
      if (!id) {
        // The first goes on asking; it tells the others.
        if (!isFirst) found ??= new Promise(resolve => { tell = resolve })
        await (isFirst ? sleep(PAUSE_MS) : found)
        continue
      }
      if (found) {
        found = null
        tell()
      }
      const { kind, data } = JSON.parse(message)
      await handle(kind, data)
      if (safest) await rsmq.deleteMessageAsync({ qname, id })
    }
  }

  return {
    publish: (kind, data) => send(kind, data, 0),
    // Its delays are whole seconds: rounded up, so that none is early.
    publishLater: (kind, data, delay) => send(kind, data, Math.ceil(delay)),
    push: (key, line) => new Promise((resolve, reject) => {
      client.rpush(key, line, error => error ? reject(error) : resolve())
    }),
    consume: (threads, handle) => Promise.all(
      Array.from({ length: safest ? threads : 50 }, (_, number) => loop(handle, number === 0))
    )
  }
}
