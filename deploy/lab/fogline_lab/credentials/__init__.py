"""Certificates and passwords for tests.

`authority_folder`: an authority, with the files of a bridge and its peers
`mosquitto_passwords`: password files as mosquitto writes them
`mqtt_tls_files`: an MQTT listener with TLS, and its clients
"""
