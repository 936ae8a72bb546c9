"""Keys of devices at the cloud: who may have one, and how long it counts. No IO but the file of the vault's keys.

`credential_record`: a device's keys on Kafka
`credential_table`: the keys of all devices
`key_edits`: changes that an operator asks for
`vault`: seals what goes to Kafka
"""
