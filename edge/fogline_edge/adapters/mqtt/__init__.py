"""MQTT 3.1.1 and 5.0: the gateway's own listener. Acknowledged means committed.

Bottom up, pure but for the last three: `wire` (primitives, reasons, errors), `properties`, `packets` (codec), `framing`
(bytes to whole packets), `topics` (topic to device and lane), `intake` (PUBLISH to arrival), `sessions` (which sessions
exist), `session` (one client's state machine); `users` (the password file), `connection` (one socket), `listener`.
"""
