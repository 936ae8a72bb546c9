"""Values and rules of commands, and the operator's Python client.

`approval`: who may approve a command that needs two operators
`client`: the operator's Python client
`command_id`: identifiers of commands
`command_life`: decides about a command, from its first record to its verdict
`kafka_form`: responses in the form of Hono's Kafka API
`kafka_request`: the command in a Kafka record
`newest_commands`: the commands that a client asks for
`record`: the record of a command on Kafka
`registry`: all commands of a shard
`reply_lane`: checks of the replies that gateways send
`request`: the command in an operator's message
`routes`: the gateway that reaches each device
`succession`: which record of a command may follow which
"""
