"""Commands that set up and check the cloud side: certificates, users, rights, topics, audit.

`access`: `fogline access`
`audit`: `fogline audit`
`ca`: `fogline ca`
`doctor`: `fogline doctor`
`gateway`: `fogline gateway`
`topics`: `fogline topics`
`user`: `fogline user`
"""
