"""The soak: the demo's line with two bridges, for long, under every kind of fault; or a thousand reconnects in one life.

The reconnects are those of gateways to bridges, or of Bluetooth devices to gateways. In the modules:
`cli` command line; `schedule` what happens when, by a seed (pure); `breaker` does it to the parts, `lines` to what is
between them; `reconnects` how each connection ends in the other mode; `sampling` what each process holds meanwhile;
`flat` whether that stays the same (pure), `verdict` everything that was found (pure), `plot` the picture of it (pure);
`run` puts it together. Devices, parts, and the comparison of sets of ids are the demo's.
"""
