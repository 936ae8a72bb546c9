"""The work of a shard: each piece writes its records within the shard's transaction.

`command_changes`: command records within a transaction
`device_changes`: changes of the registry of devices within a transaction
`key_changes`: changes of devices' keys within a transaction
`land_trace`: spans of traced events
`submissions`: batches and client events within a transaction
"""
