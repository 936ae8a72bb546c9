"""The values that cross the wire between gateway, bridge and flow, and the rules for them. The values do no IO.

`address`: identifiers, names of devices, and AMQP addresses
`advertisement`: the AD structures of a Bluetooth LE advertisement
`amqp`: AMQP 1.0 on proton's engine
`bridge_notice`: notices of a bridge among the events of a shard
`byte_budget`: one budget of bytes for the unfinished input of all peers
`cancel`: a request to cancel a command
`certificate_names`: names in certificates
`codec`: batches and CloudEvents to bytes and back
`command`: commands, replies and their states
`connection_clock`: the end of a time to live, on the clock of the other side of a connection
`dead_letter`: messages of a device that cannot become an event
`document_error`: what is wrong with a document, in words
`enrolment`: tokens and messages of a gateway that enrols
`errors`: errors by the reaction that they ask for
`event`: the event and the arrival
`gap`: gap records
`gateway_statistics`: a gateway's present numbers for its bridge
`hello`: the first request and reply on a connection
`http_framing`: rules of HTTP that h11 leaves to its user
`http_login`: Basic authentication
`identity`: semantic identities of events
`installed`: finds Java and the jars of the set-up
`json_document`: JSON of a peer, decoded within limits
`json_payload`: selects payloads that travel as JSON, not as base64
`ledger`: counts of a stream that a gateway sends
`media_type`: the check of content types
`message`: an AMQP message as a value
`process`: command line, settings and statistics of a process
`report_on_change`: filters the repetitions of a device
`short_cache`: a bounded cache of short texts
`signature`: Ed25519 signatures of commands
`tls`: the TLS layer, without IO
`tracing`: OpenTelemetry spans of events
`unnamed_sockets`: sockets that wait for their clients
"""
