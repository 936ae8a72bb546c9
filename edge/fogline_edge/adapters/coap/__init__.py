"""The CoAP server for devices (RFC 7252, RFC 7959). 2.04 means that the event is committed.

`access`: the rule for listening beyond this machine
`blocks`: block-wise transfer with Block1
`command_client`: commands to devices that are CoAP servers
`command_polls`: commands in the response to a poll
`command_response`: commands as responses
`counters`: counters of the listener
`dtls`: DTLS under the messages of devices with a key
`exchanges`: recent exchanges and their responses
`intake`: requests as arrivals
`limits`: rate limits of endpoints
`listener`: the socket, and composition
`message_layer`: the message layer
`observations`: commands as notifications to devices that observe
`oscore`: OSCORE around the messages of devices with a key
`paced_upload`: a large body that comes in blocks
`paths`: device and lane of a path
`request_handler`: requests to the port, responses after the commit
`requests`: options of a message as a request
`udp_socket`: a UDP socket
`wire`: messages, their encoding, and Content-Format numbers
"""
