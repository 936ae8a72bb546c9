"""MQTT 3.1.1 and 5.0: the gateway's own listener. Acknowledged means committed.

Bottom up. Pure: `wire` (primitives, reasons, errors), `properties`, `packets` (codec), `framing` (bytes to whole
packets), `topics` (topic to device and lane), `intake` (PUBLISH to arrival), `sessions` (which ones exist), `window`
(what is in flight), `greeting` (CONNECT, CONNACK), `session` (one client's state machine). IO: `users` (the password
file), `flow` (packets to the port and PUBACKs back), `connection` (one socket), `listener`.
"""
