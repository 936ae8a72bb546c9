"""The pages: handlers that ask what the API asks, and give a template what it shows.

`argument_form`: a form from the JSON Schema of a command's arguments
`audit_page`: who did what
`command_pages`: commands, the form of each, and their life
`coverage_page`: how many devices of each type were heard on each day
`device_commands`: the commands that a device takes, and that a user may send
`device_page`: one device
`device_rows`: reads a device's rows of the tables, one question at a time
`fleet_page`: the devices that match
`fleet_search`: what a reader asks of the list of devices
`flow_page`: what the flow has read, and what it could not
`gap_words`: gap records in words
`gateways_page`: the gateways, with what waits in them
`line_page`: the whole line, alive
`line_state`: what is said of each part of the line, and what is wrong there
`liveness`: whether the parts of the line are there just now
`parser_times`: how long parsers take for an event
`silence_cause`: where to look for the cause if a device is silent
"""
