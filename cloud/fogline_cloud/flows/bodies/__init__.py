"""Large bodies beside the tables.

`body_folder`: the folder of all bodies
"""
