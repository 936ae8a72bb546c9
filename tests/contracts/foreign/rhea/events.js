// A consumer of events. Options: `address`; `selector`, or null; `count`. Prints [[device, body]].
'use strict';

const { rhea, run } = require('./client.js');

run((connection, { address, selector, count }, done) => {
    const filter = selector === null ? undefined : rhea.filter.selector(selector);
    const found = [];
    connection.open_receiver({ source: { address, filter }, credit_window: 2 });
    connection.on('message', ({ message }) => {
        found.push([message.application_properties.device_id, message.body.content.toString()]);
        if (found.length === count) {
            done(found);
        }
    });
});
