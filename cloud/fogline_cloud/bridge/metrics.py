"""The metrics and the health of a bridge."""

from collections import Counter
from collections.abc import Iterator

from fogline.commands.command import CommandState
from fogline.process.monitoring.metrics import Sample, samples_of
from fogline.process.monitoring.statistics import read_process
from fogline.tracing.activation import read_tracing
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.door.listener import Listener
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.gateways.fleet import FleetStatistics
from fogline_cloud.bridge.group.shard_assignment import ShardAssignment
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.bridge.via.vias import Vias


def read_bridge(
    listener: Listener,
    gateways: ConnectedGateways,
    commands: CommandTable,
    shards: ShardTable,
    fleet: FleetStatistics,
    *,
    vias: Vias | None = None,
) -> Iterator[Sample]:
    """Yield the present samples of a bridge. Runs on the loop."""
    yield from read_process()
    yield from read_tracing()
    yield Sample("fogline_bridge_shards", shards.count)
    yield Sample("fogline_bridge_gateways", len(gateways.names))
    yield Sample("fogline_bridge_clients", listener.clients)
    yield Sample("fogline_bridge_queued_bytes", listener.queued_bytes)
    yield Sample("fogline_bridge_unfinished_bytes", listener.handshakes.budget.held_bytes)
    yield Sample("fogline_bridge_handshakes", len(listener.handshakes))
    yield Sample("fogline_bridge_connections_refused_total", listener.refused)
    yield Sample("fogline_bridge_unknown_devices_total", commands.unknown_devices)
    records = (commands.registry.get(command_id) for command_id in commands.open)
    by_state = Counter(record.state for record in records if record is not None)
    for state in CommandState:
        if not state.terminal:
            yield Sample("fogline_bridge_commands", by_state[state], (state.value,))
    for shard in shards:
        label = (str(shard.number),)
        yield Sample("fogline_shard_ready", int(shard.ready), label)
        yield from samples_of("shard", shard.counters, label)
    for peer, certificate in listener.peers.certified():
        if isinstance(peer, GatewayPeer):
            fleet.certified(peer.principal.name, certificate.not_valid_after_utc)
    yield from fleet.read(gateways.names, shards.owned)
    if vias is not None:
        yield from vias.read()


def check_bridge(shards: ShardTable, assignment: ShardAssignment | None) -> str:
    """Return why this bridge accepts no batches of some gateways, or an empty text."""
    problem = assignment.presence.problem if assignment is not None else ""
    problems = [problem] if problem else []
    if not shards.owned:
        problems.append("this bridge owns no shard: it waits for the group of bridges, or there are more bridges than shards")
    problems += [f"shard {shard.number}: {shard.why_not}" for shard in shards if not shard.ready]
    return "; ".join(problems)
