"""Tenants with enrolment, with a registry that learns devices, and the command line."""

import asyncio

import pytest
from msgspec.structs import replace

from fogline_cloud.cli.main import main
from fogline_cloud.settings import CaSettings, DeviceSettings, Learn
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.line.line import Line
from fogline_lab.line.secure_line import secure


@pytest.fixture
def issuing(line) -> tuple[Line, AuthorityFolder]:
    """A tenant whose bridge issues certificates."""
    line, site = secure(line)
    bridge = replace(line.cloud.bridge, enrolment=True)
    line.cloud = replace(line.cloud, bridge=bridge, ca=CaSettings(folder=str(site.ca.path)))
    return line, site


@pytest.fixture
def learning(line):
    line.cloud = replace(line.cloud, devices=DeviceSettings(learn=Learn.ALL))
    return line


@pytest.fixture
def fogline(line, capsys):
    """The command line, on a thread; returns its exit status, and what it printed."""

    async def run(*words: str) -> tuple[int, str, str]:
        file = line.folder / "cloud.toml"
        text = f'tenant = "{line.tenant}"\nshards = 2\n[bridge]\nlisten = "127.0.0.1:{line.port}"\n'
        if words[0] not in ("command", "device"):  # operators need no Kafka
            text += f'[kafka]\n"bootstrap.servers" = "{line.cloud.kafka["bootstrap.servers"]}"\n'
        file.write_text(text)
        status = await asyncio.to_thread(main, [*words, "--config", str(file)])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run
