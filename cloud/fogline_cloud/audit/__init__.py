"""The audit: every decision about a peer or a command, on `fogline.audit`, in one chain for each shard.

`chain`: links the records of a shard, and finds what is missing or changed
`record`: one decision
`throttle`: limits the records that one peer may cause
"""
