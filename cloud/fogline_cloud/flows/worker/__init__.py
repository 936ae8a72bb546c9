"""What a worker does with raw records, from Kafka's bytes to Parquet files and derived records. No Spark is needed.

`classify`: the outcome of one raw record
`cross_gateway_dedup`: compares rows that several gateways may have sent
`derive`: readings and derived records
`large_bodies`: lets parsers read large bodies
`parse`: one pass of parsing over Arrow batches
`parse_spans`: spans of traced events
`parser_choice`: the parser for an event
`publish`: derived records to Kafka
`raw_rows`: rows of table `raw`
`row_headers`: the headers of a record, from what its row keeps
`tasks`: the work of a Spark task, and its result
"""
