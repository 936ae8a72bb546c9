"""Keys of devices at a bridge: the topic, changes, and their way to the gateways.

`credential_distribution`: sends every gateway the keys of the devices that it may hear
`credential_feed`: the table of keys, from Kafka
`device_keys`: changes by operators, and lists
"""
