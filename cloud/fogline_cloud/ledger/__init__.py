"""Is every event where it should be, once? From Kafka and the tables alone.

`ranges` sets of numbers (pure); `balance` the verdict on one stream (pure); `sources` what Kafka and the tables hold.
"""
