"""Who may come in: connections before and at their login, and what ends them.

`authentication`: establishes who a peer is
`entrance`: which peers may come in, and those that are in
`handshakes`: connections whose peers have not been let in
`listener`: accepts connections and links
`passwords`: the password file of operators' programs
`revocation_feed`: the list of revoked certificates, over Kafka
`withdrawals`: ends what open connections may use no longer
"""
