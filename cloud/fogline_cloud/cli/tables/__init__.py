"""Commands about the tables: the flow that writes them, dead events, parsers, the ledger, the fleet.

`dead`: `fogline dead`
`fleet`: `fogline fleet`
`flow`: `fogline flow`
`flow_cluster`: `fogline flow archive` and `fogline flow submit-options`
`flow_replay`: `fogline flow replay`
`flow_state`: `fogline flow status` and `fogline flow resume`
`ledger`: `fogline ledger`
`ledger_document`: `fogline ledger verify --document` and `fogline ledger check-proof`
`parser`: `fogline parser`
`parser_deploy`: `fogline parser deploy`, `list` and `rollback`
`pipeline`: `fogline pipeline`
`sink`: `fogline sink`
`table`: `fogline table`
"""
