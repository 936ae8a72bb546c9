"""Demo: all of Fogline on one machine, under load, while its parts are killed one after the other.

`ble_devices`: simulated Bluetooth devices and BlueZ, a process of its own
`ble_judgement`: comparison of advertised, stored and tabled values; pure
`ble_payload`: Bluetooth devices and their advertisements; pure
`certificate_changes`: one certificate is renewed and one revoked, under load
`certificate_judgement`: comparison of a revoked gateway's acknowledged, landed and kept events; pure
`certificates`: authority and certificates of a run
`cli`: command line
`coap_device`: one simulated CoAP device
`commander`: operator that sends commands and reads their results
`device_log`: what devices write down of themselves
`devices`: simulated MQTT and CoAP devices, a process of its own
`evidence`: event ids read from the devices' file, Kafka and the table
`freshness`: times from acknowledgements to rows, and from Spark's start to its next commit; pure
`hall`: a hall whose gateway switches a fan by rules, also while the bridge is away
`judgement`: comparison of sets of event ids, and of commands with their records and effects; pure
`killer`: kills parts and waits for their recovery
`mqtt_device`: one simulated MQTT device
`operator_commands`: commands of the operator; pure
`page_watch`: how soon the operator's page shows a kill
`payload`: MQTT and CoAP devices and their messages; pure
`plan`: order of the kills; pure
`polling`: waits for conditions that give no event
`probes`: readers of outboxes, Kafka, tables and the parts' output
`report`: results of a run; pure
`row_watch`: notes when a table's files are seen
`run`: the demonstration from start to report
`scenario`: steps that demo and soak share: start, drain, ledger
`screen`: live screen in a terminal
`serve`: all parts on the usual ports, without devices and kills
`simulated`: interface of a simulated device
`site`: the parts as child processes
`snapshot`: current state of every stage
`workspace`: folder, lock, ports and settings files
"""
