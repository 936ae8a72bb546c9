"""Bluetooth LE without a radio: a virtual air, and what stands in for BlueZ on a real D-Bus daemon.

`air` is bumble's: broadcasters and peripherals, the bytes of real ones. `bus` starts a private `dbus-daemon`. `bluez` is
`org.bluez` there, its radio a central on the air; it fails as BlueZ 5.66 and 5.82 did, whenever a test says so. An unmodified
program that is given the bus's address by `DBUS_SYSTEM_BUS_ADDRESS` scans, connects, reads and writes.

Needs bumble, dbus-fast and Debian's package `dbus`.
"""
