"""Compares gateways' counts, Kafka and the tables: every event must be in each of them once.

`balance`: the verdict on one stream
`ranges`: sets of sequences as ranges
`sources`: reads the sequences in Kafka and in the tables
"""
