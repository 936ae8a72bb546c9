"""The health of the machine, read from files like those of a kernel."""

import os
from pathlib import Path

import pytest

from fogline.gateway.gateway_statistics import MachineNumbers
from fogline_edge.machine.health import read_machine


class Kernel:
    """Files like those below /sys and /proc. `folder` lies on the second partition of an SD card."""

    def __init__(self, root: Path) -> None:
        self.folder, self.sys, self.proc = root / "data", root / "sys", root / "proc"
        self.folder.mkdir()
        device = self.folder.stat().st_dev
        self.card = "devices/mmcblk0"
        self.write(f"{self.card}/mmcblk0p2/partition", "2")
        block = self.sys / "dev/block"
        block.mkdir(parents=True)
        (block / f"{os.major(device)}:{os.minor(device)}").symlink_to(self.sys / self.card / "mmcblk0p2")

    def write(self, name: str, text: str, root: Path | None = None) -> None:
        path = (root or self.sys) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "ascii")

    def read(self) -> MachineNumbers:
        return read_machine(self.folder, sys=self.sys, proc=self.proc)


@pytest.fixture
def kernel(tmp_path):
    return Kernel(tmp_path)


def test_writes_and_size_are_those_of_the_whole_card(kernel):
    kernel.write(f"{kernel.card}/stat", "1 2 3 4 5 6 2000 8 9 10 11")
    kernel.write(f"{kernel.card}/size", "62500000")
    kernel.write("self/io", "rchar: 1\nwrite_bytes: 4096\ncancelled_write_bytes: 0", kernel.proc)
    found = kernel.read()
    assert (found.disk_written_bytes, found.disk_size_bytes, found.written_bytes) == (1_024_000, 32_000_000_000, 4096)
    assert found.disk_free_bytes > 0


@pytest.mark.parametrize(("text", "used"), [("0x01 0x03", 0.3), ("0x0B 0x01", 1.1), ("0x00 0x00", None), ("nonsense", None)])
def test_an_emmc_tells_the_larger_of_its_two_estimates(kernel, text, used):
    kernel.write(f"{kernel.card}/device/life_time", text)
    assert kernel.read().disk_life_used == used


@pytest.mark.parametrize(
    ("bits", "undervoltage", "throttled"),
    [("0", False, False), ("50000", False, False), ("1", True, False), ("50005", True, True), ("8", False, True)],
)
def test_the_bits_of_a_pi_s_supply_are_those_of_now(kernel, bits, undervoltage, throttled):
    kernel.write("devices/platform/soc/soc:firmware/get_throttled", bits)
    found = kernel.read()
    assert (found.undervoltage, found.throttled) == (undervoltage, throttled)


def test_the_temperature_is_the_processor_s(kernel):
    for number, (kind, temperature) in enumerate(
        {"iwlwifi_1": "90000", "cpu-thermal": "51540", "soc-thermal": "49000"}.items()
    ):
        kernel.write(f"class/thermal/thermal_zone{number}/type", kind)
        kernel.write(f"class/thermal/thermal_zone{number}/temp", temperature)
    assert kernel.read().temperature_c == 51.54


def test_figures_that_the_kernel_lacks_are_unknown(tmp_path):
    found = read_machine(tmp_path / "none", sys=tmp_path / "sys", proc=tmp_path / "proc")
    assert found == MachineNumbers()


def test_this_machine_can_be_read(tmp_path):
    assert read_machine(tmp_path).disk_free_bytes > 0
