"""Behind a router or a broker: only what the bridge itself has signed counts (docs/decisions/0062).

`identity`: the gateway's key and certificate, and the authority of its bridges
`reports`: signed reports of the gateway
`signed_line`: the signed messages of one connection, both ways
`signed_sender`: sends batches, whose outcomes the bridge signs
"""
