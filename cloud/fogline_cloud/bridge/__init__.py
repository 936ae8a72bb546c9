"""From gateways' AMQP connections into Kafka, exactly once.

`admission` what may land (pure); `kafka` the client library's border; `checkpoint` where to begin reading; `recovery`
what is committed, from the records themselves; `shard` one shard's thread and transactions; `ownership` which shards
are ours; `listener` the AMQP side; `bridge` all of it together.
"""
