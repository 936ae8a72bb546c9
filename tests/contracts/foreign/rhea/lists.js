// A reader of a list. Options: `address`; `properties` of the link. Prints [names of the devices, the number of the others].
'use strict';

const { run } = require('./client.js');

run((connection, { address, properties }, done) => {
    const found = [];
    connection.open_receiver({ source: address, properties });
    connection.on('message', ({ message }) => {
        if (message.subject === 'complete') {
            done([found, message.application_properties.more]);
        } else {
            found.push(JSON.parse(message.body.content.toString()).device);
        }
    });
});
