"""The topics of Eclipse Hono and of the settings. Pure.

`event_filters`: topic filters of subscribers, and their rights
`intake`: a PUBLISH to an arrival
`local_events`: events as messages for subscribers
`responses`: command responses
`subscriptions`: topic filters for commands
`topics`: a topic's device and lane
"""
