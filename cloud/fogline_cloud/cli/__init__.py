"""The command line `fogline`, with one module for each group of subcommands.

`access`: `fogline access`
`api`: `fogline api`
`audit`: `fogline audit`
`bridge`: `fogline bridge`
`ca`: `fogline ca`
`command`: `fogline command`
`command_cancel`: `fogline command cancel`
`command_group`: `fogline command send --where` and `fogline command group`
`command_send`: `fogline command send`
`common`: shared options
`dead`: `fogline dead`
`device`: `fogline device`
`doctor`: `fogline doctor`
`flow`: `fogline flow`
`flow_replay`: `fogline flow replay`
`flow_state`: `fogline flow status` and `fogline flow resume`
`gateway`: `fogline gateway`
`ledger`: `fogline ledger`
`main`: the whole command line
`operator_link`: the bridge that operators' commands use
`parser`: `fogline parser`
`table`: `fogline table`
`times`: times as people type them
`topics`: `fogline topics`
`user`: `fogline user`
"""
