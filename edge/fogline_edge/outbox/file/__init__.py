"""The database file, its schema and queries, and the files beside it in the data folder.

`age`: the gateway's own running time
`copy_file`: the number of this copy of the outbox
`data_folder`: the folder of the file, with its lock
`free_space`: free pages of the file, and errors that mean a full disk or damage
`full_record`: the last time without room, for `status`
`pages`: SQLite's file format
`queries`: the named SQL queries
`schema`: the file, opened with the newest schema; the migrations
"""
