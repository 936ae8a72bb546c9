"""Who may do what at a bridge.

`access_file`: the file `access.toml`
`policy`: the one place that decides
`principal`: an authenticated peer
`quotas`: how much a peer may do
"""
