"""The group of bridges: which of them owns which shard.

`shard_assignment`: divides the shards among the bridges, and knows their owners
`route_feed`: the routes to devices, of all bridges
`shard_table`: the shards of this bridge, and calls from their threads
"""
