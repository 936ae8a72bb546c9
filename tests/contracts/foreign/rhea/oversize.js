// A message of `sizeBytes` to `target`, then a small one on another link of the same session, which was there before.
// Prints how the first link ended, and what became of the small message: {end, other}.
'use strict';

const { rhea, run, ended, outcomes } = require('./client.js');

run(async (connection, { target, sizeBytes }, done) => {
    const small = connection.open_sender(target);
    const big = connection.open_sender(target);
    const end = ended(big);
    big.once('sendable', () => big.send({ body: rhea.message.data_section(Buffer.alloc(sizeBytes)) }));
    const how = await end;
    outcomes(small, (_, outcome) => done({ end: how, other: outcome }));
    small.send({ body: rhea.message.data_section(Buffer.from('small')) });
});
