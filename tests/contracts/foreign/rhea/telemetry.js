// Messages without an answer: events, and one-way commands. Options: `target`, the address of the link, or null for the
// anonymous relay; `messages` [{body, to, subject, content_type, properties}], `body` one text or
// one for each Data section. Prints the outcomes in the order of the messages.
'use strict';

const { rhea, run, outcomes } = require('./client.js');

run((connection, { target, messages }, done) => {
    const sender = connection.open_sender({ target: target === null ? {} : { address: target } });
    const told = [];
    const deliveries = [];
    sender.once('sendable', () => {
        for (const message of messages) {
            const body = [].concat(message.body).map((part) => Buffer.from(part));
            deliveries.push(
                sender.send({
                    to: message.to,
                    subject: message.subject,
                    content_type: message.content_type,
                    application_properties: message.properties,
                    body: rhea.message.data_sections(body),
                }),
            );
        }
    });
    outcomes(sender, (delivery, outcome) => {
        told[deliveries.indexOf(delivery)] = outcome;
        if (Object.keys(told).length === messages.length) {
            done(told);
        }
    });
});
