"""A hostile service user plants links where root writes: nothing outside the user's folders changes. Needs root."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from rules.source import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root's rights")
USER, GROUP, NAME = 65_534, 65_534, "nobody"
SECRET = "root's secret"
DEBIAN = ROOT / "deploy" / "packages" / "debian"
PLANTED = ["data/copy.json.new", "data/copy.json", "data/outbox.db-shm", "data/outbox.db-wal", "users"]
EDGE = "import sys; from fogline_edge.cli import main; sys.exit(main(sys.argv[1:]))"
CLOUD = "import sys; from fogline_cloud.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def world():
    """A folder that every user may enter, with a file and a folder of root's in `root`."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "root").mkdir(mode=0o755)
        (path / "root" / "secret").write_text(SECRET)
        (path / "root" / "secret").chmod(0o600)
        yield path


def outside(world: Path) -> dict[str, tuple[int, int, int, str]]:
    """What is root's: mode, owner, group and content of each file."""
    found = {}
    for each in sorted([world / "root", *(world / "root").rglob("*")]):
        about = each.lstat()
        content = each.read_text("utf-8", "replace") if each.is_file() else ""
        found[str(each)] = stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid, content
    return found


def give(folder: Path) -> None:
    """Give a folder, and all that is in it, to the service user."""
    for each in (folder, *folder.rglob("*")):
        os.chown(each, USER, GROUP, follow_symlinks=False)


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def gateway(world) -> Path:
    """The settings of a gateway of the user, with an outbox."""
    folder = world / "pi"
    folder.mkdir()
    config = folder / "edge.toml"
    config.write_text('tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[mqtt]\nport = 0\nusers = "users"\n')
    (folder / "users").write_text("")

    async def fill() -> None:
        await Outbox.open(load(config)).close()

    asyncio.run(fill())
    give(folder)
    return config


def link(at: Path, target: Path) -> None:
    at.unlink(missing_ok=True)
    at.symlink_to(target)
    os.chown(at, USER, GROUP, follow_symlinks=False)


@pytest.mark.fault("S8")
@pytest.mark.parametrize("planted", PLANTED)
def test_a_backup_writes_and_reads_nothing_of_roots(world, gateway, planted):
    link(gateway.parent / planted, world / "root" / "secret")
    before = outside(world)
    file = world / "gw-1.backup"
    run(EDGE, "backup", file, "--config", gateway)
    assert outside(world) == before
    assert not file.exists() or SECRET.encode() not in file.read_bytes()


@pytest.mark.fault("S8")
def test_a_backup_by_root_is_roots_alone_and_whole(world, gateway):
    file = world / "gw-1.backup"
    done = run(EDGE, "backup", file, "--config", gateway)
    assert done.returncode == 0, done.stderr
    about = file.stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o600, 0)
    assert (gateway.parent / "data" / "copy.json").stat().st_uid == USER
    restored = world / "new"
    restored.mkdir()
    give(restored)
    done = run(EDGE, "restore", file, "--out", restored)
    assert done.returncode == 0, done.stderr
    assert {each.lstat().st_uid for each in restored.rglob("*")} == {USER}


@pytest.mark.fault("S8")
@pytest.mark.parametrize("planted", ["edge.toml.restoring", "users.restoring", "data", "users"])
def test_a_restore_writes_nothing_of_roots(world, gateway, planted):
    file = world / "gw-1.backup"
    assert run(EDGE, "backup", file, "--config", gateway).returncode == 0
    restored = world / "new"
    restored.mkdir()
    give(restored)
    link(restored / planted, world / "root" if planted == "data" else world / "root" / "secret")
    before = outside(world)
    run(EDGE, "restore", file, "--out", restored)
    assert outside(world) == before


@pytest.mark.fault("S8")
@pytest.mark.parametrize("planted", ["users.new", "users", "the settings"])
def test_passwords_are_written_into_nothing_of_roots(world, planted):
    folder = world / "cloud"
    folder.mkdir()
    users = str(world / "root" / "users") if planted == "the settings" else "users"
    (folder / "cloud.toml").write_text(f'tenant = "acme"\n[bridge]\nusers = "{users}"\ntls = {{ ca = "ca.pem" }}\n')
    give(folder)
    if planted != "the settings":
        link(folder / planted, world / "root" / "secret")
    before = outside(world)
    run(CLOUD, "user", "set", "alice", "--config", folder / "cloud.toml")
    assert outside(world) == before


