"""Messages between a gateway and its bridge beside events and commands. No IO.

`credential_transfer`: keys of devices on their way to a gateway
`device_credentials`: keys with which devices prove their names
`enrolment`: tokens and messages of a gateway that enrols
`gateway_statistics`: a gateway's present numbers for its bridge
`hello`: the first request and reply on a connection
`ledger`: counts of a stream that a gateway sends
`message_signature`: signatures of messages, for gateways and bridges with a router between them
`settlement`: signed outcomes of signed messages
`shown_certificate`: checks a certificate that a message shows
`signed_session`: which signed messages count
"""
