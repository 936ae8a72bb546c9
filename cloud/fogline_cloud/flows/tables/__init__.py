"""The tables as files and commits, by Arrow and delta-rs: ledger, maintenance and queries read them without Spark.

`batch`: one micro-batch and its files, as values
`change_reader`: one reader of a table's changes, as a value
`dead_letters`: rows that were not parsed, read without Spark
`delta_log`: a flow's commits, through delta-rs
`files`: Parquet files in the tables' folders
`id_keys`: finds the files that may hold an event
`own_commits`: notices commits that another program has overwritten
`owner`: the owner of a flow's tables
`readers`: who has read which version of a table
`schema`: the tables' columns, their meaning and their Arrow types
`table_features`: features of Delta tables that the flow's writers would break
`table_history`: the commits of a table
`table_log`: the log of a table, to read
"""
