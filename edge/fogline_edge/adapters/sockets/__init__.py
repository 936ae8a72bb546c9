"""TCP sockets of devices, for the MQTT listener and the HTTP server: where they listen, who gets in, and TLS.

`access_rules`: settings by which somebody could get in without a login
`certificate`: the device that a certificate names
`layer`: a connection with layers below it, and the transport of a layer
`listener_tls`: the TLS context of a listener, made again when its files change
`listening`: the server sockets of a listener
`send_queue`: the bytes that a peer has not got
`shared_buffer`: reads all sockets into one buffer
`tls_layer`: TLS between a socket and a connection
"""
