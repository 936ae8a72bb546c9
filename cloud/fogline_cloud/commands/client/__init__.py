"""The operator's Python client, and what it hears of a command.

`command_group`: one command for many devices
`id_notice`: tells an operator the id of its command
`operator`: sends commands over one connection
`operator_security`: how an operator proves its name
`refusals`: the status of a refusal
`verdict`: what an operator hears of a command
"""
