"""From the bridge to a device: commands, and what becomes of them.

`journal` the durable record (same file as the outbox); `recall` what a restart makes of it (pure); `lines` who waits for
which device; `budget` how much may wait (pure); `downlink` which command goes next, to whom, until when.
"""
