"""The HTTP API: a client of the bridges over AMQP, and a reader of Kafka (docs/decisions/0031).

`api`: the composition root
`app`: the routes, and the problems as responses
`command_index`: all commands, and requests that wait for one
`command_routes`: sends and shows commands
`context`: the parts that the handlers share
`desired_routes`: shows and replaces desired states
`device_routes`: shows the registry of devices
`documents`: what the OpenAPI document is made of
`event_routes`: takes events of services
`feed`: the latest states and readings
`http_door`: accepts connections, and bounds TLS handshakes
`http_rules`: rules of HTTP that uvicorn leaves to the application
`http_server`: uvicorn with limits
`logins`: the users that are logged in
`openapi`: the OpenAPI document
`parsers`: deployments of parsers
`preconditions`: conditional requests
`problems`: the problems that clients get
`requests`: reads bodies and parameters
`sending`: sends messages to the bridge
`stream_route`: server-sent events
`user_session`: the AMQP connection of one user
"""
