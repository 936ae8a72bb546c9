"""`fogline pipeline` as a person runs it: a new pipeline, its test, two runs, its picture, and a second process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.parser_kit.sample_events import read_events
from fogline_cloud.pipelines.landing import TrialLanding
from fogline_cloud.settings import CloudSettings, FlowSettings

LIMIT_S = 400


class Site:
    """A folder with a pipeline, Fogline's tables, and their settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "cloud.toml").write_text('tenant = "test"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n')
        settings = CloudSettings(tenant="test", flow=FlowSettings(tables=str(folder / "tables")))
        self.readings = tables_in(settings.flow.tables, {}).readings
        self.landing = TrialLanding(settings)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "fogline_cloud.cli.main", "pipeline", *words]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fogline(self, *words: str, status: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == status, out + err
        return out if status == 0 else err

    def land(self, name: str) -> None:
        self.landing.land(read_events(self.folder / "plant" / "test" / name))

    def rows(self, name: str) -> list[tuple]:
        table = DeltaTable(str(self.folder / "plant" / "storage" / "tables" / name)).to_pyarrow_table()
        return sorted(tuple(each.values()) for each in table.select(["device", "n"]).to_pylist())


@pytest.mark.slow
def test_a_new_pipeline_is_tested_run_twice_killed_and_drawn(folder):
    site = Site(folder)
    assert "next: fogline pipeline test plant" in site.fogline("init", "plant")
    assert site.fogline("test", "plant").splitlines() == [
        "plant: hourly is as expected",
        "plant: temperatures_rejected is as expected",
    ]

    site.land("1-live.jsonl")
    assert "hourly: materialized view, reads temperatures" in site.fogline("dry-run", "plant")
    first = {each["name"]: each for each in json.loads(site.fogline("run", "plant", "--json"))}
    assert first["temperatures"]["broken"] == {"plausible": 1}
    assert site.rows("hourly") == [("oven-1", 2)]

    site.land("2-three-days-late.jsonl")
    killed = site.start("run", "plant")
    assert killed.stderr is not None
    for line in killed.stderr:  # until a table runs
        if line.endswith(" runs\n"):
            break
    assert "another run uses it" in site.fogline("run", "plant", status=2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=LIMIT_S)

    site.fogline("run", "plant")
    assert site.rows("hourly") == [("oven-1", 2), ("oven-2", 1)]

    DeltaTable(site.readings.uri).delete("device = 'oven-2'")
    drawn = site.fogline("graph", "plant", "--svg", "plant.svg", "--json")
    assert json.loads(drawn)["tables"]["temperatures"]["behind"].startswith("1 version (")
    assert "3 rows, 1 version (" in (folder / "plant.svg").read_text()
    assert site.fogline("graph", "plant").startswith("flowchart LR\n")
    assert "hourly" in site.fogline("run", "plant", "--full-refresh", "temperatures")
    assert site.rows("hourly") == [("oven-1", 2)]
    assert "there is no table nothing" in site.fogline("run", "plant", "--full-refresh", "nothing", status=2)
