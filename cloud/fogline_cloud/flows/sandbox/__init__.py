"""Runs parsers so that none of them harms more than the event that it reads. No Spark is needed.

`child`: runs parsers in a child process
`memory_limit`: a limit on the memory of a process
`overruns`: bounds the time lost to parsers that overrun
`parser_runner`: runs a parser on one event
`task_parsers`: the parsers of one task, here or in a child
`time_limit`: a limit on the CPU time of a call
"""
