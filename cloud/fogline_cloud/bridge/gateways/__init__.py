"""Connected gateways: hello, batches, statistics, enrolment.

`connected_gateways`: the gateways that are connected
`copy_numbers`: numbers the copies of a gateway's outbox
`enrolment`: issues certificates to gateways
`fleet`: the gateways of this bridge's shards, and what they report
`gateways`: hello, batches and statistics
`hello_pacer`: limits the rate at which gateways connect
"""
