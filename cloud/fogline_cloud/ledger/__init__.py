"""Compares gateways' counts, Kafka and the tables: every event must be in each of them once.

`arrow_rows`: streams, contiguous sequences and fingerprints of many rows at once
`balance`: the verdict on one stream
`coverage`: until when the tables are complete, by gateway
`day_changes`: decides which files of a day must be read after earlier ones were
`evidence`: collects the evidence about each stream
`identities`: the events of a day have identities of their own
`marked_records`: reads the records that came after the marks, and writes new marks
`marked_tables`: reads the rows that came after the marks, and writes new marks
`marks`: what rows and records that were read say about each stream
`marks_file`: a file of marks beside table `events`
`period_rows`: counts the rows of a period
`proof`: what the evidence proves for a period, or for a device
`proof_document`: the document to hand over
`ranges`: sets of sequences as ranges
`readings`: compares the readings of `events` with the rows of `readings`
`sources`: reads Kafka and the tables
`table_reader`: reads columns of a table's files, and the files of its commits
`verification`: verifies a period, for all devices or for one
"""
