"""What is not there just now is said at once: by sockets that refuse, and by the lease of a flow that was killed."""

import signal
import socket
import subprocess
import sys

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.api_settings import ApiSettings
from fogline_cloud.console.pages.liveness import Liveness, look, refusal
from fogline_cloud.flows.start.lease import is_held, leased
from fogline_cloud.settings import BridgeSettings, CloudSettings, FlowSettings

FLOW = """
import sys
from fogline_cloud.flows.start.lease import leased
with leased(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def address_of(listener) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def settings_of(address: str, checkpoint: str = "s3a://b/c", **more) -> CloudSettings:
    flow = FlowSettings(checkpoint=checkpoint, metrics=more.pop("flow", None))
    bridge = BridgeSettings(metrics=more.pop("bridge", None))
    return CloudSettings(tenant="t", kafka={"bootstrap.servers": address}, bridge=bridge, flow=flow, api=ApiSettings())


@pytest.mark.parametrize("part", ["kafka", "bridge", "flow"])
def test_part_that_was_killed_is_named_at_the_next_look(listener, part):
    """A killed process and a closed socket refuse alike."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        stays, goes = address_of(listener), address_of(other)
        at = {"kafka": stays, "bridge": stays, "flow": stays, part: goes}
        settings = settings_of(f"PLAINTEXT://{at['kafka']}", bridge=at["bridge"], flow=at["flow"])
        assert look(settings) == Liveness()
    found = look(settings)
    assert "Connection refused" in getattr(found, part)
    assert goes in getattr(found, part)
    assert sum(bool(getattr(found, name)) for name in Liveness.__struct_fields__) == 1


def test_one_of_several_brokers_that_refuses_is_named(listener):
    with socket.create_server(("127.0.0.1", 0)) as other:
        gone = address_of(other)
    assert look(settings_of(f"{address_of(listener)}, {gone}")).kafka == f"{gone}: Connection refused"


@pytest.mark.parametrize("odd", ["", "kafka", "a:b:c", "[::1", "kafka:0"])
def test_odd_address_is_no_reason_to_fail(odd):
    assert isinstance(refusal(odd), str)
    assert isinstance(look(settings_of(odd)), Liveness)


def test_flow_that_was_killed_has_given_back_its_lease(folder):
    checkpoint = str(folder / "checkpoint")
    assert (is_held(checkpoint), look(settings_of("", checkpoint)).flow) == (None, "")
    command = [sys.executable, "-c", FLOW, checkpoint]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flow:
        assert flow.stdout.readline() == "ready\n"
        assert (is_held(checkpoint), look(settings_of("", checkpoint)).flow) == (True, "")
        with pytest.raises(Misconfigured, match="another flow uses it"), leased(checkpoint):
            pass
        flow.send_signal(signal.SIGKILL)
    assert is_held(checkpoint) is False
    assert "no flow holds its checkpoint" in look(settings_of("", checkpoint)).flow
    with leased(checkpoint):
        assert look(settings_of("", checkpoint)).flow == ""
