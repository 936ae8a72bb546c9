"""Schedule of compactions."""

from datetime import date

from fogline_cloud.flows.compaction import Compaction

MONDAY, TUESDAY, FRIDAY = date(2026, 1, 5), date(2026, 1, 6), date(2026, 1, 9)


def test_the_days_of_a_failed_compaction_are_compacted_later(caplog):
    """F9."""
    packed, full = [], True

    def pack(days):
        if full:
            raise OSError("No space left on device\nat org.apache...")
        packed.append(days)

    compaction = Compaction(pack)
    for batch in range(99):
        compaction.after(batch, [MONDAY])
    assert compaction.failures == 0
    compaction.after(99, [MONDAY, TUESDAY])
    compaction.after(100, [FRIDAY])
    assert compaction.failures == 1
    assert "compaction of 2026-01-05 to 2026-01-06 failed (1 failures): OSError: No space left on device. " in caplog.text
    compaction.after(109, [FRIDAY])
    assert compaction.failures == 2
    full = False
    compaction.after(119, [FRIDAY])
    assert packed == [(MONDAY, TUESDAY)]
    compaction.after(129, [FRIDAY])
    compaction.after(199, [FRIDAY])
    assert packed == [(MONDAY, TUESDAY), (FRIDAY, FRIDAY)]


def test_batches_without_files_are_not_compacted():
    compaction = Compaction(lambda _: 1 / 0)
    compaction.after(99, [])
    assert compaction.failures == 0
