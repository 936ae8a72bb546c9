"""A second flow on a checkpoint is refused before Spark starts, and the first one goes on."""

import signal
import subprocess
import sys

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.start.lease import leased
from fogline_lab.supervisor import find_script

HOLD = """
import sys, time
from fogline_cloud.flows.start.lease import leased
with leased(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder / "checkpoint"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.fault("K7")
def test_a_second_flow_run_is_refused_at_its_start_and_names_the_process_that_goes_on(folder, holder):
    config = folder / "cloud.toml"
    config.write_text(
        f'tenant = "acme"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        f'[flow]\ntables = "{folder / "tables"}"\ncheckpoint = "{folder / "checkpoint"}"\n'
    )
    done = subprocess.run(
        [find_script("fogline"), "flow", "run", "--config", config], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"another flow uses it on this machine (process {holder.pid}), and goes on" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert holder.poll() is None


def test_the_lease_of_a_killed_flow_ends_with_it(folder, holder):
    checkpoint = str(folder / "checkpoint")
    with pytest.raises(Misconfigured, match="another flow uses it"), leased(checkpoint):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with leased(checkpoint):
        pass


def test_flows_with_other_checkpoints_run_side_by_side(folder, holder):
    with leased(str(folder / "other")), leased("s3a://bucket/checkpoint"):
        assert holder.poll() is None
