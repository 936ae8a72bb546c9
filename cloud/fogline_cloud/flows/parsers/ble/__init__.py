"""Bluetooth LE: what devices broadcast, and the values of their characteristics, to readings.

Every event is read by itself: nothing is remembered from one to the next, so that a replay decides what the first try did.
A counter that goes back, or does not move, is a reading like any other; who is a duplicate was decided before.

Metrics have the same name and unit whatever device they come from. Units are those of SenML's registry (RFC 8428,
RFC 8798: `Cel`, `%RH`, `hPa`, `lx`, `V`, `dBm`, ...) where it has one.
"""
