"""The topics of Eclipse Hono and of the settings. Pure.

`intake`: a PUBLISH to an arrival
`responses`: command responses
`subscriptions`: topic filters for commands
`topics`: a topic's device and lane
"""
