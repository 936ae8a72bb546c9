"""Soak: the demo's parts with two bridges, for a long time, under every kind of fault; or counted reconnects.

`breaker`: applies the scheduled faults
`certificates`: short certificates, which gateways renew by themselves, and their counts
`cli`: command line
`command_judgement`: commands beside the faults; pure
`flat`: rules for memory and counts that must not grow; pure
`lines`: faulty lines between the parts
`machines`: backup, restore and empty card of a gateway
`reconnects`: planned ends of connections, for counted reconnects
`run`: the soak from start to verdict
`sampling`: samples of the memory and counts of each process
`schedule`: schedule of faults, drawn from a seed; pure
`verdict`: results of a soak; pure
"""
