"""Tenants with bridges and gateways, on a real Kafka broker.

`bridge_pair`: two bridges that share the shards of a tenant
`line`: a bridge and gateways in this process
`process_line`: bridges as child processes, gateways under load
`secure_line`: a bridge with TLS and an authority of its own
`via_line`: a router or a broker between gateways and bridges
"""
