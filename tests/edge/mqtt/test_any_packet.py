"""Any packets in any order raise no error, and break no guarantee."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish, Subscribe, Unsubscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties
from fogline_edge.adapters.mqtt.session.effects import Close, DeliveryResult, Forget, Keep, ReportDelivery, Store
from fogline_lab.commands import make_command
from fogline_lab.device.mqtt_talk import MqttTalk
from property_tests import at_most

numbers = st.integers(1, 3)
filters = st.sampled_from(["command///req/#", "c//lamp-1/q/#", "command/+/+/req/#", "#", "$share/a/b", "t"])
packets = st.one_of(
    st.builds(
        Ack,
        kind=st.sampled_from([PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]),
        packet_id=numbers,
        code=st.sampled_from([0, 0x10, 0x92]),
    ),
    st.builds(
        Publish,
        topic=st.sampled_from(["t", "t//d2", "nowhere", "command///res/CMD-1/200", "c///s/x", "c"]),
        payload=st.binary(max_size=3),
        qos=st.integers(1, 2),
        packet_id=numbers,
        dup=st.booleans(),
        properties=st.sampled_from([NONE, Properties(topic_alias=1), Properties(topic_alias=99)]),
    ),
    st.builds(Subscribe, packet_id=numbers, filters=st.lists(st.tuples(filters, st.integers(0, 2)), min_size=1).map(tuple)),
    st.builds(Unsubscribe, packet_id=numbers, filters=st.lists(filters, min_size=1).map(tuple)),
)
bodies = st.tuples(
    st.sampled_from([0x30, 0x32, 0x34, 0x3A, 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0, 0xF0]), st.binary(max_size=30)
)


def connected(version, **more):
    talk = MqttTalk(version, with_commands=True, **more)
    talk.connect("lamp-1", clean_start=False, properties=Properties(session_expiry_s=60) if version == V5 else NONE)
    return talk


@given(st.sampled_from([V3, V5]), st.lists(bodies, max_size=8))
@pytest.mark.fault("N8")
def test_no_bytes_raise(version, received):
    talk = connected(version)
    for header, body in received:
        for effect in talk.session.receive(header, body, 0.0):
            if isinstance(effect, Keep | Forget) and effect.then is not None:
                effect.then()


class Run:
    """Plays packets, commits and commands, and looks at what is told of each command."""

    def __init__(self, version):
        self.talk = connected(version)
        self.told = []
        self.later = []
        self.ended = False
        self.stored = 0

    def note(self, effects):
        for effect in effects:
            if isinstance(effect, ReportDelivery):
                self.told.append(effect[:2])
            elif isinstance(effect, Store):
                self.stored += 1
                self.later.append(lambda pending=effect.pending: self.talk.session.ack_order.committed(pending) or ())
            elif isinstance(effect, Keep | Forget) and effect.then is not None:
                self.later.append(effect.then)
            elif isinstance(effect, Close) or (isinstance(effect, tuple) and effect and not hasattr(effect, "_fields")):
                self.ended = True

    def step(self, what):
        if self.ended:
            return
        if what is None:
            if self.later:
                self.note(self.later.pop(0)())
        elif isinstance(what, int):
            self.note(self.talk.execute(make_command(device="lamp-1", id=f"CMD-{what}")))
        else:
            self.note(self.talk.say(what))


@settings(max_examples=at_most(300))
@given(st.sampled_from([V3, V5]), st.lists(st.one_of(packets, st.none(), st.integers(1, 2)), max_size=25))
def test_no_order_raises_and_no_command_is_both_run_and_not(version, steps):
    run = Run(version)
    sent = set()
    for step in steps:
        if isinstance(step, int):
            if step in sent:
                continue
            sent.add(step)
        run.step(step)
    for effect in run.talk.session.end(0.0).effects:
        run.note([effect])
    for number in sent:
        fates = [fate for fate, command in run.told if command == f"CMD-{number}"]
        assert len(fates) <= 1 or set(fates) <= {DeliveryResult.TAKEN}
    state = run.talk.session._state
    assert state.outbound.end(persistent=True) == []
