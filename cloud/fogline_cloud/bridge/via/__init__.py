"""Gateways behind a router or a broker, to which the bridge connects out (docs/decisions/0062).

`control_line`: signed messages to one gateway, and their outcomes
`gateways_behind`: lets in gateways by signed hellos, and takes their signed messages
`intermediary`: the connection to one router or broker
`signed_gateway`: one gateway, as if it had a connection of its own
`via_links`: the links of one connection
`vias`: all routers and brokers of one bridge
"""
