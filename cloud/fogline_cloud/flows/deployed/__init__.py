"""Parsers that their teams deploy beside the installed ones: how they are stored, loaded, and compared with the former one.

`isolated_import`: imports a parser from its own folder, whatever else has modules of these names
`loaded_parsers`: the parsers of one micro-batch, installed and deployed
`parser_log`: the log of deployments, and the files that it names, in the tables' folder
`parser_set`: the parsers that are deployed, and what a deployment changes
`trial`: a new parser beside the former one
`trial_report`: what a trial showed, and when a flow goes back
`unpacked`: unpacks wheels on this machine
`wheel`: the file of a deployed parser
"""
