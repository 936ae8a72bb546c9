"""Bluetooth LE without a radio: virtual devices, and a stand-in for BlueZ on a real `dbus-daemon`.

`adapter1`: `org.bluez.Adapter1`: power and discovery
`air`: broadcasters, with the payloads of real ones
`bluez`: stand-in for bluetoothd
`bus`: a private message bus
`central`: radio of the stand-in
`controller`: the virtual air, and bumble's controllers, completed
`device_cache`: `org.bluez.Device1` of received devices
`gatt_client`: a GATT client that behaves as bleak's
`gatt`: connections of the stand-in, and their characteristics
`monitors`: passive scans
`objects`: D-Bus objects with properties
`peripheral`: a connectable device
"""
