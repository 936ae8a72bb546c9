"""Sockets, timers and the dispatch of commands of the MQTT listener.

`access`: the rules for listening and logging in, and the files of users and TLS
`connection`: the life of one client's socket
`deadline_timer`: a timer for a deadline that moves
`dispatch`: commands to the connections of their devices; wills and notifications to the port
`effect_runner`: performs the effects of one connection, and stops reading it
`listener`: accepts connections
`reader`: bytes from the socket to the state machine
`session_expiry`: restores sessions, and ends them in time
`shared_buffer`: reads all sockets into one buffer
`tls_connection`: a client's socket that speaks TLS
`wills`: wills that wait for their delay
"""
