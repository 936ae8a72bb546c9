"""The cloud side: bridge, commands, Spark flow and ledger.

`access`: who may do what
`api`: the HTTP API
`api_settings`: settings of the HTTP API
`audit`: the record of every decision
`authority`: the certificate authority
`bridge_exchange`: one question to a bridge
`bridge`: the AMQP listener on the event loop
`canonical_settings`: settings of the topics of readings
`cli`: the command `fogline`
`commands`: values and rules of commands
`console`: the operator's page
`credentials`: keys of devices
`device_address`: the device that a message is about
`devices`: the registry of devices
`fleet`: the fleet over time: who is heard, silent, late
`fleet_settings`: settings of what is expected of the fleet
`flows`: the Spark flow
`frames`: tables and topics as Spark DataFrames
`kafka`: clients, topics, rights and records of Kafka
`ledger`: compares gateways, Kafka and tables
`line_metrics`: what processes on this machine tell of the line
`listing`: lists of devices and commands, on the wire
`listing_client`: reads lists from a bridge
`maintenance`: maintenance of the tables beside the flow
`parser_kit`: tools for writers of parsers
`pipelines`: tables that users declare, by Spark's Declarative Pipelines
`rebuild`: another Kafka in the place of a lost one
`reshard`: more shards for a tenant that runs already
`selector`: selector filters of AMQP consumers
`settings`: the settings file
`shard`: the thread that writes to Kafka
`sink_settings`: settings of the databases that sinks fill
`sinks`: a table in a database, exactly once
`store`: the object store of tables and checkpoint
`table_settings`: settings of the maintenance of tables and large bodies
`unused_settings`: keys of the settings that another key switches off
"""
