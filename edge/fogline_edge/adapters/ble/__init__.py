"""Bluetooth LE on Linux: advertisements, and connections to listed devices. bleak speaks to BlueZ.

`adapter`: composition, and the path to the port
`counters`: counters of the adapter
`gatt`: connections to listed devices
`intake`: advertisements and values as arrivals
`radio`: the machine's Bluetooth adapter
`roster`: devices of the settings, and known devices
`scan`: `fogline-edge ble scan`
`scan_results`: results of a scan
`state`: the state that `fogline-edge status` shows
`state_publisher`: publishes that state
`supervision`: decisions about the radio
"""
