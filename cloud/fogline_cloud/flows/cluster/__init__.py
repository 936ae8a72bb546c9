"""A flow on a cluster: the environment of its executors, the way to start it, and a look at each executor before it begins.

`archive`: the environment as a zip file
`executor_answers`: what executors answered, compared with the driver
`executor_check`: asks each executor
`executor_probe`: what a process says about itself
`packages`: the installed packages that workers import
`submission`: the command line of spark-submit
"""
