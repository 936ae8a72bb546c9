"""From the outbox to the bridge over one AMQP connection.

`window` which rows go next and what an outcome means (pure); `lanes` the links; `pump` one stream; `session` one
connection with its hello; `uplink` connections one after the other, for ever.
"""
