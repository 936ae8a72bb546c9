"""DTLS 1.2 with pre-shared keys under CoAP (RFC 7252, section 9; RFC 6347; RFC 4279), with connection ids (RFC 9146).

`cipher_suites`: cipher suites, their keys, and the protection of records
`client_hello`: what a client offers
`cookies`: cookies of HelloVerifyRequest
`diffie_hellman`: ephemeral keys of a handshake
`dtls_counters`: counters
`effects`: effects of the server
`handshake`: the handshake of one client
`handshake_table`: the handshakes of all clients
`replay_window`: sequence numbers that were seen
`server`: all handshakes and sessions: datagrams in, effects out
`session`: a session, and its endpoint
`session_table`: the sessions, within their bounds
`transport`: the socket and the timer
`wire`: records and handshake messages, and their encoding
"""
