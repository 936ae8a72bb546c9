"""The password file: hashes only, read again when it changes, and a flood of logins is refused instead of queued."""

import asyncio

import pytest

from fogline.amqp.login import PLAIN, Login
from fogline.errors import Misconfigured
from fogline.process import tls_files
from fogline.process.tls_files import ReadAgain
from fogline_cloud.bridge.passwords import MAX_CHECKS, Passwords, password_line, read_passwords
from fogline_lab.amqp import within


@pytest.fixture
def file(folder):
    path = folder / "users"
    path.write_text(f"# operators\n{password_line('alice', 'right')}\n\n")
    path.chmod(0o600)
    return path


async def verdict(passwords: Passwords, user: str, password: str) -> bool:
    answer = asyncio.get_running_loop().create_future()
    passwords.check(Login(PLAIN, user, password), answer.set_result)
    return await within(answer, "no verdict")


async def test_the_right_password_and_nothing_else_is_accepted(file):
    passwords = Passwords(str(file))
    tries = [("alice", "right"), ("alice", "wrong"), ("alice", ""), ("bob", "right"), ("", ""), ("alice", "\udcff")]
    assert [await verdict(passwords, *each) for each in tries] == [True, False, False, False, False, False]


async def test_a_changed_file_counts_when_nobody_writes_it_any_more(file, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    passwords = Passwords(str(file))
    file.write_text(password_line("alice", "new one"))
    assert [await verdict(passwords, "alice", each) for each in ("right", "new one")] == [False, True]


async def test_a_changed_file_that_cannot_be_read_changes_nothing(file, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    passwords = Passwords(str(file))
    file.write_text("alice:plain:text")
    assert await verdict(passwords, "alice", "right")


async def test_a_flood_is_refused_beyond_the_limit(file):
    passwords, verdicts = Passwords(str(file)), []
    done = asyncio.Event()

    def note(accepted) -> None:
        verdicts.append(accepted)
        if len(verdicts) == 2 * MAX_CHECKS:
            done.set()

    for _ in range(2 * MAX_CHECKS):
        passwords.check(Login(PLAIN, "alice", "right"), note)
    assert verdicts == [False] * MAX_CHECKS, "those beyond the limit are answered at once"
    await within(done.wait(), "the others have no verdict")
    assert verdicts[MAX_CHECKS:] == [True] * MAX_CHECKS
    assert not passwords._waiting


@pytest.mark.parametrize("line", ["alice", "alice:scrypt:xx:yy", "alice:md5:00:00", "alice:scrypt:00"])
def test_a_wrong_line_is_named(file, line):
    file.write_text(f"# comment\n{line}\n")
    with pytest.raises(Misconfigured, match=r"users:2: expected a line of `fogline user set`"):
        read_passwords(str(file))


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


async def test_a_right_password_names_what_it_was_compared_with_and_a_wrong_one_does_not(file):
    passwords, proven = Passwords(str(file)), []
    for password in ("wrong", "right"):
        answer = asyncio.get_running_loop().create_future()
        passwords.check(Login(PLAIN, "alice", password), answer.set_result, proven.append)
        await within(answer, "no verdict")
    assert proven == [passwords.of("alice")]
