"""MQTT 3.1.1 and 5.0: the gateway's own listener. Acknowledged means committed, and no command is run twice.

Bottom up. Pure: `wire` (primitives, reasons, errors), `properties`, `packets` (codec), `framing` (bytes to whole
packets), `topics` (topic to device and lane), `intake` (PUBLISH to arrival), `subscriptions` (filters for commands),
`responses` (answers to them), `window` (what waits for its commit), `effects` (what is asked of the other side),
`flights` and `outbound` (commands under way), `kept` (a session's state), `sessions` (which ones exist), `inbound`
and `downstream` (one connection's two directions), `greeting` (CONNECT, CONNACK), `session` (one client's state
machine). IO: `users` (the password file), `dispatch` (devices to connections), `lasting` (wills, sessions' ends),
`outlet` and `flow` (packets to the port and back), `connection` (one socket), `listener`.
"""
