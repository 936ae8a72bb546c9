"""Gateways for tests, whole or in parts.

`connected_gateway`: outbox, downlink and uplink in this process
`gateway_process`: `fogline-edge run` as a child process
`keyed_gateway`: a gateway that takes keys of devices
`outbox_use`: an outbox on a real file, as an adapter and the uplink use it
"""
