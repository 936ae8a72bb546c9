"""What a process tells of itself in numbers.

`metrics`: the list of all metrics
`metrics_server`: `/metrics` and `/healthz`
`statistics`: counters that SIGUSR1 prints
"""
