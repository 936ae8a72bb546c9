"""Commands from the bridge to devices, and their answers.

`budget`: limits of the open commands
`cancellations`: requests to cancel commands
`command_task`: decides about a command at its gateway
`device_queues`: order of the commands of each device
`downlink`: commands from the bridge, reports from the adapters
`history_reader`: the command that reads the events that rules kept back
`journal`: the durable record of commands
`open_commands`: open commands by id, with their deadlines
`runner`: execution of commands
"""
