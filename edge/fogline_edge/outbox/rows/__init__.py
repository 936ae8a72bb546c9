"""The rows of streams, events and memory, as values.

`command_rows`: new commands in the journal
`group`: the rows of one transaction
`memory_entry`: an entry of the memory of duplicates
`message_rows`: messages of rules that are not published yet
`stored_body`: event bodies as the file stores them
`streams`: state and counts of each stream
"""
