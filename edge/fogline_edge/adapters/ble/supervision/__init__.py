"""Decisions about the radio: its problem, and the next remedy. Pure.

`bluez_state`: state of BlueZ and its adapters, and the problem in it
`ladder`: escalation of remedies against silence
`outages`: times without scanning
`pause_budget`: budget of scan pauses
`scan_mode`: whether the next scan is active or passive, and why
`supervisor`: decides about the radio
"""
