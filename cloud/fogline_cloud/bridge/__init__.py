"""The bridge's event loop: AMQP connections of gateways, operators and other clients.

`bridge`: the composition root
`commands`: commands, desired states and the registry of devices
`consumers`: events to and from AMQP clients
`credentials`: keys of devices, and their way to gateways
`door`: connections before and at their login
`gateways`: connected gateways
`group`: the group of bridges
`metrics`: the metrics and the health of a bridge
`operator_files`: permissions, types of devices and the key of commands, from files
`peers`: the connections that have logged in
`via`: gateways behind a router or a broker
"""
