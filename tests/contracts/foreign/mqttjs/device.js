// A device: reports once at each QoS, runs one command, and leaves. Options as JSON in, what happened as JSON out.
'use strict'
const fs = require('fs')
const mqtt = require('mqtt')

const options = JSON.parse(process.argv[2])
const files = Object.fromEntries(['ca', 'cert', 'key'].filter((name) => options[name]).map((name) => [name, fs.readFileSync(options[name])]))
const told = { url: options.url, published: [] }

function end (error) {
  console.log(JSON.stringify({ ...told, ...(error && { error: error.message }) }))
  process.exit(error ? 1 : 0)
}

const client = mqtt.connect(options.url, {
  clientId: 'lamp-1',
  protocolVersion: options.version,
  reconnectPeriod: 0,
  connectTimeout: 60000,
  username: options.username,
  password: options.password,
  ...files
})
client.on('error', end)
client.on('connect', async () => {
  try {
    for (const qos of [0, 1, 2]) {
      await client.publishAsync('telemetry', options.bodies[qos], { qos })
      told.published.push(qos)
    }
    await client.subscribeAsync('command///req/#', { qos: 1 })
  } catch (error) { end(error) }
})
client.on('message', async (topic, payload) => {
  told.command = payload.toString()
  const [, , , , id] = topic.split('/')
  await client.publishAsync(`command///res/${id}/200`, '{"ok":true}', { qos: 1 })
  await client.endAsync()
  end()
})
