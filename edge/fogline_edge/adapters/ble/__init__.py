"""Bluetooth LE on Linux: what advertisers say, and devices that are connected to. BlueZ does the radio, bleak speaks to it.

`supervisor` decides what to do about the radio, `ladder` what against silence, `radio` does it; `bluez` watches the daemon and
the adapter, which bleak does not. `intake` makes arrivals of what is heard, `roster` knows who was heard when; `link` is one
device's connection, `attempt` makes it, `airtime` bounds for how long that may pause scanning, `turns` decides when it is read,
`writing` carries commands. `adapter` puts them together; `scan` is the command that lists what is heard.
"""
