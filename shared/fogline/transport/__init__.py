"""Below the protocols: TLS, sockets, proxies, framing and logins of HTTP, and one budget of bytes.

`byte_budget`: one budget of bytes for the unfinished input of all peers
`certificate_names`: names in certificates
`http_framing`: rules of HTTP that h11 leaves to its user
`http_login`: Basic authentication
`proxy`: the way out through a SOCKS5 or HTTP proxy
`tls`: the TLS layer, without IO
`unnamed_sockets`: sockets that wait for their clients
"""
