"""The gateway's durable queue of events: one SQLite file, written by one thread.

`age`: the gateway's own running time
`carving`: rows of a damaged file
`clock_correction`: times of events stored before the clock was set
`copy_file`: the number of this copy of the outbox
`data_folder`: the folder of the file, with its lock
`drop_oldest`: deletion of the oldest events of a lane
`duplicate_filter`: new event, duplicate or unchanged report
`event_encoder`: arrivals as events
`event_template`: JSON of events that differ in few attributes
`expiry`: events past their message expiry
`file_room`: the bound of the file, and the policy of a full one
`free_space`: free pages of the file, and errors that mean a full disk or damage
`full_record`: the last time without room, for `status`
`gathering`: the next group, and when it is handed over
`group_commit`: groups in transactions, and the items that wait for room
`group`: the rows of one transaction
`housekeeping`: statements of counts, expiry, and corrected times
`ingest`: one group of arrivals in one transaction
`integrity`: the check of the file before it is opened
`last_seen`: counter values of advertisers, in memory
`live_rows`: committed rows on the event loop
`memory_entry`: an entry of the memory of duplicates
`memory_expiry`: deletion of old memory of duplicates
`outbox`: the file, its thread, and their interfaces on the event loop
`pages`: SQLite's file format
`port`: the interface for adapters, with limits of what may wait
`quarantine`: events that the bridge rejected, and gap records
`queries`: the named SQL queries
`reading`: events of a stream for the uplink
`recognition`: identity of an event, by what its device gives
`rejection`: rejected events into quarantine
`renumbering`: events into new streams
`resend_memory`: the last message of each packet id
`salvage`: a damaged file into a new one
`schema`: the file, opened with the newest schema; the migrations
`startup`: the file before it is used
`store`: connection, transactions, and the state that mirrors the rows
`stored_body`: event bodies as the file stores them
`stream_views`: the state of streams for hello
`streams`: state and counts of each stream
`uplink_streams`: the interface for the uplink, which reads and settles events
`writer_queue`: the items of the thread's queue, and calls from the loop
`writer`: the thread and its queue
"""
