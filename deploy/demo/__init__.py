"""The demo: the whole of Fogline on one machine, under load, while its parts are killed one after the other.

`cli` command line; `place` folder, ports, settings files; `parts` child processes; `devices` the simulated devices (a
process of its own: `mqtt_device`, `coap_device`; `simulated` is what they have in common) and `payload` what they say;
`commander` the operator, `orders` what it sends (pure); `watch` what has arrived where, into `picture`; `screen` shows it;
`ble_devices` the virtual air (a process of its own), `ble_payload` who is on it and says what (pure), `ble_judgement` what
can be told of it (pure); `plan` who is killed next (pure), `killer` does it; `judgement` compares sets of ids, and what became
of commands (pure), `evidence` reads them, `report` is everything together; `course` what every run has in common; `run` puts
it together, `stay` without devices and kills.
"""
