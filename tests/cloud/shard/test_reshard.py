"""More shards: streams, commands and devices move to the shards that own them then, on a real broker."""

import contextlib
import json
import os
import subprocess
from collections import defaultdict

import pytest
from msgspec.structs import replace

from chaos.places_to_crash import RESHARD_POINTS
from fogline.address import shard_of
from fogline.errors import Misconfigured, Unreachable
from fogline.process.crash_points import VARIABLE, CrashPoint
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import (
    DeviceRecord,
    DeviceSighting,
    device_key,
    encode_device,
    encode_sighting,
    is_elsewhere,
    seen_key,
)
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.records import position_of
from fogline_cloud.reshard.reshard import MOVED_TOPICS, Resharding, reshard
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.admission import Admission, Duplicate, Produce
from fogline_cloud.shard.checkpoint import Layout, LayoutChanged, ShardOwner
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.recovery import read_checkpoint, read_commands, read_layout
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.topic_admin import check_topics, create_topics
from fogline_cloud.shard.work.submissions import read_batch
from fogline_lab.bridge.command_records import make_record
from fogline_lab.events import make_batch
from fogline_lab.supervisor import find_script

BEFORE, AFTER = 2, 3
GATEWAYS = [f"gw-{number}" for number in range(12)]
MOVED = [name for name in GATEWAYS if shard_of(name, BEFORE) != shard_of(name, AFTER)]
STAYED = [name for name in GATEWAYS if name not in MOVED]


class Site:
    """A tenant of two shards, with writers of shards as bridges have them."""

    def __init__(self, bootstrap, tenant):
        self.tenant = tenant
        self.before = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": bootstrap}, shards=BEFORE)
        self.after = replace(self.before, shards=AFTER)
        self.clients = KafkaClients(self.before.kafka)
        create_topics(self.clients, self.before, 1)

    @contextlib.contextmanager
    def owner(self, shard, shards):
        """A new owner of a shard, and what it has recovered."""
        clients = KafkaClients(self.before.kafka)  # those of a new process
        writer = ShardWriter(clients, ShardProducer(clients, self.tenant, shard), Layout(shards))
        try:
            yield writer, writer.take(ShardOwner("bridge-1", "127.0.0.1:1"))
        finally:
            writer.producer.destroy()

    def land(self, gateways, first, last, shards):
        """Land sequences of a stream of each gateway at the owner of its shard."""
        for shard in range(shards):
            with self.owner(shard, shards) as (writer, recovered):
                admission = Admission(recovered.known)
                for gateway in gateways:
                    if shard_of(gateway, shards) == shard:
                        assert write(writer, gateway, first, last, admission) == Produce(0)
                writer.producer.commit()

    def places(self, gateway):
        """The sequences of a gateway's stream in each partition, in the order of the offsets."""
        found = defaultdict(list)
        topic = topics.telemetry(self.tenant)
        for each in read_committed(self.clients, {(topic, shard): None for shard in range(self.clients.topics()[topic])}):
            place = position_of(each.headers, each.value)
            if place is not None and place.gateway == gateway:
                found[each.partition].append(place.last)
        return dict(found)


def stream_of(gateway):
    return f"{int(gateway.removeprefix('gw-')):016x}"


def write(writer, gateway, first, last, admission):
    """Write a batch into the open transaction, if it may be written. Return the verdict."""
    span, message = make_batch(first, last, tenant=writer.tenant, gateway=gateway, stream=stream_of(gateway))
    verdict = admission.admit(span)
    if isinstance(verdict, Produce):
        writer.write_batch(read_batch(span, message), span)
    return verdict


@pytest.fixture
def site(kafka, tenant):
    return Site(kafka.bootstrap, tenant)


