"""Fixtures of the cloud side's tests."""

from collections.abc import Iterator

import pytest

from cloud.shard.shard_bench import Bench


@pytest.fixture
def bench(kafka, tenant) -> Iterator[Bench]:
    """A tenant of one shard on a real broker."""
    made = Bench(kafka, tenant)
    yield made
    for shard in made.shards:
        shard.stop()
    for shard in made.shards:
        shard.join(60)
