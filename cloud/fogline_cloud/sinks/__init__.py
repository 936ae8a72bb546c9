"""Sinks: a table of the flow in a database, exactly once, and as Parquet files. No Spark.

`columns`: which columns a sink writes, and which of them identify a row
`commits`: the entries of a Delta log, as values
`database`: a database over ADBC: transactions, rows in, rows out
`dialects`: SQL of PostgreSQL, DuckDB and SQLite
`export`: a table as Parquet files
`failures`: errors of databases by the reaction that they need
`lag`: how far sinks are behind their tables
`place`: the address of a database
`plan`: which commits make a transaction
`position`: what a sink has written, as its database keeps it
`sink`: follows a table
`source`: a table's commits and rows, read by delta-rs
`values`: rows as a database takes them
"""
