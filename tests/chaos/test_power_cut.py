"""C7, a power cut: whatever the disk then holds, what was acknowledged is there, and the file opens."""

import pytest

from chaos.books import Found
from chaos.judging import LOCK, judged
from chaos.workload import live
from fogline_lab.apsw_connection import ApswConnection
from fogline_lab.disk import Disk, DiskOperation

LEAST = 1000
"""Images in `make chaos`; `make test` looks at one in four."""


@pytest.mark.fault("C7")
async def test_acknowledged_events_survive_a_power_cut_at_any_step(folder, memory, thorough):
    disk = Disk(folder / LOCK)
    await live(disk, folder)
    images, lost = 0, 0
    async for image, found in judged(disk.record, memory, every=1 if thorough else 4):
        images += 1
        lost += len(found.lost)
        assert found == Found(), f"cut after step {image.cut} of {len(disk.record)}, {image.how}"
    print(f"{images} disk images of {len(disk.record)} steps: {lost} lost")
    assert images >= (LEAST if thorough else LEAST // 4)
    assert lost == 0


class Careless(ApswConnection):
    """Does not wait for the disk at each commit."""

    def execute(self, sql, parameters=()):
        return super().execute(sql.replace("synchronous = FULL", "synchronous = NORMAL"), parameters)


async def test_check_finds_the_loss_of_a_database_without_sync(folder, memory):
    disk = Disk(folder / LOCK)
    await live(disk, folder, lambda path: Careless.open(path, disk.name))
    assert await finds_a_loss(disk.record, memory)


async def test_check_finds_the_loss_of_a_disk_that_ignores_syncs(folder, memory):
    disk = Disk(folder / LOCK)
    await live(disk, folder)
    made = next(number for number, step in enumerate(disk.record) if step.note)
    lies = [step for number, step in enumerate(disk.record) if number < made or step.kind is not DiskOperation.SYNC]
    assert await finds_a_loss(lies, memory)


async def finds_a_loss(record, folder) -> bool:
    async for _, found in judged(record, folder, every=4):
        if found.lost:
            return True
    return False
