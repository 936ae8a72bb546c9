"""Doubles of a bridge.

`accepting_bridge`: a bridge that accepts every batch of events
`command_records`: records of commands, and replies
`command_side`: the parts of a bridge that handle commands
"""
