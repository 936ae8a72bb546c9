"""Kafka as Fogline uses it: clients, topics, rights, and the form of its records.

`acl_admin`: creates and reads Kafka's ACLs
`clients`: the border to librdkafka
`committed_records`: reads committed Kafka records
`connection_settings`: files, secrets and contradictions in `[kafka]`
`consumer_thread`: a thread that uses one Kafka consumer
`hanging_transactions`: transactions without a marker (KIP-664)
`record_tail`: reads topics as they grow
`records`: Kafka records to events and back
`rights`: the rights of each process in Kafka
`topics`: names and properties of topics
"""
