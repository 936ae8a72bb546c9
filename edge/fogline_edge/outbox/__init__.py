"""The gateway's durable queue of events: one SQLite file, one thread that writes it.

`schema` the file and its migrations; `queries` the SQL; `recognition` what is a resend (pure); `streams` what is known
of each stream; `ingest` one group of arrivals in one transaction; `writer` the thread; `outbox` what the loop sees, `between`
how the two talk. Before the file is used: `opening`, `folder`, `health`, and if it is damaged `salvage`, `carving`, `pages`
(pure), `damage`. `times`: what the wall clock got wrong.
"""
