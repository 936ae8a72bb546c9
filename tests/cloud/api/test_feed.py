"""The ring of the latest items."""

from fogline_cloud.api import feed
from fogline_cloud.api.feed import Feed


async def test_the_ring_is_bounded_and_a_late_client_learns_that_it_missed_some(monkeypatch):
    monkeypatch.setattr(feed, "MAX_ITEMS", 3)
    ring = Feed()
    for number in range(5):
        ring.put("command", f"lamp-{number}", "switch", b"{}")
    items, is_missed = ring.after(0)
    assert ([each.number for each in items], is_missed) == ([3, 4, 5], True)
    assert ([each.number for each in ring.after(3)[0]], ring.after(3)[1]) == ([4, 5], False)
    assert ring.after(5) == ([], False)
    monkeypatch.setattr(feed, "MAX_BYTES", 10)
    ring.put("reading", "lamp-1", "", b"1234567890")
    assert [each.number for each in ring.after(0)[0]] == [6]


async def test_an_id_counts_in_the_process_that_gave_it():
    ring, other = Feed(), Feed()
    ring.put("command", "lamp-1", "switch", b"{}")
    assert ring.number_of(ring.id_of(1)) == 1
    for wrong in (other.id_of(1), ring.id_of(2), "", "x-1", ring.id_of(1) + "x", "-"):
        assert ring.number_of(wrong) is None
