"""The check of the file before it is opened, and the salvage of a damaged one.

`carving`: rows of a damaged file
`found_streams`: the streams and events that were found in it
`integrity`: the check of the file before it is opened
`salvage`: a damaged file into a new one
"""
