"""What operators ask of a running flow, beside its tables.

`redrive_orders`: orders to parse events again that were not parsed
"""
