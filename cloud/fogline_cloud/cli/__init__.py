"""The command line `fogline`, with one module for each group of subcommands.

`access`: `fogline access`
`audit`: `fogline audit`
`bridge`: `fogline bridge`
`ca`: `fogline ca`
`command`: `fogline command`
`common`: shared options
`flow`: `fogline flow`
`gateway`: `fogline gateway`
`ledger`: `fogline ledger`
`main`: the whole command line
`topics`: `fogline topics`
`user`: `fogline user`
"""
