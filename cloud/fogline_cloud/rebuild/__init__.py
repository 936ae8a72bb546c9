"""Makes another Kafka take the place of a lost one: records from table `raw`, high-water marks, and the flow's positions.

`held`: what Kafka holds of each stream, and how far the tables have it
`raw_records`: reads table `raw` in the order of the log
`rebuild`: the steps
`shards`: writes records as the owner of every shard
`state_records`: compares registry, commands and audit with those of another Kafka
`tables`: how far the tables have each stream
"""
