"""The verdict of a command by its echo is a pure decision: every order of messages, against a plain model."""

import json

from hypothesis import given
from hypothesis import strategies as st

from fogline.commands.command import Reply
from fogline_edge.profiles.broker_commands.echo import EchoExchange
from fogline_edge.profiles.broker_commands.exchange import InDoubt, Publication
from fogline_edge.profiles.broker_commands.zigbee2mqtt_state import StateRules
from fogline_edge.profiles.profile import BrokerMessage

TOPIC, LOG = "zigbee2mqtt/plug", "zigbee2mqtt/bridge/logging"
OWN = Publication(f"{TOPIC}/set", b'{"state": "ON"}')
FAILED = "Publish 'set' 'state' to 'plug' failed: 'Error: (Status 'FAILURE')'"
STEPS = {
    "delivered": BrokerMessage(OWN.topic, OWN.payload),
    "on": BrokerMessage(TOPIC, b'{"state": "ON", "power": 3}'),
    "off": BrokerMessage(TOPIC, b'{"state": "OFF", "power": 0}'),
    "power": BrokerMessage(TOPIC, b'{"power": 3}'),
    "retained on": BrokerMessage(TOPIC, b'{"state": "ON"}', retained=True),
    "other plug on": BrokerMessage("zigbee2mqtt/other", b'{"state": "ON"}'),
    "fails": BrokerMessage(LOG, json.dumps({"level": "error", "message": FAILED}).encode()),
    "other fails": BrokerMessage(LOG, json.dumps({"level": "error", "message": FAILED.replace("plug", "p2")}).encode()),
    "time is up": None,
}


def verdict(before, steps):
    """The verdict of the product, and the number of the step that decided."""
    rules = StateRules("set", "plug", {"state": "ON"}, (TOPIC, LOG), before)
    exchange = EchoExchange(OWN, rules)
    late = None
    for number, step in enumerate(steps):
        message = STEPS[step]
        found = exchange.time_is_up() if message is None else exchange.received(message)
        if isinstance(found, Reply):
            return found.status, number
        late = late or found
    return ("in doubt" if isinstance(late, InDoubt) else None), None


def model(before, steps):
    """What a person would conclude, who reads the messages one by one."""
    delivered = late = doubted = agrees = changed = False
    shown = before
    for number, step in enumerate(steps):
        if step == "time is up":
            if agrees:
                return 202, number
            late = doubted = True
        elif step == "delivered":
            delivered = True
        elif step in ("on", "off"):
            if delivered:
                changed = changed or (step == "on" and shown == "off")
                agrees = step == "on"
                if agrees and (changed or late):
                    return (200 if changed else 202), number
            shown = step
        elif step == "fails" and delivered:
            return 422, number
    return ("in doubt" if doubted else None), None


@given(st.sampled_from(["on", "off", None]), st.lists(st.sampled_from(sorted(STEPS)), max_size=8))
def test_verdict_is_that_of_a_reader_of_the_messages(before, steps):
    last = {"on": b'{"state": "ON"}', "off": b'{"state": "OFF"}', None: b""}[before]
    assert verdict(last, steps) == model(before, steps)
