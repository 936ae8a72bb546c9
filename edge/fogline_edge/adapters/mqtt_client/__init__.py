"""A client of an MQTT broker that is there already.

`dial` makes the socket, `link` drives paho on it from the event loop for one connection, `inflow` puts what comes by it, and
`client` owns what outlives a connection. `acks`, `session` and `intake` decide without IO; `access` reads the files of the
settings.
"""
