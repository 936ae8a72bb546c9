"""Events that rules kept back, and that the gateway keeps for some days, for people who want to look.

`history_command`: `fogline-edge history`
`history_file`: the file
`history_pages`: the file in pages, for the command `fogline-history`
"""
