"""Events of devices: identity, gaps, and their forms on the wire. No IO.

`bridge_notice`: notices of a bridge among the events of a shard
`codec`: batches and CloudEvents to bytes and back
`device_report`: what a program at a gateway says of its devices
`event`: the event and the arrival
`gap`: gap records
`identity`: semantic identities of events
`large_body`: bodies that travel in chunks, by reference
`report_on_change`: filters the repetitions of a device
`sample_line`: lines of files with sample events
"""