def test_streams_go_on_at_their_new_shards_without_a_loss_a_duplicate_or_a_disorder(site):
    assert MOVED
    assert STAYED
    site.land(GATEWAYS, 1, 3, BEFORE)
    done = reshard(site.after)
    assert (done.former, done.shards) == (BEFORE, AFTER)
    assert done.moved[topics.checkpoint(site.tenant)] == len(MOVED)
    for shard in range(AFTER):
        with site.owner(shard, AFTER) as (writer, recovered):
            own = [name for name in GATEWAYS if shard_of(name, AFTER) == shard]
            admission = Admission(recovered.known)
            for name in own:
                assert write(writer, name, 2, 3, admission) == Duplicate()  # the last batch before, sent again
                assert write(writer, name, 4, 6, admission) == Produce(0)
                assert recovered.known[name, stream_of(name)].landed == 3
            writer.producer.commit()
    for name in GATEWAYS:
        here, there = shard_of(name, BEFORE), shard_of(name, AFTER)
        assert site.places(name) == ({here: [1, 2, 3], there: [4, 5, 6]} if here != there else {here: [1, 2, 3, 4, 5, 6]})
    assert check_topics(site.clients, site.after) == []
    assert reshard(site.after) == Resharding(AFTER, AFTER)


def test_a_streams_tail_belongs_to_the_new_shard_and_an_owner_with_the_former_number_commits_nothing(site):
    """The former owner hangs within a transaction that has the tail. It goes on after the new owner has landed the tail."""
    gateway = MOVED[0]
    here, there = shard_of(gateway, BEFORE), shard_of(gateway, AFTER)
    site.land([gateway], 1, 3, BEFORE)
    with site.owner(here, BEFORE) as (former, known):
        write(former, gateway, 4, 6, Admission(known.known))
        assert former.producer._producer.flush(60) == 0
        reshard(site.after)
        with site.owner(there, AFTER) as (heir, recovered):
            assert recovered.known[gateway, stream_of(gateway)].hwm == 3
            assert write(heir, gateway, 4, 7, Admission(recovered.known)) == Produce(0)
            heir.producer.commit()
        with pytest.raises(Unreachable):
            former.producer.commit()
    with (
        pytest.raises(LayoutChanged, match="is 3 now; set `shards` to that, and start again"),
        site.owner(here, BEFORE),
    ):
        pass
    assert site.places(gateway) == {here: [1, 2, 3], there: [4, 5, 6, 7]}


def test_a_gateway_that_comes_back_after_weeks_goes_on_although_two_changes_passed(site):
    """Its stream is known by its entry alone: the owners since have forgotten nothing, and the gateway was not there."""
    gateway = next(name for name in MOVED if shard_of(name, AFTER) != shard_of(name, 5))
    site.land([gateway], 1, 3, BEFORE)
    reshard(site.after)
    with site.owner(shard_of(gateway, AFTER), AFTER):  # other gateways are served there meanwhile
        pass
    reshard(replace(site.after, shards=5))
    with site.owner(shard_of(gateway, 5), 5) as (writer, recovered):
        admission = Admission(recovered.known)
        assert write(writer, gateway, 2, 3, admission) == Duplicate()  # what it had in flight
        assert write(writer, gateway, 4, 4, admission) == Produce(0)
        writer.producer.commit()
    assert site.places(gateway) == {shard_of(gateway, BEFORE): [1, 2, 3], shard_of(gateway, 5): [4]}


def test_each_topic_of_which_an_owner_reads_the_newest_records_is_moved(site):
    """Those of events and of decisions are read by consumers alone, from any partition."""
    compacted = {
        each.name
        for each in topics.all_topics(site.tenant, AFTER)
        if each.by_shard and "compact" in each.config["cleanup.policy"]
    }
    assert {name(site.tenant) for name in MOVED_TOPICS} == compacted


