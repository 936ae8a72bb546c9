"""Below the protocols: TLS, WebSocket, sockets, proxies, framing and logins of HTTP, and one budget of bytes.

`byte_budget`: one budget of bytes for the unfinished input of all peers
`certificate_names`: names in certificates
`http_framing`: rules of HTTP that h11 leaves to its user
`http_login`: Basic authentication
`loopback`: addresses of this machine that no other machine reaches
`proxy`: the way out through a SOCKS5 or HTTP proxy
`tls`: the TLS layer, without IO
`unnamed_sockets`: sockets that wait for their clients
`websocket`: WebSocket as a way for another protocol's bytes, without IO
`websocket_handshake`: the opening of a WebSocket at the server, and which web pages may open one
`websocket_request`: what is said about a WebSocket without its library
"""
