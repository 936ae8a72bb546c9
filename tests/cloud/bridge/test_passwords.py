"""The password file: hashes only, read again when it changes; a flood of logins keeps nobody out who knows a password."""

import asyncio
from collections import Counter

import pytest

from fogline.amqp.login import PLAIN, Login, LoginVerdict
from fogline.errors import Misconfigured
from fogline.process.files import tls_files
from fogline.process.files.tls_files import ReadAgain
from fogline_cloud.bridge.door import passwords as passwords_module
from fogline_cloud.bridge.door.passwords import Passwords, password_line, read_passwords
from fogline_lab.amqp import within

ACCEPTED, REFUSED, BUSY = LoginVerdict


@pytest.fixture
def file(folder):
    path = folder / "users"
    path.write_text(f"# operators\n{password_line('alice', 'right')}\n\n")
    path.chmod(0o600)
    return path


async def verdict(passwords: Passwords, user: str, password: str, address: str = "192.0.2.1") -> LoginVerdict:
    answer = asyncio.get_running_loop().create_future()
    passwords.check(Login(PLAIN, user, password), address, answer.set_result)
    return await within(answer, "no verdict")


async def test_the_right_password_and_nothing_else_is_accepted(file):
    passwords = Passwords(str(file))
    tries = [("alice", "right"), ("alice", "wrong"), ("alice", ""), ("bob", "right"), ("", ""), ("alice", "\udcff")]
    assert [await verdict(passwords, *each) for each in tries] == [ACCEPTED, *[REFUSED] * 5]


async def test_changed_file_is_read_after_its_last_write(file, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    passwords = Passwords(str(file))
    file.write_text(password_line("alice", "new one"))
    assert [await verdict(passwords, "alice", each) for each in ("right", "new one")] == [REFUSED, ACCEPTED]


async def test_a_changed_file_that_cannot_be_read_changes_nothing(file, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    passwords = Passwords(str(file))
    file.write_text("alice:plain:text")
    assert await verdict(passwords, "alice", "right") is ACCEPTED


@pytest.mark.fault("S7")
async def test_right_password_is_accepted_beside_a_flood_of_logins_and_busy_is_never_wrong_password(file, monkeypatch):
    """48 strangers log in again and again, as fast as they are answered. Twelve users come meanwhile, from elsewhere."""
    monkeypatch.setitem(passwords_module._COST, "n", 2**8)  # some hundred checks
    file.write_text(password_line("alice", "right"))
    passwords, told, over = Passwords(str(file)), Counter(), asyncio.Event()

    async def stranger(number: int) -> None:
        while not over.is_set():
            told[await verdict(passwords, f"made-up-{number}", "guess")] += 1
            await asyncio.sleep(0)

    strangers = [asyncio.create_task(stranger(number)) for number in range(48)]
    await asyncio.sleep(0)
    users = [verdict(passwords, "alice", "right", "192.0.2.2") for _ in range(12)]
    assert await asyncio.gather(*users) == [ACCEPTED] * 12
    neighbour = BUSY
    async with asyncio.timeout(60):
        while neighbour is BUSY:  # a client that is told so comes again
            neighbour = await verdict(passwords, "alice", "right")
            await asyncio.sleep(0)
    assert neighbour is ACCEPTED, "also from the strangers' own address"
    over.set()
    await asyncio.gather(*strangers)
    assert set(told) == {REFUSED, BUSY}
    assert not passwords._waiting


@pytest.mark.parametrize("line", ["alice", "alice:scrypt:xx:yy", "alice:md5:00:00", "alice:scrypt:00"])
def test_a_wrong_line_is_named(file, line):
    file.write_text(f"# comment\n{line}\n")
    with pytest.raises(Misconfigured, match=r"users:2: expected a line of `fogline user set`"):
        read_passwords(str(file))


def test_a_bridge_starts_with_a_file_that_has_no_user_yet(file):
    for text in ("", "# operators\n", "\n"):
        file.write_text(text)
        assert read_passwords(str(file)) == {}


def test_a_file_that_is_missing_is_made_by_the_command_that_the_error_names(folder):
    with pytest.raises(Misconfigured, match=r"bridge.users: there is no .*Make it by its first user: fogline user set NAME"):
        read_passwords(str(folder / "users"))


def test_a_file_that_everybody_reads_is_refused(file):
    file.chmod(0o644)
    with pytest.raises(Misconfigured, match="chmod 600"):
        read_passwords(str(file))


def test_a_file_is_read_again_only_when_it_has_changed(folder):
    path, reads = folder / "file", []
    path.write_text("1")

    def read() -> str:
        reads.append(path.read_text())
        return reads[-1]

    again = ReadAgain(read, [str(path)])
    assert [again.get(), again.get()] == ["1", "1"]
    path.write_text("22")
    assert [again.get(at_once=True), again.get()] == ["22", "22"]
    assert reads == ["1", "22"]


async def test_only_a_right_password_names_its_hash(file):
    passwords, proven = Passwords(str(file)), []
    for password in ("wrong", "right"):
        answer = asyncio.get_running_loop().create_future()
        passwords.check(Login(PLAIN, "alice", password), "192.0.2.1", answer.set_result, proven.append)
        await within(answer, "no verdict")
    assert proven == [passwords.of("alice")]
