"""Subscriptions and commands of one client while it is connected: pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from fogline.commands.command import Command
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.intake import Client
from fogline_edge.adapters.mqtt.hono.subscriptions import suback_code
from fogline_edge.adapters.mqtt.protocol.packets import Suback, Subscribe, Unsubscribe
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType, Reason
from fogline_edge.adapters.mqtt.session.effects import Effect, SetReachable
from fogline_edge.adapters.mqtt.session.outbound import ClientLimits
from fogline_edge.adapters.mqtt.session.session_state import SessionState


@dataclass(eq=False, slots=True, weakref_slot=True)
class Downstream:
    """Subscriptions and commands of one connection. Without `with_commands` no topic filter is granted."""

    client: Client
    tenant: str
    state: SessionState
    limits: ClientLimits
    counters: MqttCounters
    with_commands: bool
    _reachable: dict[str, None] = field(default_factory=dict)

    def take_session(self) -> list[Effect]:
        """Take the session over; its former connection ends (5: 3.1.4). Subscriptions no longer granted are removed."""
        effects = self.state.outbound.end(persistent=True)
        self.state.owner = self
        if self.with_commands:
            self.state.subscriptions.review(self.client, self.tenant)
        else:
            self.state.subscriptions.clear()
        return effects

    def begin(self) -> list[Effect]:
        """Continue the commands in flight, and accept new ones: CONNACK is sent."""
        effects = self.state.outbound.begin(self.limits)
        self.counters.commands_resent += len(self.state.outbound.inflight.by_packet_id)
        return [*effects, *self._update_reachable()]

    def end(self) -> list[Effect]:
        """Report that no device is reachable through this connection any more."""
        effects: list[Effect] = [SetReachable(device, reachable=False) for device in self._reachable]
        self._reachable.clear()
        return effects

    @property
    def owns(self) -> bool:
        """True until another connection takes the session over."""
        return self.state.owner is self

    def subscribe(self, packet: Subscribe) -> list[Effect]:
        """Handle SUBSCRIBE (3.8). SUBACK goes after the granted subscriptions are stored."""
        (identifier,) = packet.properties.subscription_id or (0,)
        codes = self._add(packet, identifier)
        granted = sum(code < Reason.UNSPECIFIED for code in codes)
        self.counters.subscribed += granted
        self.counters.subscriptions_refused += len(codes) - granted
        suback_codes = tuple(suback_code(each, self.limits.version) for each in codes)
        suback = Suback(kind=PacketType.SUBACK, packet_id=packet.packet_id, codes=suback_codes)
        return self.state.save(partial(self._subscribed, suback)) if granted else self.limits.send(suback)

    def unsubscribe(self, packet: Unsubscribe) -> list[Effect]:
        """Handle UNSUBSCRIBE (3.10). New commands stop at once [MQTT-3.10.4-2], those in flight continue."""
        codes = tuple(self._remove(name) for name in packet.filters)
        unsuback = Suback(kind=PacketType.UNSUBACK, packet_id=packet.packet_id, codes=codes)
        return [*self._update_reachable(), *self.state.save(partial(self.limits.send, unsuback))]

    def execute(self, command: Command) -> list[Effect]:
        """Send a command to the client."""
        subscriptions = tuple(self.state.subscriptions.values())
        return self.state.outbound.execute(command, subscriptions, persistent=bool(self.state.epoch))

    def abandon(self, command_id: str) -> list[Effect] | None:
        """Give a command up, as `OutboundCommands.abandon`. Returns `None` if it is not queued or in flight here."""
        carried = self.owns and self.state.outbound.carries(command_id)
        return self.state.outbound.abandon(command_id) if carried else None

    def pause(self, *, paused: bool) -> list[Effect]:
        """Begin no command while the client does not read, and continue afterwards."""
        if not self.owns:
            return []
        self.state.outbound.paused = paused
        return self.state.outbound.advance()

    def _add(self, packet: Subscribe, identifier: int) -> list[int]:
        """Add the granted subscriptions, and return a code for each filter."""
        if not self.with_commands:
            return [Reason.IMPLEMENTATION_SPECIFIC] * len(packet.filters)
        subscriptions, client, tenant = self.state.subscriptions, self.client, self.tenant
        return [subscriptions.add(client, tenant, name, options, identifier) for name, options in packet.filters]

    def _remove(self, name: str) -> int:
        """Remove a subscription, and return its code."""
        return self.state.subscriptions.remove(name)

    def _subscribed(self, suback: Suback) -> Sequence[Effect]:
        return [*self.limits.send(suback), *self._update_reachable()]

    def _update_reachable(self) -> list[Effect]:
        """Report the devices that became reachable or unreachable, and withdraw the queued commands of the latter."""
        wanted = dict.fromkeys(each.device for each in self.state.subscriptions.values())
        lost = [device for device in self._reachable if device not in wanted]
        new = [device for device in wanted if device not in self._reachable]
        self._reachable = wanted
        withdrawn = self.state.outbound.withdraw(lambda command: command.device in lost)
        return [
            *(SetReachable(each, reachable=False) for each in lost),
            *withdrawn,
            *(SetReachable(each, reachable=True) for each in new),
        ]
