"""The operator's page: the line, devices and commands in a browser, beside the HTTP API (docs/decisions/0052).

`console`: the composition root: its routes
`csv_lines`: rows as CSV
`guard`: sessions, and proof that a form is ours
`live_pages`: how many pages may renew themselves
`one_thread`: answers slow questions one after the other
`pages`: the pages
`proof`: the page that says whether a day is complete
`rendering`: the templates, and the headers of each page
`rollouts`: one command for many devices
`sessions`: the users who are logged in
`shown`: texts, times and bytes as a page shows them
`static_files`: style, script and libraries

It decides nothing about rights: each handler asks what the API asks, and what it changes goes the way of the API's requests.
"""
