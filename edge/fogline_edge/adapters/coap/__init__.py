"""CoAP (RFC 7252, block-wise bodies by RFC 7959): the gateway's own server. Answered 2.04 means committed.

Bottom up. Pure: `wire` (datagrams to messages and back), `formats` (Content-Format numbers), `requests` (options to a
request), `paths` (path to device and lane), `intake` (request to arrival), `blocks` (bodies in blocks), `limits` (who
may send how much), `exchanges` (what a duplicate is answered with). IO: `udp` (the socket), `messages` (the message
layer: acknowledgements, separate responses), `finals` (last blocks, across a restart), `service` (requests to the
port), `asks` (commands to devices that ask), `serving` (commands to devices that serve; aiocoap is their client),
`listener`.

The server does not stand on aiocoap's: that one starts a task for each request, and a second request with the same
token cancels the first before it runs; it keeps whole messages in a cache without a bound, does not tell when a
separate response was acknowledged, and takes datagrams that RFC 7252 has rejected.
"""
