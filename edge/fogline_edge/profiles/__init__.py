"""Knowledge about device types and well-known programs: tables and pure functions.

`ble`: a type of Bluetooth LE device, declared in TOML
`ble_files`: profile files, built in and your own
`ble_scan`: active or passive scans, as profiles need them
`ble_values`: command arguments as bytes of a characteristic
`broker_commands`: commands to devices behind a broker
`bthome`: the objects of a BTHome payload
`names`: the names that a program has published
`patterns`: patterns of topics and paths
`plain`: topics that the settings declare
`profile`: the interface of a profile
`shelly`: Shelly's topics
`tasmota`: Tasmota's topics
`zigbee2mqtt`: Zigbee2MQTT's topics
"""
