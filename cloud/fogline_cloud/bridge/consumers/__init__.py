"""Events out of Kafka to AMQP consumers, and events of AMQP clients.

`client_events`: events of AMQP clients
`consumer_feed`: reads a topic for one consumer of events
`consumers`: consumers of events
`event_messages`: Kafka records as messages for consumers
`settled_offsets`: the position of a consumer
"""
