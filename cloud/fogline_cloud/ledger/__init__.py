"""Compares gateways' counts, Kafka and the tables: every event must be in each of them once.

`arrow_rows`: streams, contiguous sequences and fingerprints of many rows at once
`balance`: the verdict on one stream
`evidence`: collects the evidence about each stream
`ranges`: sets of sequences as ranges
`readings`: compares the readings of `events` with the rows of `readings`
`sources`: reads Kafka and the tables
"""
