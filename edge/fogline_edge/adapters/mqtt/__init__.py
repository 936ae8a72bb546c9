"""The MQTT server for devices, versions 3.1.1 and 5.0.

The server acknowledges a message after its commit, and never sends a command twice where the device could run it twice.

`counters`: counts of the listener
`hono`: topics: a PUBLISH as an event, subscriptions to commands
`protocol`: control packets and their bytes
`server`: sockets, timers and the dispatch of commands
`session`: the state machine of one client
"""
