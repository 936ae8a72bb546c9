"""The demo of rules: a hall switches its fan while the bridge is killed, and sends means."""

import json
import subprocess
import sys

import pytest

from rules.source import ROOT


@pytest.mark.slow
def test_demo_of_rules_loses_nothing_and_tells_the_fan_what_it_should_be(tmp_path):
    out = tmp_path / "hall.json"
    done = subprocess.run([sys.executable, ROOT / "deploy" / "demo", "--rules", "--json", out], check=False, timeout=550)
    found = json.loads(out.read_text())
    assert (done.returncode, [each["problems"] for each in found.values()]) == (0, [[], []])
    assert [(each["lost"], each["double"]) for each in found.values()] == [(0, 0), (0, 0)]
    assert [each["told"] for each in found.values()] == [["off", "on", "off", "on"]] * 2
    assert found["means"]["wire_bytes"] < found["values"]["wire_bytes"] / 2
    assert found["means"]["merged"] == found["means"]["acknowledged"]
