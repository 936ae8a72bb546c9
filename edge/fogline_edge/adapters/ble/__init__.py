"""Bluetooth LE on Linux: advertisements, and connections to listed devices. bleak speaks to BlueZ.

`adapter`: composition, and the path to the port
`bleak_manager`: bleak's errors, and repairs of its shared connection to BlueZ
`bluez`: watches BlueZ on D-Bus
`bluez_state`: state of BlueZ and its adapters, and the problem in it
`connect_attempt`: connection attempts, one at a time
`counters`: counters of the adapter
`gatt_commands`: commands as writes to characteristics, and ATT errors as replies
`gatt_connection`: one connection: characteristics, notifications and reads
`intake`: advertisements and values as arrivals
`ladder`: escalation of remedies against silence
`link`: connects to one listed device again and again
`outages`: times without scanning
`pause_budget`: budget of scan pauses
`radio`: driver that performs the supervisor's effects
`read_schedule`: times of reads, and BlueZ's echoes
`roster`: devices of the settings, and known devices
`scan`: `fogline-edge ble scan`
`scan_results`: results of a scan
`scanner`: the scanner
`state`: the state that `fogline-edge status` shows
`state_publisher`: publishes that state
`supervisor`: decides about the radio
"""
