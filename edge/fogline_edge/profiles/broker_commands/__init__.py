"""Commands to devices behind a broker: what to publish, and what the messages after it prove. Pure.

`answer`: a command whose answer names it
`directory`: the devices behind a broker, and which of them are reachable
`echo`: a command whose device shows its new state
`exchange`: one command at the broker, and its verdict; the interface of a program's commands
`last_states`: the last state that each device showed
`zigbee2mqtt`: commands to devices and groups of Zigbee2MQTT, and to Zigbee2MQTT itself
`zigbee2mqtt_errors`: failures in Zigbee2MQTT's log
`zigbee2mqtt_state`: states that Zigbee2MQTT publishes, as the echo of a command
`zigbee2mqtt_values`: values of a command, compared with those of a report
"""
