"""The object store of tables and checkpoint (S3), and what flow, ledger and maintenance need to use it.

`failure`: errors of delta-rs, Spark and the store's own client as one sentence, by the reaction that they need
`key_file`: the keys to the store, in a file of AWS's form
`object_folder`: a folder of small objects, each put once
`options`: `[store]` as options of delta-rs and of Spark
`probe`: a look at the store, and at whether it knows put-if-absent
"""
