"""Rules on events that are neither stored nor sent, for who writes rules.

`commands`: `fogline-edge rules`
`events`: events for a trial, from a file
`explain`: what the rules do with an event, step by step
`trial`: events through the code of a gateway, over an outbox that is thrown away
"""
