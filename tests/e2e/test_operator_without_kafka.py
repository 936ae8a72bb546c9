"""An operator's machine needs no Kafka: neither an address of it in the settings, nor its client library."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from e2e.device_registry import edited, known
from e2e.listing import write
from fogline.amqp.outcome import ACCEPTED
from fogline.commands.command import CommandState
from fogline_cloud.authority.ca_folder import ROOT
from fogline_cloud.cli.main import build_parser
from fogline_lab.amqp import within
from fogline_lab.bridge.command_records import make_record
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable, serving
from fogline_lab.line.secure_line import secure

LIMIT_S = 60
PROGRAM = """\
import sys
sys.modules["confluent_kafka"] = None  # importing it fails
from fogline_cloud.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
OVER = make_record("5f0c" + "0" * 28, state=CommandState.SUCCEEDED, status=200, reply_base64="b2s=", device="lamp-9")
OTHERS = [make_record(f"77{number}" + "0" * 29, state=CommandState.EXPIRED, status=408) for number in (1, 2)]
READS = {
    ("command", "list"): (0, "5f0c0000"),
    ("command", "show", "5f0c"): (0, "ok"),
    ("device", "list"): (0, "lamp-1"),
    ("device", "list", "--silent", "1h"): (0, "lamp-1"),
    ("device", "show", "lamp-1"): (0, "lamp"),
}
CASES = READS | {
    ("command", "send", "lamp-1", "switch"): (0, "SUCCEEDED"),
    ("command", "send", "--where", "type=lamp", "switch", "--groups", "groups"): (0, "SUCCEEDED 1"),
    ("command", "cancel", "5f0c"): (1, "SUCCEEDED: it is too late"),
    ("command", "approve", "5f0c"): (1, "does not wait for an approval: it is SUCCEEDED"),
    ("command", "group", "list", "--groups", "groups"): (0, "there is no group in groups"),
    ("command", "group", "show", "g1", "--groups", "groups"): (2, "g1"),
    ("command", "group", "resume", "g1", "--groups", "groups"): (2, "g1"),
    ("command", "group", "cancel", "g1", "--groups", "groups"): (2, "g1"),
    ("device", "set", "lamp-2", "--type", "lamp"): (0, "done"),
    ("device", "want", "lamp-1", "{}"): (0, "done"),
    ("device", "forget", "lamp-2"): (1, "not in the registry"),
    ("device", "history", "lamp-1"): (1, "has keep_days"),
    ("device", "credentials", "list"): (0, "no device has a key"),
    ("device", "credentials", "add", "lamp-1", "--kind", "psk"): (1, "set devices.credentials_key"),
    ("device", "credentials", "rotate", "lamp-1"): (2, "has no key: add one"),
    ("device", "credentials", "revoke", "lamp-1"): (1, "set devices.credentials_key"),
}
"""Each command of an operator, its exit status, and what it prints."""


def leaves(parser: argparse.ArgumentParser) -> Iterator[str]:
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog.removeprefix("fogline ")
    for group in groups:
        for each in group.choices.values():
            yield from leaves(each)


def test_every_command_of_operators_is_tried_here():
    every = {each for each in leaves(build_parser(["command", "device"])) if each.startswith(("command ", "device "))}
    tried = {name for words in CASES for name in every if " ".join(words).startswith(f"{name} ") or name == " ".join(words)}
    assert every - tried == {"command key", "device credentials key"}, "they connect to nothing"


async def run(line, *words: str, settings: str = "") -> tuple[int, str]:
    """Exit status and output of a command, with settings that name no Kafka."""
    config = line.folder / "operator.toml"
    config.write_text(settings or f'tenant = "{line.tenant}"\n[operator]\nbridge = "127.0.0.1:{line.port}"\n')
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *words, "--config", config),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=asyncio.subprocess.STDOUT,
        cwd=line.folder,
    )
    out, _ = await within(process.communicate(), f"{words} does not end", LIMIT_S)
    return process.returncode or 0, out.decode()


@pytest.fixture
def written(line):
    """A tenant with commands of the past."""
    write(line, replace(OVER, tenant=line.tenant), *(replace(each, tenant=line.tenant) for each in OTHERS))
    return line


@pytest.mark.parametrize("words", CASES, ids=" ".join)
async def test_a_command_of_an_operator_works_without_kafka(written, words):
    line = written
    async with commandable(line) as (bridge, _, downlink):
        downlink.reachable("lamp-1", CommandDevice(downlink))
        assert await edited(line, "lamp-1", "set", b'{"type": "lamp"}') == ACCEPTED
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        status, printed = await run(line, *words)
    assert (status, CASES[words][1] in printed, "Traceback" in printed) == (CASES[words][0], True, False), printed


async def test_the_beginning_of_an_id_is_enough_to_cancel_and_no_or_several_commands_are_a_sentence(written):
    line = written
    async with serving(line):
        status, printed = await run(line, "command", "cancel", "5f0c")
        assert (status, f"{OVER.id}: 409, SUCCEEDED: it is too late" in printed) == (1, True)
        for word in ("cancel", "show"):
            status, printed = await run(line, "command", word, "77")
            assert (status, "several commands begin with 77: give more of the id" in printed) == (1, True)
            status, printed = await run(line, "command", word, "99")
            assert (status, "no commands begin with 99" in printed) == (1, True)
        status, printed = await run(line, "command", "cancel", "99", "--json")
        assert (status, json.loads(printed)["status"]) == (1, 404)


async def test_a_wrong_password_and_a_bridge_that_is_not_there_are_one_sentence(line):
    line, site = secure(line)
    password = line.folder / "password"
    password.write_text("not this one")
    password.chmod(0o600)
    tls = f'[operator.tls]\nca = "{site.ca.path / ROOT}"\n'
    async with serving(line):
        for words in READS:
            settings = f'tenant = "{line.tenant}"\n[operator]\nbridge = "127.0.0.1:{line.port}"\nuser = "alice"\n'
            status, printed = await run(line, *words, settings=f'{settings}password_file = "password"\n{tls}')
            assert (status, printed.count("\n")) == (2, 1), printed
            assert "password" in printed
            assert "fogline user list" in printed
    status, printed = await run(line, "device", "list", "--bridge", "127.0.0.1:9")
    assert (status, "no bridge answers at 127.0.0.1:9" in printed, printed.count("\n")) == (2, True, 1)
