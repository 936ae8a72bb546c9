"""The Spark flow: keeps raw records in a Delta table, and parses them once, into two Delta tables and the derived topics.

`bodies`: large bodies beside the tables
`cluster`: a flow on a cluster: its environment, its start, its executors
`deployed`: parsers that their teams deploy
`driver`: drives Spark
`job`: the running flow
`orders`: what operators ask of a running flow
`parsers`: the parser plugins
`replay`: parses stored events again
`sandbox`: runs parsers, within limits
`start`: what a flow looks at before it starts
`tables`: the tables as files and commits
`worker`: what a worker does with raw records
"""
