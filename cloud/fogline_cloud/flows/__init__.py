"""The Spark flow: keeps raw records in a Delta table, and parses them once, into two Delta tables and the derived topics.

`attempt`: what a Spark task knows about its former attempts
`batch`: one micro-batch and its files, as values
`careful_runner`: runs the parsers of a task, in its process or in a child
`checkpoint`: state of Spark's checkpoint folder
`checkpoint_files`: the files of a checkpoint folder, read without Spark
`claim`: the claim of a starting flow to its tables
`class_archive`: writes an archive of Spark's classes, with which a flow starts sooner
`classify`: the outcome of one raw record
`commit`: the four steps of a micro-batch, in the driver
`cross_gateway_dedup`: compares rows that several gateways may have sent
`dead_letters`: rows that were not parsed, read without Spark
`delta_log`: commits through delta-rs
`derive`: readings and derived records
`failure`: Spark's failures as one line, by reaction
`files`: Parquet files in the tables' folders
`guard`: limits on time and memory that hold in native code
`id_keys`: finds the files that may hold an event
`isolation`: runs parsers in a child process
`job`: the running flow
`kafka`: Kafka settings for Spark's Java client
`kept_record`: the raw record of a row, from what the row keeps
`key_file`: the file with keys of Bluetooth devices
`lease`: refuses a second flow on one checkpoint
`metrics`: the metrics and the health of a flow
`overruns`: bounds the time lost to parsers that overrun
`owner`: the owner of a flow's tables
`parse`: one pass of parsing over Arrow batches
`parse_spans`: spans of traced events
`parsed_sink`: the sink of the parsing query
`parser_choice`: the parser for an event
`parser_runner`: runs a parser on one event
`parsers`: the parser plugins
`plan`: how the flow parses
`positions`: the queries' positions in the raw topics
`probation`: parsers that have ended their process
`publish`: derived records to Kafka
`query`: a streaming query
`raw_rows`: rows of table `raw`
`raw_sink`: the sink of the query that writes table `raw`
`replay`: parses stored events again
`retention_gap`: records that Kafka deleted before the flow had read them
`schema`: the tables' columns, their meaning and their Arrow types
`session`: the Spark session
`slow_lane`: parses slow events again with a larger limit
`source`: the raw topics
`state`: the state of a flow, and the way on after a gap
`table_creation`: creates the tables with Spark
`table_features`: features of Delta tables that the flow's writers would break
`table_history`: the commits of a table
`tasks`: the work of Spark's workers
`time_limit`: a limit on the CPU time of a call
`topic_ids`: recognises topics that were created again
`worker_daemon`: Spark's daemon of Python workers, with the flow's modules loaded
"""
