"""A team deploys a parser over HTTP: who may, what is checked, what is in the audit, and what the command line prints."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from e2e.guarded import guarded
from e2e.http_api import basic, served
from flows.deployments import ACME, parser_folder, reads
from fogline_cloud.cli.administration.audit import _records as audit_records
from fogline_cloud.cli.main import main
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import Change
from fogline_cloud.parser_kit.packing import wheel_of
from fogline_cloud.settings import FlowSettings
from fogline_lab.credentials.authority_folder import PASSWORD

ALICE, WEATHER = basic("alice", PASSWORD), basic("weather", PASSWORD)
DEPLOYER = """
[[deployer]]
name = "alice"
parsers = ["acme*"]

[[admin]]
name = "weather"
"""
PATH = "/v1/parsers/acme"


@pytest.fixture
def deploying(line):
    """A tenant in which alice may deploy parsers `acme*`, and the API's settings for it."""
    line, https = guarded(line)
    file = line.folder / "access.toml"
    text = file.read_text()
    file.write_text(text[: text.index("[[quota]]")] + DEPLOYER)
    line.cloud = replace(line.cloud, flow=FlowSettings(tables=str(line.folder / "tables")))
    return line, https


async def audited(line, name="acme"):
    """What the audit says about a parser."""
    found = await asyncio.to_thread(lambda: list(audit_records(line.cloud)))
    about = [each for each in found if f"{each.name} {each.why} ".find(f"parser/{line.tenant}/{name} ") >= 0]
    return sorted((each.who.split(" (")[0].rpartition("/")[2], each.decision) for each in about)


async def test_only_a_deployer_deploys_and_the_audit_has_each_decision(deploying, tmp_path):
    line, https = deploying
    log = ParserLog(line.cloud)
    wheel = wheel_of(parser_folder(tmp_path / "one", reads("one")))
    async with served(line, **https) as (found, *_):
        http = found.http
        for headers, status in (({}, 401), (WEATHER, 403)):  # an admin may do all else
            refused = await http.put(PATH, content=wheel, headers=headers)
            assert refused.status_code == status
        assert (await http.put("/v1/parsers/other", content=wheel, headers=ALICE)).status_code == 403
        assert (await http.post(f"{PATH}/rollback", headers=WEATHER)).status_code == 403
        assert log.history() == []

        done = await http.put(PATH, content=wheel, headers=ALICE, params={"content_types": ACME})
        assert done.status_code == 200, done.text
        entry = log.newest()
        assert (entry.number, entry.change, entry.name, entry.digest) == (1, Change.DEPLOY, "acme", done.json()["digest"])
        assert entry.who == f"client {line.tenant}/alice (password)"
        listed = (await http.get("/v1/parsers", headers=ALICE)).json()
        assert [(each["name"], each["content_types"]) for each in listed["parsers"]] == [("acme", [ACME])]
        assert (await http.get("/v1/parsers", headers=WEATHER)).json() == {"parsers": [], "changes": []}
        back = await http.post(f"{PATH}/rollback", headers=ALICE)
        assert (back.status_code, back.json()["digest"]) == (200, None)
        assert (await http.post("/v1/parsers/acme-2/rollback", headers=ALICE)).status_code == 404
    assert await audited(line) == [
        ("alice", "DEPLOYMENT ALLOWED"),
        ("alice", "ROLLBACK ALLOWED"),
        ("weather", "MESSAGE REFUSED"),
        ("weather", "MESSAGE REFUSED"),
    ]
    assert await audited(line, "other") == [("alice", "MESSAGE REFUSED")]


async def test_parser_that_fails_its_check_is_not_deployed(deploying, tmp_path):
    line, https = deploying
    async with served(line, **https) as (found, *_):
        for number, (source, events, why) in enumerate(
            [
                ("import no_such_module", "", "it cannot be imported: ModuleNotFoundError"),
                ("import os\nos.kill(os.getpid(), 9)", "", "SIGKILL"),
                (
                    "def parse(event):\n    raise Poison('malformed', 'odd')",
                    '{"topic": "t", "body": "1"}\n',
                    "dead (malformed): odd",
                ),
            ]
        ):
            folder = parser_folder(tmp_path / str(number), source, **({"events__jsonl": events} if events else {}))
            refused = await found.http.put(PATH, content=wheel_of(folder), headers=ALICE)
            assert refused.status_code == 422, refused.text
            assert why in refused.json()["detail"]
        for body in (b"", b"no wheel", b"PK\x05\x06" + bytes(18)):
            assert (await found.http.put(PATH, content=body, headers=ALICE)).status_code == 422
        other = wheel_of(parser_folder(tmp_path / "best", reads("best"), name="acme-best"))
        assert "has no parser acme" in (await found.http.put(PATH, content=other, headers=ALICE)).json()["detail"]
    assert ParserLog(line.cloud).history() == []


async def test_deploy_list_and_rollback_on_the_command_line(deploying, tmp_path, capsys):
    line, https = deploying
    folder = parser_folder(tmp_path / "one", reads("one"), events__jsonl='{"topic": "t", "body": "21"}\n')
    async with served(line, **https) as (found, *_):
        password = tmp_path / "password"
        password.touch(0o600)
        password.write_text(PASSWORD)
        config = tmp_path / "operator.toml"
        config.write_text(
            f'tenant = "{line.tenant}"\n[operator]\napi = "{found.url}"\nuser = "alice"\npassword_file = "{password}"\n'
            f'[operator.tls]\nca = "{line.cloud.operator.tls.ca}"\n'
        )

        async def fogline(*words):
            status = await asyncio.to_thread(main, ["parser", *words, "--config", str(config)])
            return status, capsys.readouterr()

        status, printed = await fogline("deploy", str(folder), "--name", "acme", "--content-type", ACME)
        assert status == 0, printed.err
        assert "sample events of the wheel: 1 ok" in printed.out
        assert "A running flow takes it at its next micro-batch" in printed.out
        status, printed = await fogline("list", "--json")
        assert [each["name"] for each in json.loads(printed.out)["parsers"]] == ["acme"]
        status, printed = await fogline("rollback", "acme")
        assert (status, "rollback acme to the installed parser" in printed.out) == (0, True)
        status, printed = await fogline("deploy", str(folder), "--name", "other")
        assert status == 2
        assert "may not" in printed.err
