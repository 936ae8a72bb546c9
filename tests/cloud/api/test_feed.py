"""The ring of the latest items."""

from fogline_cloud.api import feed
from fogline_cloud.api.feed import Feed


async def test_the_ring_is_bounded_and_a_late_client_learns_that_it_missed_some(monkeypatch):
    monkeypatch.setattr(feed, "MAX_ITEMS", 3)
    ring = Feed()
    for number in range(5):
        ring.put("command", f"lamp-{number}", "switch", b"{}")
    assert [(item.number, is_missed) for item, is_missed in map(ring.after, (0, 2, 4))] == [(3, True), (3, False), (5, False)]
    assert ring.after(5) == (None, False)
    monkeypatch.setattr(feed, "MAX_BYTES", 10)
    ring.put("reading", "lamp-1", "", b"1234567890")
    assert [(item.number, is_missed) for item, is_missed in map(ring.after, (0, 5))] == [(6, True), (6, False)]


async def test_an_id_counts_in_the_process_that_gave_it():
    ring, other = Feed(), Feed()
    ring.put("command", "lamp-1", "switch", b"{}")
    assert ring.number_of(ring.id_of(1)) == 1
    for wrong in (other.id_of(1), ring.id_of(2), "", "x-1", ring.id_of(1) + "x", "-"):
        assert ring.number_of(wrong) is None
