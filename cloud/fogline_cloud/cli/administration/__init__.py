"""Commands that set up and check the cloud side: certificates, users, rights, topics, audit.

`access`: `fogline access`
`audit`: `fogline audit`
`ca`: `fogline ca`
`doctor`: `fogline doctor`
`gateway`: `fogline gateway`
`gateway_list`: `fogline gateway list`
`line_status`: `fogline status`
`topics`: `fogline topics`
`user`: `fogline user`
"""
