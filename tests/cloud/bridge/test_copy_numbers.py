"""The numbers of copies of an outbox."""

from fogline_cloud.bridge.gateways.copy_numbers import MAX_GATEWAYS, Copy, CopyNumbers


def test_a_restored_copy_gets_a_higher_number_and_the_former_one_is_replaced():
    numbers = CopyNumbers()
    first = numbers.judge("gw-1", 0, 1000)
    assert first == Copy(1000)
    assert numbers.judge("gw-1", 1000, 2000) == Copy(1000)
    assert numbers.judge("gw-1", 0, 900) == Copy(1001), "also if the bridge's clock went back"
    assert numbers.judge("gw-1", 1000, 2000) == Copy(1000, replaced=True)
    assert numbers.judge("gw-1", 1001, 2000) == Copy(1001)
    assert numbers.judge("gw-2", 1000, 2000) == Copy(1000), "another gateway"


def test_a_bridge_that_was_restarted_learns_the_numbers_again():
    numbers = CopyNumbers()
    assert numbers.judge("gw-1", 1000, 2000) == Copy(1000)
    assert numbers.judge("gw-1", 1001, 2000) == Copy(1001)
    assert numbers.judge("gw-1", 1000, 2000).replaced


def test_the_numbers_of_the_last_gateways_are_kept():
    numbers = CopyNumbers()
    for n in range(MAX_GATEWAYS + 1):
        numbers.judge(f"gw-{n}", 5, 1000)
    assert not numbers.judge("gw-0", 4, 1000).replaced
    assert numbers.judge(f"gw-{MAX_GATEWAYS}", 4, 1000).replaced
