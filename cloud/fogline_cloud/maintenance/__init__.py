"""Maintenance of the tables beside the running flow, by delta-rs. No Spark is needed.

`beside_flow`: runs maintenance at intervals, in a process of its own
`body_check`: large bodies that cannot be written, or that are past their time
`body_expiry`: deletes large bodies after their time
`doubled`: undoes a compaction of rows that another one had moved already
`forget`: removes what the tables hold about a device
`key_files`: the key files of table `events`
`maintain`: the steps of one maintenance run over all tables
`plan`: the days whose files are compacted, and the files of a Delta log that nobody needs
`raw_rows`: records of one device in table `raw`
`reader_lag`: the readers of the tables, and how far each is behind
`sorted_days`: closed days sorted by device
`table`: the steps on one table
"""
