"""Commands to devices behind a broker: what to publish, and what the messages after it prove. Pure.

`answer`: a command whose answer names it
`directory`: the devices behind a broker, and which of them are reachable
`echo`: a command whose device shows its new state
`exchange`: one command at the broker, and its verdict; the interface of a program's commands
`field`: an echo of one value on a topic of its own
`last_states`: the last state that each device showed
`plain`: commands that the settings declare
`shelly`: commands to Shelly devices
`tasmota`: commands to devices with Tasmota
`values`: values of a command, compared with those of a report
`zigbee2mqtt`: commands to devices and groups of Zigbee2MQTT, and to Zigbee2MQTT itself
`zigbee2mqtt_errors`: failures in Zigbee2MQTT's log
`zigbee2mqtt_state`: states that Zigbee2MQTT publishes, as the echo of a command
"""
