"""The adapters, one package for each protocol. They reach the outbox only through the port.

`bind_error`: the reason why a listener cannot bind
`ble`: Bluetooth LE
`bodies`: large bodies
`coap`: CoAP
`device_acl`: further devices that a user speaks for
`http`: HTTP
`mqtt`: the MQTT server
`mqtt_client`: a client of an MQTT broker
`port`: the interface between adapters and the rest
`send_limit`: the end of a command's bytes at its deadline
`sockets`: TCP sockets of devices, and TLS
`users`: the password file
"""
