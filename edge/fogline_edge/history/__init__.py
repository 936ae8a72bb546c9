"""Events that rules kept back, and that the gateway keeps for some days, for people who want to look.

`history_command`: `fogline-edge history`
`history_file`: the file
"""
