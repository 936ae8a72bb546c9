"""The thread of one shard, which lands events in Kafka exactly once.

`admission`: decides which events of a batch may be written
`checkpoint`: the compacted topic with the offsets to read from
`foreign_devices`: refuses events of devices that are bound to other gateways
`group_commit`: collects, commits and settles the deliveries of a transaction
`inbox`: the queue between event loop and thread
`owned_shard`: the state of a shard while this bridge owns it
`pace`: how much a transaction may hold, and how long it may take
`producer`: the transactional Kafka producer
`recovery`: reads the committed state from Kafka
`retirement`: forgets the streams that ended long ago
`shard`: the thread, which takes the shard and takes it again after errors
`shard_writer`: events, commands and routes as Kafka records
`sightings`: notes the last events of devices
`topic_admin`: creates and checks topics
`work`: what a transaction can hold
"""
