"""AMQP 1.0 in four layers: an engine without IO, a pure scheduler, an asyncio driver, a client.

`backoff`: pauses between connection attempts, with full jitter
`client`: the connection of a client, which every program that connects to a bridge stands on, but the uplink
`dial`: connects a client's socket, direct or through a proxy
`driver`: one connection on one socket, with asyncio
`engine`: bytes in, bytes and events out, on proton
`events`: links, deliveries and the events of a connection
`link_table`: open links and unsettled deliveries
`links`: operations of this side on sessions, links and deliveries
`login`: how a peer logs in
`login_check`: tries whether a bridge lets this side in
`native`: conversion of proton's values
`outcome`: outcomes of deliveries
`peer_events`: operations of the peer on sessions, links and deliveries
`refusal`: tells a refusal from an outage
`sasl`: the SASL layer, both sides
`scheduler`: selects the link that sends next
`security`: TLS and SASL below AMQP
`sending`: messages that wait to be sent or settled
`wire`: messages to bytes and back
"""
