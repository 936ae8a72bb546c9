"""What `fogline command` and `fogline device` say after the mistakes of their user: one sentence, at once, and Ctrl-C."""

import asyncio
import json
import re
import signal
import sys
from pathlib import Path

import pytest

from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable

FOGLINE = Path(sys.executable).parent / "fogline"
LIMIT_S = 60


async def start(line, *arguments: str, tenant: str = "", more: str = "") -> asyncio.subprocess.Process:
    """A command of an operator, whose settings name no Kafka."""
    config = line.folder / "operator.toml"
    config.write_text(
        f'tenant = "{tenant or line.tenant}"\nshards = 2\n[operator]\nbridge = "127.0.0.1:{line.port}"\n{more}', "utf-8"
    )
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        FOGLINE, *arguments, "--config", config, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )


async def run(line, *arguments: str, **more: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command."""
    process = await start(line, *arguments, **more)
    out, err = await within(process.communicate(), f"{arguments} does not end", LIMIT_S)
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ("command", "send", "lamp-1", "switch"),
        ("command", "send", "--where", "type=lamp", "switch"),
        ("command", "cancel", "5f0c"),
        ("command", "cancel", "5f0c" + "0" * 28),
        ("command", "list"),
        ("command", "show", "5f0c"),
        ("device", "list"),
        ("device", "show", "lamp-1"),
        ("device", "set", "lamp-1", "--type", "lamp"),
    ],
)
async def test_a_wrong_tenant_is_refused_in_one_sentence_before_the_time_to_live_is_over(line, arguments):
    async with commandable(line):
        status, out, err = await run(line, *arguments, tenant="typo")
    assert (status, out) == (2, "")
    errors = [each for each in err.splitlines() if each.startswith("fogline: ")]
    assert len(errors) == 1, err
    assert "tenant 'typo' is not served here. Check `tenant`" in errors[0]
    assert "IN_DOUBT" not in err
    assert len(err.splitlines()) < 5, "no log of attempts"


async def test_ctrl_c_ends_a_command_with_130_after_its_id_was_printed_and_the_id_cancels_it(line):
    async with commandable(line):
        process = await start(line, "command", "send", "lamp-1", "switch", "--ttl", "10m")
        assert process.stderr is not None
        first = (await within(process.stderr.readline(), "no id", LIMIT_S)).decode()
        while not (found := re.match(r"command ([0-9a-f]{32}): switch for lamp-1$", first.strip())):
            first = (await within(process.stderr.readline(), "no id", LIMIT_S)).decode()
        process.send_signal(signal.SIGINT)
        _, rest = await within(process.communicate(), "Ctrl-C does not end it", LIMIT_S)
        assert process.returncode == 130
        assert f"fogline command cancel {found[1]}" in rest.decode()
        assert "Traceback" not in rest.decode()
        status, _, err = await run(line, "command", "cancel", found[1])
        assert (status, "CANCELLED" in err) == (0, True)


async def test_the_id_in_the_first_line_is_that_of_the_verdict(line):
    async with commandable(line) as (_, _, downlink):
        downlink.reachable("lamp-1", CommandDevice(downlink))
        status, out, err = await run(line, "command", "send", "lamp-1", "switch", "--output", "json")
        assert status == 0
        assert f"command {json.loads(out)['command_id']}: switch for lamp-1" in err


async def test_a_command_that_no_bridge_can_have_got_expires_and_is_not_in_doubt(line):
    async with commandable(line) as (bridge, _, _):
        process = await start(line, "command", "send", "nobody-1", "switch", "--ttl", "1s", "--bridge", "127.0.0.1:9")
        _, err = await within(process.communicate(), "it does not end", LIMIT_S)
        assert bridge is not None
    assert process.returncode == 2
    assert "no bridge answers at 127.0.0.1:9" in err.decode()


@pytest.mark.parametrize("arguments", [("ledger", "verify"), ("device", "list"), ("command", "list")])
async def test_ctrl_c_ends_every_command_with_130(line, arguments):
    """The address of Kafka, and of the bridge, accepts connections and says nothing, so that the command waits."""
    came = asyncio.Event()

    async def stay_silent(_: object, __: object) -> None:
        came.set()
        await asyncio.sleep(3600)

    server = await asyncio.start_server(stay_silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line.port = port
    process = await start(line, *arguments, more=f'[kafka]\n"bootstrap.servers" = "127.0.0.1:{port}"\n')
    try:
        await within(came.wait(), "it asks nobody", LIMIT_S)
        process.send_signal(signal.SIGINT)
        _, err = await within(process.communicate(), "Ctrl-C does not end it", LIMIT_S)
        assert (process.returncode, b"interrupted" in err, b"Traceback" in err) == (130, True, False)
    finally:
        if process.returncode is None:
            process.kill()
        server.close()
