"""More shards for a tenant that runs already.

`reshard`: the steps, and what moves
"""
