"""Below the protocols: TLS, sockets, framing and logins of HTTP, and one budget of bytes.

`byte_budget`: one budget of bytes for the unfinished input of all peers
`certificate_names`: names in certificates
`http_framing`: rules of HTTP that h11 leaves to its user
`http_login`: Basic authentication
`tls`: the TLS layer, without IO
`unnamed_sockets`: sockets that wait for their clients
"""
