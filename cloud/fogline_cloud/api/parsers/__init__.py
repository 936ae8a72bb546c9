"""Deployments of parsers over HTTP.

`parser_operations`: the operations in the OpenAPI document
`parser_routes`: the handlers
"""