def test_commands_and_devices_move_with_their_gateways_and_names(site):
    devices = [f"lamp-{number}" for number in range(8)]
    for shard in range(BEFORE):
        with site.owner(shard, BEFORE) as (writer, _):
            for number, gateway in enumerate(GATEWAYS):
                if shard_of(gateway, BEFORE) == shard:
                    writer.write_command(make_record(f"c{number}", gateway=gateway, tenant=site.tenant))
                    writer.write_device(seen_key("lamp-0", gateway), encode_sighting(DeviceSighting(seen_ms=number + 1)))
            for name in devices:
                if shard_of(name, BEFORE) == shard:
                    writer.write_device(device_key(name), encode_device(DeviceRecord(version=1, changed_ms=1, changed_by="a")))
                    writer.write_keys(name, b"sealed")
            writer.producer.commit()
    reshard(site.after)
    found = {shard: read_commands(site.clients, site.tenant, shard) for shard in range(AFTER)}
    assert {each.gateway: shard for shard, records in found.items() for each in records} == {
        name: shard_of(name, AFTER) for name in GATEWAYS
    }
    assert sum(map(len, found.values())) == len(GATEWAYS)
    for shard in range(AFTER):
        with site.owner(shard, AFTER) as (_, recovered):
            own = sorted(each for each in devices if shard_of(each, AFTER) == shard)
            assert sorted(recovered.devices.records) == own
            assert sorted(recovered.devices.sealed_keys) == own
    table = DeviceTable()
    read = read_committed(site.clients, {(topics.devices(site.tenant), shard): None for shard in range(AFTER)})
    for each in sorted(read, key=lambda each: -each.partition):  # the worst order: what deletes a record comes after it
        if not is_elsewhere(each.key, each.partition, AFTER):
            table.apply(each.key, each.value)
    assert sorted(each.name for each in table) == devices
    assert len(table.get("lamp-0").sightings) == 8  # those that are kept


def test_a_killed_command_goes_on_and_no_bridge_serves_until_it_has_ended(site, folder):
    site.land(GATEWAYS, 1, 3, BEFORE)
    config, server = folder / "cloud.toml", site.after.kafka["bootstrap.servers"]
    config.write_text(f'tenant = "{site.tenant}"\nshards = {AFTER}\n[kafka]\n"bootstrap.servers" = "{server}"\n')
    command = [find_script("fogline"), "topics", "reshard", "--json", "--config", config]
    for point in RESHARD_POINTS:
        killed = subprocess.run(command, env=os.environ | {VARIABLE: point}, capture_output=True, timeout=120, check=False)
        assert killed.returncode == -9, (point, killed.stderr)
        if point is CrashPoint.BEFORE_LAYOUT:
            assert check_topics(site.clients, site.before) == []  # nothing has changed yet
            continue
        for settings in (site.before, site.after):
            (problem,) = check_topics(site.clients, settings)
            assert problem == "the change from 2 to 3 shards has not ended: run: fogline topics reshard"
        with pytest.raises(LayoutChanged), site.owner(0, AFTER):
            pass
        with pytest.raises(Misconfigured, match="set shards = 3, and run it again"):
            reshard(replace(site.after, shards=4))
    ended = subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert json.loads(ended.stdout)["shards"] == AFTER
    site.land(GATEWAYS, 4, 5, AFTER)
    for name in GATEWAYS:
        assert sorted(sequence for part in site.places(name).values() for sequence in part) == [1, 2, 3, 4, 5]
    known = [read_checkpoint(site.clients, site.tenant, shard).streams for shard in range(AFTER)]
    assert sum(gateway in GATEWAYS for each in known for gateway, _ in each) == len(GATEWAYS)  # each in one place


def test_two_operators_at_once_change_the_number_once_and_who_lost_is_told_to_run_it_again(site, folder):
    site.land(GATEWAYS, 1, 3, BEFORE)
    config, server = folder / "cloud.toml", site.after.kafka["bootstrap.servers"]
    config.write_text(f'tenant = "{site.tenant}"\nshards = {AFTER}\n[kafka]\n"bootstrap.servers" = "{server}"\n')
    command = [find_script("fogline"), "topics", "reshard", "--config", config]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0 or "Run this again, and only one at a time" in errors, errors
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    known = [read_checkpoint(site.clients, site.tenant, shard).streams for shard in range(AFTER)]
    assert sum(gateway in GATEWAYS for each in known for gateway, _ in each) == len(GATEWAYS)


def test_fewer_shards_are_refused_and_nothing_changes(site):
    with pytest.raises(Misconfigured, match="can only grow"):
        reshard(replace(site.before, shards=1))
    assert read_layout(site.clients, site.tenant) == Layout(BEFORE)
