"""Events from the outbox to the bridge, over one AMQP connection.

`batch_delay`: delays new rows, so that batches grow
`hello_exchange`: hello and its answer
`lanes`: the links of the lanes
`pump`: sends one stream over one link
`session`: one connection, from hello to its end
`statistics_sender`: sends the gateway's statistics
`stream_pumps`: sends all streams of one connection
`uplink`: connections, one after the other
`via`: signed messages behind a router or a broker
`way`: where to connect, and how
`window`: in-flight batches of one stream
"""
