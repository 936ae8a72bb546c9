"""Connections to listed devices, and their characteristics (GATT).

`commands`: commands as writes to characteristics, and ATT errors as replies
`connection`: one connection: characteristics, notifications and reads
`link`: connects to one listed device again and again
`read_schedule`: times of reads, and BlueZ's echoes
"""
