"""Commands to devices: requests, states, cancellations and signatures.

`cancel`: a request to cancel a command
`command`: commands, replies and their states
`history`: the command that asks a gateway for events that its rules kept back
`signature`: Ed25519 signatures of commands
"""
