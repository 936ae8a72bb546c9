"""The topics of Eclipse Hono and of the settings. Pure.

`acl`: the further devices that a user speaks for
`intake`: a PUBLISH to an arrival
`responses`: command responses
`subscriptions`: topic filters for commands
`topics`: a topic's device and lane
"""
