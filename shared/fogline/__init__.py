"""The values that cross the wire between gateway, bridge and flow, and the rules for them. The values do no IO.

`address`: identifiers, names of devices, and AMQP addresses
`advertisement`: the AD structures of a Bluetooth LE advertisement
`amqp`: AMQP 1.0 on proton's engine
`commands`: commands to devices: requests, states, cancellations and signatures
`connection_clock`: the end of a time to live, on the clock of the other side of a connection
`dead_letter`: messages of a device that cannot become an event
`documents`: bodies and documents of peers: JSON, content types, and what is wrong with them in words
`errors`: errors by the reaction that they ask for
`events`: events of devices: identity, gaps, and their forms on the wire
`gateway`: messages between a gateway and its bridge beside events and commands
`installed`: finds Java and the jars of the set-up
`message`: an AMQP message as a value
`process`: command line, settings and statistics of a process
`short_cache`: a bounded cache of short texts
`tracing`: OpenTelemetry spans of events
`transport`: below the protocols: TLS, sockets, framing and logins of HTTP, and one budget of bytes
"""
