"""The gateway's durable queue of events: one SQLite file, written by one thread.

The modules here are called on the event loop.

`file`: the database file, and the files beside it
`gathering`: the next group, and when it is handed over
`live_rows`: committed rows on the event loop
`memory`: the memory of duplicates
`outbox`: the file, its thread, and their interfaces on the event loop
`port`: the interface for adapters, with limits of what may wait
`reduction`: rules that reduce, at the file
`rows`: the rows as values
`salvage`: a damaged file
`startup`: the file before it is used
`uplink_streams`: the interface for the uplink, which reads and settles events
`window_timer`: windows of rules that close without arrivals
`writer`: the thread that writes the file
"""
