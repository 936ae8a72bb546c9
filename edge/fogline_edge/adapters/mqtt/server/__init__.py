"""Sockets, timers and the dispatch of commands of the MQTT listener.

`access`: the files of users and of TLS
`body_reader`: large bodies of a connection
`connection`: the life of one client's socket
`deadline_timer`: a timer for a deadline that moves
`dispatch`: commands to the connections of their devices; wills and notifications to the port
`effect_runner`: performs the effects of one connection, and stops reading it
`event_feed`: committed events to the subscribers
`listener`: accepts connections
`reader`: bytes from the socket to the state machine
`session_expiry`: restores sessions, and ends them in time
`websocket_layer`: MQTT over WebSocket
`wills`: wills that wait for their delay
"""
