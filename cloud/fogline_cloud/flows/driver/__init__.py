"""Drives Spark: the session, the streaming queries, and the commits of a micro-batch.

`ble_keys_file`: the file with keys of Bluetooth devices
`checkpoint`: state of Spark's checkpoint folder
`class_archive`: writes an archive of Spark's classes, with which a flow starts sooner
`commit`: the four steps of a micro-batch, in the driver
`deployments`: chooses the deployed parsers of each micro-batch
`key_cache`: copies of key files on the driver's disk
`metrics`: the metrics and the health of a flow
`parsed_sink`: the sink of the parsing query
`plan`: how the flow parses
`probation`: parsers that have ended their process
`query`: a streaming query
`raw_sink`: the sink of the query that writes table `raw`
`retried_task`: a task that Spark tries again
`session`: the Spark session
`source`: the raw topics
`spark_failure`: Spark's failures as one line, by reaction
`spark_kafka_options`: Kafka settings for Spark's Java client
`table_creation`: creates the tables with Spark
`worker_daemon`: Spark's daemon of Python workers, with the flow's modules loaded
"""
