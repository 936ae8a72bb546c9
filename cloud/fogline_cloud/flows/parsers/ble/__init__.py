"""Parsers for Bluetooth LE: advertisements and values of characteristics.

`advertisement`: parser `ble-advertisement`; picks a decoder by service or manufacturer
`beacons`: decoders of iBeacon and Eddystone-TLM
`bthome`: decoder of BTHome v2
`decoding`: the interface of decoders
`extras`: decoders from libraries that are installed separately
`gatt`: parser `ble-gatt`; values of characteristics
`keys`: keys of devices that encrypt their advertisements
`ruuvi`: decoder of Ruuvi's formats
"""
