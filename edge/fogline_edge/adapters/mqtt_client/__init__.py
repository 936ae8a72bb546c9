"""A client of an existing MQTT broker. paho speaks the protocol; the event loop drives paho.

`access`: address, password and certificates of the broker
`client`: connects and reconnects
`commands`: commands to the devices behind the broker
`connection`: one connection to the broker
`inflow`: messages into the port, and the counts of the client
`intake`: a message as an arrival
`session`: the order of acknowledgements, and messages that may be retransmissions
`profiles`: the profile of the settings
`state`: the state of the clients, as `fogline-edge status` shows it
`socket_stream`: the socket, without blocking the loop
"""
