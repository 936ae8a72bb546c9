"""The operator's page: the line, devices and commands in a browser, beside the HTTP API (docs/decisions/0052).

`console`: the composition root: its routes
`device_pages`: the fleet, and each device
`device_query`: what a reader asks of the list of devices
`guard`: sessions, and proof that a form is ours
`rendering`: the templates, and the headers of each page
`sessions`: the users who are logged in
`shown`: texts, times and bytes as a page shows them
`static_files`: style, script and libraries

It decides nothing about rights: each handler asks what the API asks, and what it changes goes the way of the API's requests.
"""
