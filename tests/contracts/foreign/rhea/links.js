// Links that the bridge does not want. Options: `senders`, target addresses; `receivers`, source addresses; an object
// instead of an address is a terminus. Prints [{condition, description}].
'use strict';

const { run, ended } = require('./client.js');

run(async (connection, { senders, receivers }, done) => {
    const told = [];
    for (const target of senders) {
        told.push(await ended(connection.open_sender({ target })));
    }
    for (const source of receivers) {
        told.push(await ended(connection.open_receiver({ source })));
    }
    done(told);
});
