"""Files that users write: settings, certificates, and whose rights a process needs for them.

`bridge_address`: where a bridge listens, also over WebSocket
`durable_file`: files whose content is on the disk
`owner`: root acts in another user's folder as that user
`settings_file`: TOML files into types
`tls_files`: TLS from the files that the settings name
`unused_settings`: refuses keys that another key switches off
`user_file`: text files that users write
`via_place`: where a router or a broker is, and how to log in there
`via_settings`: a router or a broker between gateways and bridges
"""
