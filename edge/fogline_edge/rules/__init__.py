"""What the settings decide about events before they are stored. All of it is pure, and runs within the insert transaction.

`event_rules`: all rules of the settings, in the order of their steps
`fields`: one value of a payload, named by a JSON pointer or a range of bytes
`payload`: the payload of one arrival, decoded once for all rules
`selection`: the rules that apply to an arrival
"""
