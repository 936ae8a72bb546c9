"""State of a blocked radio in sysfs (R4)."""

import pytest

from fogline_edge.adapters.ble.radio.bluez import blocked


@pytest.mark.parametrize(
    ("name", "soft", "hard", "found"),
    [("hci0", 1, 0, "soft"), ("hci0", 0, 1, "hard"), ("hci0", 1, 1, "hard"), ("hci0", 0, 0, None), ("phy0", 1, 1, None)],
)
def test_an_adapter_that_is_blocked_is_known(tmp_path, name, soft, hard, found):
    (tmp_path / "rfkill0").mkdir()
    (tmp_path / "rfkill1").mkdir()  # gone while it is read
    for file, content in (("name", name), ("soft", soft), ("hard", hard)):
        (tmp_path / "rfkill0" / file).write_text(f"{content}\n")
    assert blocked("hci0", tmp_path) == found


def test_a_machine_without_rfkill_blocks_nothing(tmp_path):
    assert blocked("hci0", tmp_path / "nowhere") is None
