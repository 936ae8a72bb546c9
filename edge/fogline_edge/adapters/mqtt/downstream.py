"""What goes to one client: its subscriptions, and the commands under way to it, for as long as it is connected. Pure."""

from collections.abc import Sequence
from functools import partial

from fogline.command import Command
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.effects import Effect, Reach, Send
from fogline_edge.adapters.mqtt.intake import Client
from fogline_edge.adapters.mqtt.kept import State
from fogline_edge.adapters.mqtt.outbound import Pipe
from fogline_edge.adapters.mqtt.packets import Answer, Suback, Subscribe, Unsubscribe
from fogline_edge.adapters.mqtt.subscriptions import told
from fogline_edge.adapters.mqtt.wire import Kind, Reason


class Downstream:
    """One connection's way out. `with_commands`: there are commands at all; else nothing can be subscribed to."""

    def __init__(
        self, client: Client, tenant: str, state: State, pipe: Pipe, counters: Counters, *, with_commands: bool
    ) -> None:
        self._client = client
        self._tenant = tenant
        self._state = state
        self._pipe = pipe
        self._counters = counters
        self._with_commands = with_commands
        self._reached: dict[str, None] = {}

    def take(self) -> list[Effect]:
        """Have the session from now on: for whoever had it, its connection is over.

        Subscriptions that would not be granted today are not there any more.
        """
        effects = self._state.outbound.end(lasting=True)
        self._state.owner = self
        if self._with_commands:
            self._state.subscriptions.review(self._client, self._tenant)
        else:
            self._state.subscriptions.clear()
        return effects

    def begin(self) -> list[Effect]:
        """CONNACK is out: go on with what is under way, and take commands again."""
        effects = self._state.outbound.begin(self._pipe)
        self._counters.commands_resent += len(self._state.outbound.flights.by_number)
        return [*effects, *self._reach()]

    def end(self) -> list[Effect]:
        """The connection is over. What becomes of the session is said only if no other connection has it."""
        effects: list[Effect] = [Reach(device, on=False) for device in self._reached]
        self._reached.clear()
        return effects

    @property
    def owns(self) -> bool:
        """Whether the session is this connection's still."""
        return self._state.owner is self

    def subscribe(self, packet: Subscribe) -> list[Effect]:
        """SUBSCRIBE (3.8): answered when what was granted is kept."""
        (number,) = packet.properties.subscription_id or (0,)
        subscriptions, client, tenant = self._state.subscriptions, self._client, self._tenant
        codes: list[int] = [Reason.IMPLEMENTATION_SPECIFIC] * len(packet.filters)
        if self._with_commands:
            codes = [subscriptions.add(client, tenant, name, options, number) for name, options in packet.filters]
        granted = sum(code < Reason.UNSPECIFIED for code in codes)
        self._counters.subscribed += granted
        self._counters.subscriptions_refused += len(codes) - granted
        answer = Suback(
            kind=Kind.SUBACK, packet_id=packet.packet_id, codes=tuple(told(each, self._pipe.version) for each in codes)
        )
        if not granted:
            return self.send(answer)
        return self._state.save(partial(self._subscribed, answer))

    def unsubscribe(self, packet: Unsubscribe) -> list[Effect]:
        """UNSUBSCRIBE (3.10): nothing more is begun at once [MQTT-3.10.4-2], and what is under way goes on."""
        codes = tuple(self._state.subscriptions.remove(name) for name in packet.filters)
        answer = Suback(kind=Kind.UNSUBACK, packet_id=packet.packet_id, codes=codes)
        return [*self._reach(), *self._state.save(partial(self.send, answer))]

    def confirmed(self, packet: Answer) -> list[Effect]:
        """PUBACK, PUBREC or PUBCOMP."""
        return self._state.outbound.confirmed(packet.kind, packet.packet_id, packet.code)

    def execute(self, command: Command) -> list[Effect]:
        """Carry a command to the client."""
        subscriptions = tuple(self._state.subscriptions.values())
        return self._state.outbound.execute(command, subscriptions, lasting=bool(self._state.epoch))

    def abandon(self, command_id: str) -> list[Effect]:
        """Nobody waits for it any more."""
        return self._state.outbound.abandon(command_id)

    def carries(self, command_id: str) -> bool:
        """Whether a command is under way here."""
        return self.owns and self._state.outbound.carries(command_id)

    def slow(self, *, slow: bool) -> list[Effect]:
        """The client does not read at present; or it does again."""
        if not self.owns:
            return []
        self._state.outbound.paused = slow
        return self._state.outbound.advance()

    def send(self, packet: Answer | Suback) -> list[Effect]:
        """A packet, unless it is larger than the client takes [MQTT-3.1.2-24]."""
        data = packet.encode(self._pipe.version)
        most = self._pipe.maximum_packet_bytes
        return [Send(data)] if most is None or len(data) <= most else []

    def _subscribed(self, answer: Suback) -> Sequence[Effect]:
        return [*self.send(answer), *self._reach()]

    def _reach(self) -> list[Effect]:
        """Who takes commands through this connection now, and who no more."""
        wanted = dict.fromkeys(each.device for each in self._state.subscriptions.values())
        left = [device for device in self._reached if device not in wanted]
        new = [device for device in wanted if device not in self._reached]
        self._reached = wanted
        withdrawn = self._state.outbound.withdraw(lambda flight: flight.device in left)
        return [*(Reach(each, on=False) for each in left), *withdrawn, *(Reach(each, on=True) for each in new)]
