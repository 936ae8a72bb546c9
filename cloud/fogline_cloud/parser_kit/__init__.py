"""Tools for writers of parsers: `fogline parser new`, `test` and `deploy`.

`deploying`: deploys parsers
`packing`: packs the folder of a parser as a wheel
`parser_check`: checks a parser before it is deployed
`recent_events`: the last events of a kind from table `raw`
`sample_events`: a file with events for a test
`skeleton`: the files of a new parser
`trial`: runs a parser as the flow does
"""
