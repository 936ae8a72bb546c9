"""The operator's side: commands from acceptance to their end.

`record` what is known of one command (pure); `registry` all of a shard's, and which state may follow which; `remembered`
keys that are forgotten at their bounds (pure); `command_id` makes and checks identifiers (pure); `reply_lane` checks gateways'
replies (pure); `inquiry` asks a gateway's journal about a direct command;
`routes` which gateway reaches a device; `work` what a shard's thread writes of it; `dispatch` between operators and
gateways, on the loop; `desk` the operators' AMQP links; `client` the other end of them, for the command line.
"""
