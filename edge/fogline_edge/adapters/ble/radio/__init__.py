"""The Bluetooth adapter of the machine, by BlueZ and bleak: scans, connection attempts, resets.

`bleak_manager`: bleak's errors, and repairs of its shared connection to BlueZ
`bluez`: watches BlueZ on D-Bus
`connect_attempt`: connection attempts, one at a time
`radio`: driver that performs the supervisor's effects
`scanner`: the scanner
"""
