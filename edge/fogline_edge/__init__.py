"""The gateway: devices' events, stored on disk before they are acknowledged, sent over one AMQP connection.

`adapters`: the protocols of devices
`ble_settings`: settings of Bluetooth LE
`body_settings`: settings of large bodies
`broker_settings`: settings of topics, and of clients of other brokers
`cli`: the command `fogline-edge`
`credentials`: the keys with which devices prove their names
`downlink`: commands from the bridge to devices
`event_spans`: spans of traced events
`gateway`: the composition root
`listener_settings`: settings of listeners for devices on the network
`history`: events that rules kept back, and that the gateway keeps for some days
`machine`: the machine and the process
`operate`: the work of who operates a gateway
`outbox`: the durable queue of events
`profiles`: knowledge about device types
`rule_settings`: settings of the rules for events
`rule_trial`: rules on events that are not stored
`rules`: what the rules decide about events before they are stored
`settings`: the settings file
`settings_types`: types of the settings' tables
`unused_settings`: keys of the settings that another key switches off
`uplink`: the connection to the bridge
"""
