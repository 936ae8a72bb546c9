"""Doubles of devices.

`broker_program`: a device or program at an MQTT broker
`command_device`: a device that runs commands
`dtls_client`: a DTLS client made of bytes
`mqtt_lamp`: a small MQTT device that keeps its session
`mqtt_talk`: an MQTT client without a network
`mqtt_wire`: an MQTT client made of bytes
`oscore_client`: a device that seals its CoAP messages with OSCORE
`websocket_pipe`: a WebSocket client made of bytes
`zigbee2mqtt_program`: Zigbee2MQTT at a broker, without a radio
"""
