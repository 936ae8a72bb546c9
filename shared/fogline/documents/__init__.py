"""Bodies and documents of peers: JSON, content types, and what is wrong with them in words. No IO.

`document_error`: what is wrong with a document, in words
`json_document`: JSON of a peer, decoded within limits
`json_payload`: selects payloads that travel as JSON, not as base64
`media_type`: the check of content types
"""
