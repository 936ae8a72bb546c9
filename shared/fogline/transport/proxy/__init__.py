"""The way out of a site that lets connections out only through a proxy. Pure.

`proxy_address`: the address of a proxy, and the login there
`tunnel`: the exchange with a proxy, up to the first byte of the peer behind it
`socks5`: the exchange with a SOCKS5 proxy
`http_connect`: the exchange with an HTTP proxy
`proxy_errors`: who is at fault, and what to do
"""
