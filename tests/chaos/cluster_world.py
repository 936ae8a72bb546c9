"""A tenant on Kafka whose tables are in an S3 store, and a Spark cluster that shares nothing else with the driver."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from deltalake import DeltaTable

from fogline.events.event import Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.records import record_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.events import make_event
from fogline_lab.object_store import BUCKET, ObjectStore
from fogline_lab.spark_cluster import SparkCluster
from fogline_lab.supervisor import ChildProcess, find_script

SHARDS = 2
LIFE_S = 300.0


class ClusterWorld:
    """One tenant, and flows of it. `archive`: the executors' environment. `folder`: settings and logs of the driver."""

    def __init__(
        self, folder: Path, tenant: str, bootstrap: str, store: ObjectStore, cluster: SparkCluster, archive: Path
    ) -> None:
        self.cluster = cluster
        self._folder = folder
        self._store = store
        self._archive = archive
        self._settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": bootstrap}, shards=SHARDS)
        create_topics(KafkaClients(self._settings.kafka), self._settings, 1)

    def config(self, name: str, *, keys: bool = True, **flow: object) -> Path:
        """Write a settings file whose tables are in the folder `name` of the store. `flow`: more of `[flow]`."""
        place = f"s3a://{BUCKET}/{self._settings.tenant}/{name}"
        chosen = {"tables": place, "checkpoint": f"{place}/checkpoint", "archive": str(self._archive), **flow}
        key_file = f'key_file = "{self._store.key_file}"\n' if keys else ""
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in chosen.items())
        path = self._folder / f"{name}.toml"
        path.write_text(
            f'tenant = "{self._settings.tenant}"\nshards = {SHARDS}\n'
            f'[kafka]\n"bootstrap.servers" = "{self._settings.kafka["bootstrap.servers"]}"\n'
            f'[store]\nendpoint = "{self._store.endpoint}"\n{key_file}'
            f"[flow]\n{lines}"
            '[flow.spark]\n"spark.driver.memory" = "1g"\n"spark.executor.memory" = "1g"\n'
        )
        return path

    def command(self, config: Path, master: str, *more: str) -> list[str]:
        """Return the command line of a flow with this master."""
        return [find_script("fogline"), "flow", "run", "--config", str(config), "--master", master, "--json", *more]

    def flow(self, config: Path, name: str) -> ChildProcess:
        """Return a flow on the cluster, which is not started yet."""
        log = self._folder / f"{name}.log"
        return ChildProcess("flow", self.command(config, self.cluster.url), log, folder=self._folder)

    def run(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in our folder, with these variables beside our own."""
        whole = {**os.environ, **(environment or {})}
        return subprocess.run(command, cwd=self._folder, env=whole, capture_output=True, text=True, timeout=LIFE_S, check=False)

    def run_once(self, config: Path, master: str) -> None:
        """Run a flow to the end of the records that Kafka has now."""
        done = self.run(self.command(config, master, "--once"))
        assert done.returncode == 0, done.stdout + done.stderr

    def land(self, first: int, count: int, **given: Any) -> None:
        """Write events to both shards in one Kafka transaction, as the bridge does. Their sequences begin at `first`.

        `given`: further attributes of each.
        """
        producer = Producer({**self._settings.kafka, "transactional.id": f"land-{self._settings.tenant}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        topic = topics.of_lane(Lane.TELEMETRY, self._settings.tenant)
        for sequence in range(first, first + count):
            record = record_of(make_event(sequence, tenant=self._settings.tenant, device=f"lamp-{sequence % 7}", **given))
            producer.produce(topic, record.value, record.key, partition=sequence % SHARDS, headers=record.headers)
        producer.commit_transaction(60)

    def rows(self, name: str, table: str, columns: Sequence[str]) -> Counter[tuple[Any, ...]]:
        """Count the rows of a table by these columns."""
        uri, options = f"s3://{BUCKET}/{self._settings.tenant}/{name}/{table}", self._store.options()
        if not DeltaTable.is_deltatable(uri, storage_options=options):
            return Counter()
        found = DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=list(columns))
        return Counter(zip(*(found[column].to_pylist() for column in columns), strict=True))
