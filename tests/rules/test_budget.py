"""The budget of CPU time holds: a test above its limit makes the run fail, whatever the test itself says."""

import cpu_time

BURN = """
import subprocess, sys, time

def test_burns_in_a_child():
    code = "import time\\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True)

def test_waits_for_a_while():
    subprocess.run(["sleep", "0.2"], check=True)
"""


def run(pytester, monkeypatch, limit_s):
    monkeypatch.setitem(cpu_time.BUDGET, "test_cpu_s", limit_s)
    pytester.makepyfile(BURN)
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--chaos', action='store_true')")
    return pytester.inline_run("-p", "cpu_time", "-p", "no:cacheprovider")


def test_a_test_whose_processes_use_more_cpu_time_than_its_limit_fails_the_run(pytester, monkeypatch, capsys):
    result = run(pytester, monkeypatch, 0.4)
    assert result.ret == 1
    assert [report.outcome for report in result.getreports("pytest_runtest_logreport") if report.when == "call"] == [
        "passed"
    ] * 2
    over = [line for line in capsys.readouterr().out.splitlines() if line.startswith("over budget")]
    assert len(over) == 1
    assert over[0].endswith("::test_burns_in_a_child")


def test_tests_within_their_limit_pass(pytester, monkeypatch):
    assert run(pytester, monkeypatch, 60).ret == 0
