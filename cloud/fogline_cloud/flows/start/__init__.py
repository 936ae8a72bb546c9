"""What a flow looks at before it starts, without Spark: its checkpoint, its positions, and the owner of its tables.

`checkpoint_files`: the files of a checkpoint folder, read without Spark
`flow_state`: the state of a flow, and the way on after a gap
`lease`: refuses a second flow on one checkpoint
`positions`: the queries' positions in the raw topics
`retention_gap`: records that Kafka deleted before the flow had read them
`takeover`: a starting flow takes over its tables
`topic_ids`: recognises topics that were created again
"""
