"""The command line of a process: words, output, and the log.

`command_line`: exit statuses, one-line errors, Ctrl-C, logging, no core files
`completion`: completion of the command line in shells
`journal`: the log, with fields if systemd's journal reads it
`listing`: prints rows, facts and times
`terminal`: prints text on an operator's terminal
`times`: times as people type them
"""
