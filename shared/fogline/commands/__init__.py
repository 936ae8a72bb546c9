"""Commands to devices: requests, states, cancellations and signatures.

`cancel`: a request to cancel a command
`command`: commands, replies and their states
`signature`: Ed25519 signatures of commands
"""
