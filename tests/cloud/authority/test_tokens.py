"""Tokens: each works once, whichever process is shown it, and a guess costs no reading."""

import multiprocessing
from datetime import timedelta

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.authority import tokens as tokens_module
from fogline_cloud.authority.certificates import now_utc
from fogline_cloud.authority.tokens import LOG, Tokens

NOW = now_utc()
PROCESSES = 8


def make(tokens: Tokens, gateway: str = "gw-1", minutes: float = 15) -> str:
    return tokens.make("acme", gateway, b"", NOW, minutes, hosts=["gw-1.local"]).secret


def use(folder, secrets, barrier, used) -> None:
    tokens = Tokens(folder)
    for secret in secrets:
        barrier.wait(300)  # none has used it yet
        try:
            tokens.use("gw-1", secret, NOW)
        except Misconfigured:
            continue
        used.put(secret)


def test_a_token_works_once_although_processes_use_the_folder_at_the_same_time(folder):
    """Each process has seen that the token counts before any of them uses it."""
    secrets = [make(Tokens(folder)) for _ in range(10)]
    spawn = multiprocessing.get_context("spawn")
    barrier, used = spawn.Barrier(PROCESSES), spawn.Queue()
    processes = [spawn.Process(target=use, args=(folder, secrets, barrier, used)) for _ in range(PROCESSES)]
    for each in processes:
        each.start()
    found = [used.get(timeout=300) for _ in secrets]
    for each in processes:
        each.join(300)
    assert used.empty()
    assert sorted(found) == sorted(secrets)
    assert {Tokens(folder).doubt("gw-1", secret, NOW) for secret in secrets} == {"the token was used already"}


def test_a_token_that_another_process_has_made_or_used_is_known_at_once(folder):
    ours, theirs = Tokens(folder), Tokens(folder)
    assert ours.doubt("gw-1", "guess", NOW) == "no such token"
    secret = make(theirs)
    assert ours.doubt("gw-1", secret, NOW) is None
    assert ours.doubt("gw-2", secret, NOW) == "no such token"
    assert "expired" in ours.doubt("gw-1", secret, NOW + timedelta(minutes=16))
    assert theirs.use("gw-1", secret, NOW) == ["gw-1.local"]
    assert ours.doubt("gw-1", secret, NOW) == "the token was used already"
    with pytest.raises(Misconfigured, match="used already"):
        ours.use("gw-1", secret, NOW)


@pytest.mark.fault("S7")
def test_a_guess_reads_nothing_that_was_read_before(folder, monkeypatch):
    tokens, read = Tokens(folder), []
    secret = make(tokens)
    read_lines = tokens_module.read_lines

    def counted(path, begin=0):
        lines, end = read_lines(path, begin)
        read.append(len(lines))
        return lines, end

    monkeypatch.setattr(tokens_module, "read_lines", counted)
    for number in range(1000):
        assert tokens.doubt("gw-1", f"guess {number}", NOW) == "no such token"
    make(tokens)
    assert tokens.doubt("gw-1", secret, NOW) is None
    assert read == [1, 1]


def test_a_file_that_took_the_place_of_another_counts_whole(folder):
    tokens = Tokens(folder)
    old = make(tokens)
    assert tokens.doubt("gw-1", old, NOW) is None
    other = folder / "other"
    other.mkdir()
    secret = make(Tokens(other))
    (other / LOG).replace(folder / LOG)
    assert tokens.doubt("gw-1", secret, NOW) is None
    assert tokens.doubt("gw-1", old, NOW) == "no such token"


def test_a_line_that_cannot_be_read_is_named(folder):
    tokens = Tokens(folder)
    make(tokens)
    with (folder / LOG).open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(Misconfigured, match="cannot be read"):
        tokens.doubt("gw-1", "guess", NOW)
