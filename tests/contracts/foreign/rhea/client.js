// One connection of rhea to the bridge. The scripts beside this get their options as one JSON argument
// ({port, tenant, ...}) and print one line of JSON.
'use strict';

const rhea = require('rhea');

const LIMIT_MS = 60000;
const PROPERTIES = 0x73; // AMQP 1.0 part 3, section 3.2.4
const CORRELATION_ID = 5; // its place among the properties

// rhea gives a uuid and a binary id alike, as a Buffer: the type is noted from the bytes.
const decode = rhea.message.decode;
rhea.message.decode = (buffer) => {
    const message = decode(buffer);
    const reader = new rhea.types.Reader(buffer);
    while (reader.remaining()) {
        const section = reader.read();
        if (Number(section.descriptor.value) === PROPERTIES) {
            const id = section.value[CORRELATION_ID];
            message.correlation_type = id ? id.type.name : 'Null';
        }
    }
    return message;
};

// Where to connect: a socket of its own, or AMQP over WebSocket with the files of TLS.
function place(container, { port, websocket, security }) {
    if (!websocket) return { host: '127.0.0.1', port };
    const { ca, cert, key } = security;
    const dial = container.websocket_connect(require('ws'));
    const url = `${ca ? 'wss' : 'ws'}://127.0.0.1:${port}/amqp`;
    const details = dial(url, ['binary', 'amqp'], { ca, cert, key })();
    // rhea logs in by EXTERNAL only on a socket that calls itself encrypted, which its wrapper of a WebSocket does not.
    const connect = (...place) => Object.assign(details.connect(...place), { encrypted: Boolean(ca) });
    return { connection_details: () => ({ ...details, connect }) };
}

// `work(connection, options, done)` begins when the bridge has opened; `done(result)` ends it all.
function run(work) {
    const options = JSON.parse(process.argv[2]);
    const fail = (why) => {
        process.stderr.write(`${why}\n`);
        process.exit(1);
    };
    setTimeout(() => fail(`not done after ${LIMIT_MS} ms`), LIMIT_MS).unref();
    const container = rhea.create_container();
    const connection = container.connect({ ...place(container, options), reconnect: false, ...options.security });
    const done = (result) => {
        process.stdout.write(`${JSON.stringify(result)}\n`);
        connection.close();
    };
    connection.once('connection_open', () => work(connection, options, done));
    connection.on('connection_error', (context) => fail(`connection: ${context.connection.error || context.error}`));
    connection.on('disconnected', (context) => fail(`disconnected: ${context.error || 'without a word'}`));
    container.on('error', fail);
}

const shown = (error) => (error ? { condition: error.condition, description: error.description } : null);

// What became of the deliveries of a sender: `told(delivery, {state, condition, description})`.
function outcomes(sender, told) {
    for (const state of ['accepted', 'released', 'rejected', 'modified']) {
        sender.on(state, ({ delivery }) => {
            const error = state === 'rejected' ? shown(delivery.remote_state.error) : null;
            told(delivery, { state, ...error });
        });
    }
}

// How the bridge ended a link.
function ended(link) {
    const kind = link.is_sender() ? 'sender' : 'receiver';
    return new Promise((resolve) => {
        link.on(`${kind}_error`, () => resolve(shown(link.error)));
    });
}

module.exports = { rhea, run, ended, outcomes };
