"""The Spark flow: raw records out of Kafka, parsed once, into two Delta tables and the derived topics.

An event's way: `source` (Kafka) -> `parse` around `outcome` (the decision, pure) -> `commit` (one commit decides) ->
`sinks` (what is derived from that commit). `schema` says what the tables hold, `job` wires it all.
"""
