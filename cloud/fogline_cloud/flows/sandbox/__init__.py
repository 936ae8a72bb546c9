"""Runs parsers so that none of them harms more than the event that it reads. No Spark is needed.

`careful_runner`: runs the parsers of a task, in its process or in a child
`guard`: limits on time and memory that hold in native code
`isolation`: runs parsers in a child process
`overruns`: bounds the time lost to parsers that overrun
`parser_runner`: runs a parser on one event
`time_limit`: a limit on the CPU time of a call
"""
