"""The command line `fogline`, with one module for each group of subcommands, in three rooms.

`administration`: commands that set up and check the cloud side: certificates, users, rights, topics, audit
`api`: `fogline api`
`bridge`: `fogline bridge`
`common`: shared options
`main`: the whole command line
`operators`: commands that operators use: they speak with a bridge, and need no Kafka
`tables`: commands about the tables: the flow that writes them, dead events, parsers, the ledger
"""
