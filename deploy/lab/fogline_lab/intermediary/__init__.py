"""What stands between a gateway and its bridges: a router's stand-in, and a real broker.

`accepting_engine`: the server's side of an AMQP connection, on proton itself
`amqp_socket`: one accepted AMQP connection, with asyncio
`artemis`: a real Artemis, which a test starts and kills
`artemis_files`: its settings files
`hostile_router`: the same router in the hands of an enemy
`link_events`: what the peers of a router do
`mischief`: what an enemy does to messages
`outgoing_queues`: messages that leave over one connection, interleaved
`passage`: links of a router, and messages on their way
`router`: a stand-in of Qpid Dispatch and skupper-router
`router_links`: links of a router by their addresses, and credit
`routing`: receivers and outcomes of messages in a router
"""
