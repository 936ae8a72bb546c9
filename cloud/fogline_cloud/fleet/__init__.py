"""The fleet over time: table `fleet`, which counts the events of each device by day, and the questions that it answers.

`buckets`: the steps by which sizes and delays are counted
`changes`: the days of `events` that changed
`events_source`: table `events`, as far as it is counted
`fleet_files`: one version of table `fleet`, and the commit that replaces days of it
`fleet_table`: table `fleet`, up to date
`questions`: coverage, silence, lateness, sizes and health
`summary`: rows of `fleet` from rows of `events`
"""
