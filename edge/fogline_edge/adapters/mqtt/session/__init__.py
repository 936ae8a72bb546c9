"""The state machine of one MQTT client (sections 3 and 4 of the standard). Pure: packets in, effects out.

`ack_order`: PUBACKs and PUBRECs in the order of their PUBLISHes
`client_protocol`: the state machine of one connection
`connect`: CONNECT and CONNACK
`downstream`: subscriptions and commands of one connection
`effects`: IO that the state machine asks the server for
`inbound`: PUBLISHes from the client
`inflight`: commands in flight by Packet Identifier
`large_publish`: messages with a large body
`outbound`: commands to the client
`outbound_events`: events to a subscriber
`puback_delivery`: evidence that a client received a PUBACK
`session_state`: Session State, and its stored form
`sessions`: all sessions of the listener
`subscriber`: a client that reads events
`wills`: the will of a connection, and the memory of all wills
"""
