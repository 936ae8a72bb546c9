"""Every disk image that a record allows, opened as a gateway opens it, and held against the notes in the record."""

from chaos.books import Books, Found
from chaos.workload import settings
from fogline_edge.outbox.file import full_record
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.disk import DiskOperation
from fogline_lab.power_cut import PowerCut

LOCK = "lock"
"""The file beside the database in which the outbox says how its last run ended."""


async def judged(record, folder, *, since: int = 0, every: int = 1):
    """Every image with what is wrong with it. `since`: only those of cuts after so many steps. `every`: one in so many."""
    books, told = Books(), 0
    for image in PowerCut(record, every=every).images():
        for step in record[told : image.cut]:
            if step.kind is DiskOperation.NOTE:
                books.take(step.note)
        told = image.cut
        if told > since:
            image.write(folder)
            yield image, await found_in(folder, books)


async def found_in(folder, books: Books) -> Found:
    """Start on what is there, look, then send all that was acknowledged once more."""
    outbox = Outbox.open(settings(folder))
    try:
        found = await outbox.read_journal(lambda connection, _: books.judge(connection))
        if found == Found():
            found = await books.judge_resends(outbox)
    finally:
        await outbox.close()
    found.wrong += [
        f"set aside: {each.name}" for each in folder.iterdir() if each.name not in {"outbox.db", LOCK, full_record.FILE}
    ]
    return found
