"""Commands, desired states and the registry of devices, for operators and applications.

`approvals`: takes approvals of commands that need a second operator
`cancels`: requests to cancel commands
`command_key`: the key that names commands
`command_search`: reads the commands that a client asks for
`command_sender`: sends commands, requests to cancel and questions to gateways
`command_table`: all commands, with their timers and waiting operators; performs what `commands.command_life` decides
`desired_states`: sends desired states as commands
`device_feed`: the table of devices, from Kafka
`devices`: changes of the registry of devices
`early_verdicts`: verdicts that operators get before Kafka has them
`kafka_commands`: commands that applications write to Kafka
`list_sender`: sends one list as its client takes it
`lists`: lists of devices and commands, for clients
`notices`: notes in the audit what clients are about to do elsewhere
`operators`: commands of operators
`replies`: sends replies to operators
`silent_devices`: the number of silent devices, as metrics
`verdict_waiters`: who waits for the end of a command
"""
