"""The registry of devices: values and rules, and the client that changes it.

`argument_check`: checks a command's arguments by the JSON Schema of its device
`client`: changes devices over AMQP
`desired`: desired and reported state
`device_facts`: what operators are told of a device
`device_filter`: filters such as `type=lamp,site=berlin`
`device_search`: the devices that match, for an event loop
`device_table`: all devices of a tenant, in memory
`edits`: changes that an operator asks for
`own_devices`: the devices of one shard
`record`: the records of a device on Kafka
`silence`: devices that are silent for too long
`types_file`: the commands of each type of device
"""
