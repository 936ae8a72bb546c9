"""Commands that operators use: they speak with a bridge, and need no Kafka.

`command`: `fogline command`
`command_approve`: `fogline command approve`
`command_cancel`: `fogline command cancel`
`command_group`: `fogline command send --where` and `fogline command group`
`command_send`: `fogline command send`
`console`: `fogline console`
`device`: `fogline device`
`device_credentials`: `fogline device credentials`
`device_history`: `fogline device history`
`http_link`: the HTTP API that operators' commands use
`operator_link`: the bridge that operators' commands use
"""
