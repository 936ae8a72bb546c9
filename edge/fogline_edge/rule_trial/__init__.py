"""Rules on events that are neither stored nor sent, for who writes rules.

`explain`: what the rules do with an event, step by step
"""
