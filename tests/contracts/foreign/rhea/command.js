// Commands with an answer. Options: `device`, `ids` [[type, value as text]], each the correlation id of one command (binary: in hex);
// `header`, of each message. Prints the outcomes and the replies in the order of the ids: {outcomes, replies}.
'use strict';

const { rhea, run, outcomes } = require('./client.js');

const encode = {
    string: (text) => text,
    ulong: (text) => rhea.types.wrap_ulong(Number(text)),
    uuid: (text) => rhea.types.wrap_uuid(Buffer.from(text.replaceAll('-', ''), 'hex')),
    binary: (text) => rhea.types.wrap_binary(Buffer.from(text, 'hex')),
};
const types = { Str: 'string', Ulong: 'ulong', SmallUlong: 'ulong', Uuid: 'uuid', Vbin: 'binary' };

function decoded(message) {
    const type = types[message.correlation_type.replace(/[0-9]+$/, '')] || message.correlation_type;
    const value = message.correlation_id;
    const text = Buffer.isBuffer(value) ? value.toString('hex') : value.toString();
    return [type, type === 'uuid' ? text.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-') : text];
}

run((connection, { tenant, device, ids, header }, done) => {
    const replyTo = `command_response/${tenant}/rhea-1`;
    const receiver = connection.open_receiver({ source: replyTo });
    const sender = connection.open_sender(`command/${tenant}`);
    const told = [];
    const replies = [];
    const deliveries = [];

    receiver.once('receiver_open', () => {
        sender.once('sendable', () => {
            for (const [type, value] of ids) {
                deliveries.push(
                    sender.send({
                        ...header,
                        to: `command/${tenant}/${device}`,
                        subject: 'switch',
                        reply_to: replyTo,
                        correlation_id: encode[type](value),
                        content_type: 'application/json',
                        body: rhea.message.data_section(Buffer.from('{"on":true}')),
                    }),
                );
            }
        });
    });
    const look = () => {
        const settled = Object.values(told).filter(Boolean);
        const awaited = settled.filter((outcome) => outcome.state === 'accepted').length;
        if (settled.length === ids.length && replies.length === awaited) {
            done({ outcomes: told, replies });
        }
    };
    outcomes(sender, (delivery, outcome) => {
        told[deliveries.indexOf(delivery)] = outcome;
        look();
    });
    receiver.on('message', ({ message }) => {
        replies.push({
            correlation: decoded(message),
            status: message.application_properties.status,
            state: message.application_properties.state,
            device: message.application_properties.device_id,
            body: message.body.content.toString(),
        });
        look();
    });
});
