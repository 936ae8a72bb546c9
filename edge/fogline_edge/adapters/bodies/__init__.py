"""Large bodies of devices, whatever the protocol: stored in chunks while they come (`fogline.events.large_body`).

`stored_body`: a body as the pure parts of adapters see it
`upload`: one body while it comes
`uploads`: all bodies that come, and their limits
"""
