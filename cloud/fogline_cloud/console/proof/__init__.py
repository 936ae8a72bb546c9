"""The page that says whether a day is complete, and gives a document to hand over.

`proof_desk`: makes proofs, one after the other, in a process of their own
`proof_page`: the handlers
"""
