"""`fogline command` as a person runs it: exit status, one line, JSON; bridge, gateway and device are of this process."""

import asyncio
import json

from e2e.command_line import fogline
from fogline.commands.command import Reply
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable


async def test_a_person_sends_a_command_and_reads_the_answer(line):
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        done = await fogline(line, "send", "lamp-1", "switch", "--json", '{"on": true}', "--ttl", "30s")
        assert (done.status, done.out) == (0, '{"ok":true}\n')
        assert "switch for lamp-1: SUCCEEDED 200" in done.err
        told = await fogline(line, "send", "lamp-1", "switch", "--direct", "--output", "json")
        answer = json.loads(told.out)
        assert (told.status, answer["state"], answer["status"], answer["data"]) == (0, "SUCCEEDED", 200, '{"ok":true}')
        shown = await fogline(line, "show", answer["command_id"], "--json")
        assert (shown.status, json.loads(shown.out)["answer"]) == (0, '{"ok":true}')
        listed = json.loads((await fogline(line, "list", "--device", "lamp-1", "--json")).out)
        assert [each["state"] for each in listed] == ["SUCCEEDED", "SUCCEEDED"]
        assert {each["gateway"] for each in listed} == {"gw-1"}


async def test_every_no_has_a_status_and_says_why(line):
    async with commandable(line):
        cases = {
            ("send", "nobody", "switch"): (1, "nobody is not known"),
            ("send", "lamp-1", "switch", "--direct"): (1, "not connected"),
            ("send", "lamp-1", "switch", "--ttl", "1s"): (1, "EXPIRED 408"),
            ("send", "lamp-1", "switch", "--ttl", "9d"): (1, "604800 s at most"),
            ("send", "lamp-1", "sw/itch"): (1, "is not a name of a command"),
            ("send", "lamp+1", "switch"): (1, "lamp:2B1 is not known"),
            ("send", "lamp-1", "switch", "--ttl", "soon"): (2, "--ttl"),
            ("send", "lamp-1", "switch", "--json", "{"): (2, "is not JSON"),
            ("send", "lamp-1", "switch", "--bridge", "127.0.0.1:1"): (2, "no bridge answers at 127.0.0.1:1"),
            ("show", "nothing"): (1, "no commands begin with"),
        }
        ended = await asyncio.gather(*(fogline(line, *arguments) for arguments in cases))
        for done, (arguments, (status, words)) in zip(ended, cases.items(), strict=True):
            assert (done.status, words in done.err, "Traceback" in done.err) == (status, True, False), (arguments, done)


async def test_a_device_that_fails_or_stays_silent(line):
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink, answer=Reply(503, b"busy", "text/plain"))
        downlink.reachable("lamp-1", device)
        failed = await fogline(line, "send", "lamp-1", "switch")
        assert (failed.status, "FAILED 503, busy" in failed.err) == (1, True)
        device.answer = None
        silent = await fogline(line, "send", "lamp-1", "switch", "--ttl", "3s")
        assert (silent.status, "IN_DOUBT 504" in silent.err, len(device.ran)) == (1, True, 2)


async def test_an_answer_of_a_device_neither_controls_the_operators_terminal_nor_forges_a_line(line):
    evil, escaped = b"\x1b[2Jbusy\nlamp-2: SUCCEEDED 200", r"\x1b[2Jbusy\nlamp-2: SUCCEEDED 200"
    async with commandable(line) as (_, _, downlink):
        downlink.reachable("lamp-1", CommandDevice(downlink, answer=Reply(503, evil, "text/plain")))
        failed = await fogline(line, "send", "lamp-1", "switch")
        named, ended = failed.err.splitlines()
        assert (named.startswith("command "), ended) == (True, f"switch for lamp-1: FAILED 503, {escaped}")
        (command,) = json.loads((await fogline(line, "list", "--json")).out)
        shown = await fogline(line, "show", command["id"])
        assert [each for each in shown.out.splitlines() if each.startswith("answer")] == [f"answer       {escaped}"]
        assert "\x1b" not in shown.out
