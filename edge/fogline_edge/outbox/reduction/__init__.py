"""Rules that reduce, at the file: what is kept back, and the windows. Used on the writer's thread.

`reducer`: events that rules keep back
`window_table`: windows of rules in the file
"""
