"""The connections that have logged in: what each may hold, and how it reaches the bridge that owns a shard.

`audit_trail`: writes decisions about peers to the audit
`forwarding`: sends on what belongs to the shards of other bridges
`peer`: one connection to the bridge
`peer_table`: the open connections
`queue_budget`: limits on the bytes that are not settled yet
`upstream`: the connection of one peer to another bridge
"""
