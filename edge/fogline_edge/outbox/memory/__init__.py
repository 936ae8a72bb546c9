"""The memory of duplicates: what an arrival may repeat. Used on the writer's thread.

`duplicate_filter`: new event, duplicate or unchanged report
`last_seen`: counter values of advertisers, in memory
`memory_expiry`: deletion of old memory of duplicates
`recognition`: identity of an event, by what its device gives
`resend_memory`: the last message of each packet id
"""
