"""The gateway: devices' events, stored on disk before they are acknowledged, sent over one AMQP connection.

`adapters`: the protocols of devices
`backup`: a gateway in one file, for another machine
`ble_settings`: settings of Bluetooth LE
`boot`: the machine's clocks
`cli`: the command `fogline-edge`
`diagnosis_archive`: packs `fogline-edge diag`
`doctor`: checks everything that a gateway needs
`downlink`: commands from the bridge to devices
`enrolment`: gets certificates
`event_spans`: spans of traced events
`fixed_file`: a file that is overwritten in place
`first_settings`: writes the first settings file
`gateway`: the composition root
`machine`: the health of the machine, from the kernel's files
`metrics`: the metrics and the health of a gateway
`outbox`: the durable queue of events
`process_end`: causes of the end of a run
`profiles`: knowledge about device types
`renewal`: renews the certificate in time
`replaced`: a gateway that a restored copy has replaced
`reset`: wipes a gateway
`run_record`: the present run, and the ends of the last ones
`settings`: the settings file
`settings_check`: rules that the settings' types cannot express
`settings_types`: types of the settings' tables
`statistics`: the gateway's numbers for its bridge
`status`: what a running gateway holds
`uplink`: the connection to the bridge
`watchman`: watches memory and wall clock
"""
