"""The credentials of devices at the gateway: which keys count now, and how they come from the bridge.

`credential_file`: the credentials on the disk
`credential_store`: the keys that count, for adapters
`credential_updates`: the messages of the bridge
`refusal_reasons`: why no key counts
"""
