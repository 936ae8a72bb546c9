"""The HTTP server for devices, in the form of Eclipse Hono's HTTP adapter. 202 means that the event is committed.

`access`: logins, and the rule for listening beyond this machine
`cloud_events`: CloudEvents in requests
`codec`: HTTP/1.1 by h11
`command_polls`: commands in the response to a report
`connection`: one client's socket
`counters`: counters of the listener
`exchange`: one request, and its one response
`intake`: requests as arrivals
`last_response`: whether the client has read the last response
`listener`: the server socket, and composition
`paths`: device and lane of a path
`request_body`: the body of a request while it comes
`request_handler`: requests to the port, responses after the commit
`request_loop`: the requests on a connection
`wire`: requests and responses
"""
