"""The bridge's event loop: AMQP connections of gateways, operators and other clients.

`audit_trail`: writes decisions about peers to the audit
`authentication`: establishes who a peer is
`bridge_group`: the group of bridges, which assigns the shards and knows their owners
`bridge`: the composition root
`cancels`: requests to cancel commands
`client_events`: events of AMQP clients
`command_key`: the key that names commands
`command_search`: reads the commands that a client asks for
`command_sender`: sends commands to gateways
`command_table`: the state of all commands, with their timers and waiting operators
`connected_gateways`: the gateways that are connected
`consumer_feed`: reads a topic for one consumer of events
`consumers`: consumers of events
`copy_numbers`: numbers the copies of a gateway's outbox
`desired_states`: sends desired states as commands
`device_feed`: the table of devices, from Kafka
`devices`: changes of the registry of devices
`early_verdicts`: verdicts that operators get before Kafka has them
`enrolment`: issues certificates to gateways
`event_messages`: Kafka records as messages for consumers
`fleet`: the gateways of this bridge's shards, and what they report
`forwarding`: sends on what belongs to the shards of other bridges
`gateways`: hello, batches and statistics
`handshakes`: connections whose peers have not been let in
`hello_pacer`: limits the rate at which gateways connect
`journal_lookups`: asks the journals of gateways for commands
`kafka_commands`: commands that applications write to Kafka
`listener`: accepts connections and links
`list_sender`: sends one list as its client takes it
`lists`: lists of devices and commands, for clients
`metrics`: the metrics and the health of a bridge
`operators`: commands of operators
`passwords`: the password file of operators' programs
`peer`: one connection to the bridge
`peer_table`: the open connections
`queue_budget`: limits on the bytes that are not settled yet
`replies`: sends replies to operators
`revocation_feed`: the list of revoked certificates, over Kafka
`route_feed`: the routes to devices, of all bridges
`settled_offsets`: the position of a consumer
`shard_table`: the shards of this bridge, and calls from their threads
`upstream`: the connection of one peer to another bridge
`verdict_waiters`: who waits for the end of a command
`withdrawals`: ends what open connections may use no longer
"""
