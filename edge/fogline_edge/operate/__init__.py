"""The work of who operates a gateway: first settings, certificates, state, checks, backup and reset.

`backup`: a gateway in one file, for another machine
`diagnosis_archive`: packs `fogline-edge diag`
`doctor`: checks everything that a gateway needs
`enrolment`: gets certificates
`final_delivery`: delivers what a replaced gateway still has
`first_settings`: writes the first settings file
`metrics`: the metrics and the health of a gateway
`renewal`: renews the certificate in time
`reset`: wipes a gateway
`settings_check`: rules that the settings' types cannot express
`statistics`: the gateway's numbers for its bridge
`status`: what a running gateway holds
`via_check`: the part of doctor about a router or a broker
"""
