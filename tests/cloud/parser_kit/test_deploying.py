"""Deployments that are killed between two steps, or that meet another one, and the log of deployments in an object store."""

import asyncio
import threading
from pathlib import Path

import pytest

from flows.deployments import ACME, deploy, parser_folder, reads
from fogline.errors import Poison, Unreachable
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import Change, newest_changes
from fogline_cloud.flows.deployed.unpacked import WrongFile, read_file
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.parser_kit import deploying
from fogline_cloud.parser_kit.deploying import ParserDeployments
from fogline_cloud.parser_kit.packing import wheel_of
from fogline_cloud.parser_kit.parser_check import ParserCheck
from fogline_cloud.settings import CloudSettings, FlowSettings, StoreSettings
from fogline_cloud.store.options import storage_of
from fogline_lab.object_store import BUCKET, ObjectStore


class Killed(BaseException):
    """The process ends here."""


async def allow(_: str) -> None:
    """Allow everything."""


async def passing(_: object) -> ParserCheck:
    """Find no problem."""
    return ParserCheck()


@pytest.fixture
def settings(tmp_path: Path) -> CloudSettings:
    return CloudSettings(tenant="t", flow=FlowSettings(tables=str(tmp_path / "tables")))


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploying, "run_check", passing)


STEPS = [(ParserLog, "put_file"), (ParserLog, "newest"), (deploying, "run_check"), (None, "allow"), (ParserLog, "append")]


@pytest.mark.fault("K26")
@pytest.mark.parametrize(("owner", "step"), STEPS, ids=[step for _, step in STEPS])
async def test_deployment_killed_before_any_step_leaves_the_former_set_and_can_be_repeated(
    unchecked: None, settings: CloudSettings, tmp_path: Path, owner: object, step: str
) -> None:
    log, data = ParserLog(settings), wheel_of(parser_folder(tmp_path / "two", reads("two")))
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))

    def kill(*_: object, **__: object) -> None:
        raise Killed

    async def asked(digest: str) -> None:
        if owner is None:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        if owner is not None:
            patch.setattr(owner, step, kill)
        with pytest.raises(Killed):
            await ParserDeployments(settings).deploy("acme", data, [], "alice", asked, accept_dead=False)
    assert log.newest() == former
    entry, _ = await ParserDeployments(settings).deploy("acme", data, [], "alice", allow, accept_dead=False)
    assert log.newest() == entry
    assert entry.parsers["acme"].content_types == (ACME,)


async def test_refused_deployment_changes_nothing(unchecked: None, settings: CloudSettings, tmp_path: Path) -> None:
    async def refuse(_: str) -> None:
        raise Poison("not-authorised", "no")

    data = wheel_of(parser_folder(tmp_path / "one", reads("one")))
    with pytest.raises(Poison, match="no"):
        await ParserDeployments(settings).deploy("acme", data, [], "alice", refuse, accept_dead=False)
    assert ParserLog(settings).newest() is None


@pytest.mark.parametrize("name", ["json", "acme-2"])
async def test_name_must_be_one_of_the_wheel_and_none_of_foglines(
    unchecked: None, settings: CloudSettings, tmp_path: Path, name: str
) -> None:
    data = wheel_of(parser_folder(tmp_path / "one", reads("one"), name="json"))
    with pytest.raises(Poison) as error:
        await ParserDeployments(settings).deploy(name, data, [], "alice", allow, accept_dead=False)
    assert error.value.reason == "wheel"


async def test_two_teams_deploy_at_once(unchecked: None, settings: CloudSettings, tmp_path: Path) -> None:
    teams = ParserDeployments(settings)
    data = {name: wheel_of(parser_folder(tmp_path / name, reads(name), name=name)) for name in ("acme", "best")}
    await asyncio.gather(
        *(teams.deploy(name, each, [f"application/{name}"], name, allow, accept_dead=False) for name, each in data.items())
    )
    history = await teams.history()
    assert sorted(history[-1].parsers) == ["acme", "best"]
    assert [each.name for each in newest_changes(history)] == ["acme", "best"]
    assert len(history) == 2


@pytest.fixture
def stored(object_store: ObjectStore, tenant: str) -> CloudSettings:
    store = StoreSettings(endpoint=object_store.endpoint, key_file=str(object_store.key_file))
    return CloudSettings(tenant="t", flow=FlowSettings(tables=f"s3a://{BUCKET}/{tenant}/tables"), store=store)


@pytest.mark.fault("K26")
def test_log_in_an_object_store_gives_each_deployment_a_number_of_its_own(stored: CloudSettings, tmp_path: Path) -> None:
    log = ParserLog(stored)
    assert (log.newest(), log.newer(0)) == (None, None)
    names = [f"acme-{number}" for number in range(4)]
    folders = {name: parser_folder(tmp_path / name, reads(name), name=name) for name in names}
    threads = [
        threading.Thread(
            target=deploy, args=(ParserLog(stored), folders[name]), kwargs={"name": name, "kinds": (f"application/{name}",)}
        )
        for name in names
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    newest = log.newer(0)
    assert newest is not None
    assert (newest.number, sorted(newest.parsers)) == (4, names)
    folder = TableFolder(log.place, storage_of(stored))
    digest = newest.parsers["acme-0"].digest
    assert read_file(folder, digest) == log.file(digest) == wheel_of(folders["acme-0"])
    with pytest.raises(WrongFile, match="is missing"):
        read_file(folder, "0" * 64)
    log.append(Change.ROLLBACK, "acme-0", "alice", "", lambda now: now)
    assert log.newest() == newest


def test_store_that_is_away_is_unreachable(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    away = StoreSettings(endpoint="http://127.0.0.1:9", key_file=str(keys))
    log = ParserLog(CloudSettings(tenant="t", flow=FlowSettings(tables="s3a://fog/tables"), store=away))
    with pytest.raises(Unreachable, match="does not answer"):
        log.newest()
