"""Tools for writers of parsers: `fogline parser new` and `fogline parser test`.

`packing`: packs the folder of a parser as a wheel
`sample_events`: a file with events for a test
`skeleton`: the files of a new parser
`trial`: runs a parser as the flow does
"""