@pytest.mark.fault("S8")
@pytest.mark.parametrize("planted", ["data/outbox.db-shm", "data/outbox.db-wal", "data/copy.json.new"])
def test_rejected_events_are_deleted_with_the_rights_of_the_gateway(world, gateway, planted):
    link(gateway.parent / planted, world / "root" / "secret")
    before = outside(world)
    run(EDGE, "outbox", "--quarantine", "--delete", "--config", gateway)
    assert outside(world) == before
    assert {each.lstat().st_uid for each in gateway.parent.rglob("*")} == {USER}


@pytest.mark.fault("S8")
@pytest.mark.parametrize("planted", ["users", "edge.toml"])
def test_an_archive_for_support_holds_nothing_of_roots(world, gateway, planted):
    link(gateway.parent / planted, world / "root" / "secret")
    archives = world / "archives"
    archives.mkdir()
    run(EDGE, "diag", "--config", gateway, "--out", archives)
    for each in archives.iterdir():
        with tarfile.open(each) as archive:
            content = b"".join(archive.extractfile(member).read() for member in archive.getmembers())
        assert SECRET.encode() not in content


@pytest.fixture
def authority(world) -> Path:
    """The settings of an authority of the user."""
    folder = world / "cloud"
    folder.mkdir()
    (folder / "cloud.toml").write_text('tenant = "acme"\n[ca]\nfolder = "ca"\n')
    give(folder)
    assert run(CLOUD, "ca", "init", "--config", folder / "cloud.toml").returncode == 0
    return folder / "cloud.toml"


@pytest.mark.fault("S8")
@pytest.mark.parametrize("command", ["ca issue operator alice --out {out}", "gateway add gw-1"])
def test_an_authority_issues_with_the_rights_of_its_user(world, authority, command):
    folder = authority.parent
    for planted in [*(folder / "ca").iterdir(), folder / "alice.pem", folder / "ca.pem"]:
        if planted.name not in {"ca.key", "ca.pem"} or planted.parent == folder:
            link(planted, world / "root" / "secret")
    before = outside(world)
    run(CLOUD, *command.format(out=folder).split(), "--config", authority)
    assert outside(world) == before


@pytest.mark.fault("S8")
def test_root_gets_a_certificate_of_the_authority_of_another_user(world, authority):
    done = run(CLOUD, "ca", "issue", "operator", "alice", "--out", world / "root" / "alice", "--config", authority)
    assert done.returncode == 0, done.stderr
    assert {each.name for each in (world / "root" / "alice").iterdir()} == {"alice.pem", "alice.key", "ca.pem"}
    assert {each.lstat().st_uid for each in authority.parent.rglob("*")} == {USER}


@pytest.mark.fault("S8")
@pytest.mark.parametrize("package", ["fogline-cloud", "fogline-edge", "fogline-flow"])
@pytest.mark.parametrize(
    ("planted", "target"),
    [
        ("etc/fogline/cloud", "root"),
        ("etc/fogline/cloud/cloud.toml", "root/secret"),
        ("var/lib/fogline/cloud", "root"),
        ("var/lib/fogline/flow", "root"),
        ("var/lib/fogline/flow", "root/secret"),
        ("etc/fogline/edge.toml", "root/secret"),
    ],
)
def test_an_update_of_a_package_changes_nothing_of_roots(world, package, planted, target):
    """The script runs with the folders of the system below another one, and its user is another one."""
    (world / "root" / "cloud.toml").write_text(SECRET)
    for folder in ("etc/fogline/cloud", "var/lib/fogline/cloud", "var/lib/fogline/flow"):
        (world / folder).mkdir(parents=True)
    for folder in ("etc/fogline", "var/lib/fogline"):
        give(world / folder)
    at = world / planted
    if at.is_dir():
        shutil.rmtree(at)
    link(at, world / target)
    before = outside(world)
    script = (DEBIAN / f"{package}.postinst").read_text().replace("#DEBHELPER#", "")
    for folder in ("/etc/fogline", "/var/lib/fogline"):
        script = script.replace(folder, f"{world}{folder}")
    script = script.replace("fogline:fogline", f"{USER}:{GROUP}").replace("root:fogline", f"0:{GROUP}")
    script = script.replace("--reuid=fogline --regid=fogline", f"--reuid={NAME} --regid={GROUP}")
    programs = world / "bin"
    programs.mkdir()
    for name in ("adduser", "py3compile", "getent"):
        (programs / name).write_text("#!/bin/sh\nexit 0\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script, "postinst", "configure"], env=environment, capture_output=True, check=False, timeout=60)
    assert outside(world) == before
