"""OSCORE: CoAP messages that only the device and its gateway read (RFC 8613), with AES-CCM-16-64-128 and HKDF SHA-256.

`context`: the keys of one security context, and what they seal and open
`context_table`: the contexts in use, their replay windows, and the gateway's own sequence numbers
`door`: requests on their way to the request handler, and responses on their way back
`object_security`: the OSCORE option
`sealed_command`: commands to devices that are CoAP servers
"""
