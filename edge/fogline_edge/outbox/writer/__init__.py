"""The writer's thread: it alone uses the open file.

`clock_correction`: times of events stored before the clock was set
`drop_oldest`: deletion of the oldest events of a lane
`event_encoder`: arrivals as events
`event_template`: JSON of events that differ in few attributes
`expiry`: events past their message expiry
`file_room`: the bound of the file, and the policy of a full one
`group_commit`: groups in transactions, and the items that wait for room
`housekeeping`: statements of counts, expiry, and corrected times
`ingest`: one group of arrivals in one transaction
`quarantine`: events that the bridge rejected, and gap records
`reactor`: what rules do about stored events
`reading`: events of a stream for the uplink
`rejection`: rejected events into quarantine
`renumbering`: events into new streams
`store`: connection, transactions, and the state that mirrors the rows
`stream_views`: the state of streams for hello
`writer`: the thread and its queue
`writer_queue`: the items of the thread's queue, and calls from the loop
"""
