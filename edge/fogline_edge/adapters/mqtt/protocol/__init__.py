"""MQTT control packets and their bytes (sections 1 to 3 of the standard). Pure.

`framing`: a byte stream to whole packets
`packets`: the control packets and their codec
`primitives`: data types, reason codes, errors
`properties`: the properties of MQTT 5
"""
