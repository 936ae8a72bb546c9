"""The operator's page: the line, devices and commands in a browser, beside the HTTP API (docs/decisions/0052).

`argument_form`: a form from the JSON Schema of a command's arguments
`audit_page`: who did what
`command_pages`: commands, the form of each, and their life
`console`: the composition root: its routes
`csv_lines`: rows as CSV
`device_commands`: the commands that a device takes, and that a user may send
`device_page`: one device
`device_rows`: reads a device's rows of the tables, one question at a time
`fleet_page`: the devices that match
`fleet_search`: what a reader asks of the list of devices
`flow_page`: what the flow has read, and what it could not
`guard`: sessions, and proof that a form is ours
`live_pages`: how many pages may renew themselves
`one_thread`: answers slow questions one after the other
`proof`: the page that says whether a day is complete
`rendering`: the templates, and the headers of each page
`sessions`: the users who are logged in
`shown`: texts, times and bytes as a page shows them
`static_files`: style, script and libraries

It decides nothing about rights: each handler asks what the API asks, and what it changes goes the way of the API's requests.
"""
