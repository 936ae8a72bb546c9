"""The certificate authority in the box (RFC 5280).

`append_log`: files of lines that only grow
`certificates`: makes the root, certificates and lists of revoked ones
`ca_folder`: the files of the authority
`own_certificate`: checks the certificate of the bridge itself
`revocation`: the list of revoked certificates, as a bridge reads it
`signed_document`: documents that the service has signed
`tokens`: one-time tokens for enrolment
"""
