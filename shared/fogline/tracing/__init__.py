"""OpenTelemetry spans of events whose devices take part in a trace. Only `exporter` and `collector` do IO.

`activation`: starts the export of a process, if its settings ask for it
`collector`: posts spans to a collector over HTTP
`context`: the trace that an event belongs to (W3C Trace Context)
`exporter`: the queue of finished spans, and the thread that empties it
`otlp`: spans as OTLP/JSON
`settings`: the table `[tracing]`
`spans`: a span as a value, and its attributes
"""
