"""Parses stored events again, and replaces their rows: one commit per table.

`difference`: what a parser reads differently now
`landing`: the files that go and come in both tables
`micro_batches`: the finished micro-batches whose rows are replaced
`missing`: records of table `raw` that `events` lacks
`redrives`: carries out orders to parse events again
`reparse`: parses rows again, in a worker
`selection`: which rows to parse again
`slow_lane`: parses slow events again with a larger limit
`staging`: files that workers write
`stored`: reads rows with their records, in a worker
`swap`: a commit that removes and adds files
`table_replay`: one replay, from the selection of rows to the commits
`windows`: windows of time that are read one after the other
"""
