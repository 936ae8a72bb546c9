"""rhea, a client that others wrote, and a gateway behind a real Artemis: clients connect to the bridge itself."""

import pytest

from contracts.foreign.clients import Sent
from contracts.foreign.javascript import Rhea, rhea_security
from fogline.process.files.via_settings import ViaKind
from fogline_cloud.authority.certificates import Role
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.intermediary.artemis import Artemis
from fogline_lab.line.line import commandable
from fogline_lab.line.via_line import behind


@pytest.mark.slow
async def test_rheas_command_is_answered_and_it_reads_the_events_of_a_gateway_behind_an_artemis(line, folder):
    with Artemis(folder / "broker") as broker:
        line, site = behind(line, broker.port, ViaKind.BROKER)
        async with commandable(line) as (_, _, downlink):
            device = CommandDevice(downlink)
            downlink.reachable("lamp-1", device)
            rhea = Rhea(line.port, line.tenant, rhea_security(site.files(Role.OPERATOR, "alice"), "certificate"))
            outcomes, replies = await rhea.commands("lamp-1", [("string", "switch-1"), ("ulong", "7")])
            events = await rhea.events(f"telemetry/{line.tenant}", 1)
    assert outcomes == [Sent("accepted")] * 2
    assert [(each.status, each.state, each.body) for each in replies] == [(200, "SUCCEEDED", '{"ok":true}')] * 2
    assert events == [("lamp-1", '{"n": 1}')]
    assert len(device.ran) == 2
