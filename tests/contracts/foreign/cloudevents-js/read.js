// Reads committed records of Kafka topics by kafkajs and the CloudEvents SDK for JavaScript.
//
// Usage: node read.js '{"bootstrap": "...", "group": "...", "topics": {"<topic>": <records>}}'
// Prints one JSON object per record, until that many have come from each topic.
'use strict';

const { Kafka: Binding } = require('cloudevents');
const { Kafka, logLevel } = require('kafkajs');

const LIMIT_MS = 60000;
const ATTRIBUTES = ['id', 'source', 'type', 'subject', 'datacontenttype'];
const OTHERS = ['specversion', 'time', 'data', 'data_base64', 'partitionkey'];

// kafkajs gives header values as buffers.
function eventOf(message) {
    const headers = Object.fromEntries(Object.entries(message.headers).map(([name, value]) => [name, value.toString()]));
    return Binding.toEvent({ ...message, headers });
}

function shown(topic, message) {
    const event = eventOf(message);
    event.validate();
    const found = JSON.parse(JSON.stringify({ ...event, data: undefined, data_base64: undefined, partitionkey: undefined }));
    const extensions = Object.fromEntries(Object.entries(found).filter(([name]) => ![...ATTRIBUTES, ...OTHERS].includes(name)));
    const attributes = Object.fromEntries(ATTRIBUTES.map((name) => [name, event[name]]));
    return { topic, ...attributes, data: message.value.toString('base64'), extensions };
}

async function main() {
    const { bootstrap, group, topics } = JSON.parse(process.argv[2]);
    setTimeout(() => fail(`not done after ${LIMIT_MS} ms`), LIMIT_MS).unref();
    const consumer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING }).consumer({ groupId: group });
    consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error.stack));
    await consumer.connect();
    await consumer.subscribe({ topics: Object.keys(topics), fromBeginning: true });
    const left = { ...topics };
    await consumer.run({
        eachMessage: async ({ topic, message }) => {
            process.stdout.write(`${JSON.stringify(shown(topic, message))}\n`);
            left[topic] -= 1;
            if (Object.values(left).every((count) => count <= 0)) {
                setImmediate(() => consumer.disconnect().then(() => process.exit(0)));
            }
        },
    });
}

function fail(why) {
    process.stderr.write(`${why}\n`);
    process.exit(1);
}

main().catch((error) => fail(error.stack));
