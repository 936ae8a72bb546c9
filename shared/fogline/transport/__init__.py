"""Below the protocols: TLS, WebSocket, sockets, proxies, framing and logins of HTTP, and one budget of bytes.

`byte_budget`: one budget of bytes for the unfinished input of all peers
`certificate_names`: names in certificates
`http_framing`: rules of HTTP that h11 leaves to its user
`http_login`: Basic authentication
`proxy`: the way out through a SOCKS5 or HTTP proxy
`tls`: the TLS layer, without IO
`unnamed_sockets`: sockets that wait for their clients
`websocket`: WebSocket as a way for another protocol's bytes, without IO
`websocket_request`: what a client asks for, and the error of both sides
"""
