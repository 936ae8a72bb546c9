"""What descriptions of the API's operations are made of.

`parts`: parts of an OpenAPI document
"""
