"""The soak's pure parts: its schedule, what it calls flat, its verdict."""

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "deploy"))

from demo.judgement import RunEvidence, judge, judge_commands
from demo.operator_commands import CommandRow, SentCommand
from demo.payload import Device, DeviceKind
from fogline.commands.command import CommandState
from fogline_lab.tcp_line import HALF_OPEN
from soak.breaker import AppliedFault
from soak.command_judgement import count_commands, disturbances
from soak.flat import COMMAND_MB, COUNTS, GROWN_MB, RSS_MB, ProcessSample, grown, held, not_at_rest, not_flat, over_time, warm
from soak.reconnects import FaultPlans
from soak.schedule import JITTER_S, STEP_S, VICTIMS, FaultKind, ScheduledFault, kills, schedule
from soak.verdict import CertificateCounts, Load, SoakVerdict

HALF_AN_HOUR_S = 1800.0


def test_the_same_seed_makes_the_same_schedule_and_another_one_another():
    assert schedule(7, HALF_AN_HOUR_S) == schedule(7, HALF_AN_HOUR_S)
    assert schedule(7, HALF_AN_HOUR_S) != schedule(8, HALF_AN_HOUR_S)


@pytest.mark.parametrize("seed", range(20))
def test_half_an_hour_has_60_kills_of_all_kinds_of_parts_and_every_other_fault(seed):
    faults = schedule(seed, HALF_AN_HOUR_S)
    counts = kills(faults)
    assert set(counts) == set(VICTIMS)
    assert min(counts.values()) >= 10
    assert sum(counts.values()) >= 60
    assert {each.kind for each in faults} == set(FaultKind)
    assert any("crash_at" in each.parameters for each in faults)


@pytest.mark.parametrize("seed", range(20))
def test_faults_come_in_order_and_leave_time_to_come_back(seed):
    faults = schedule(seed, HALF_AN_HOUR_S)
    assert [each.at_s for each in faults] == sorted(each.at_s for each in faults)
    assert faults[-1].at_s < HALF_AN_HOUR_S
    killed = [each for each in faults if each.kind is FaultKind.KILL]
    for part in ("kafka", "spark"):
        times = [each.at_s for each in killed if each.target == part]
        assert all(later - sooner >= 2 * (STEP_S - JITTER_S) for sooner, later in pairwise(times))


def test_three_minutes_have_kills_of_all_kinds():
    assert min(kills(schedule(7, 180.0)).values()) >= 1


def test_a_longer_run_of_a_seed_begins_as_a_shorter_one():
    shorter, longer = schedule(3, 300.0), schedule(3, 900.0)
    assert longer[: len(shorter)] == shorter


# --- reconnects


def test_the_fates_of_connections_are_a_seeds_and_of_all_sorts_until_calm():
    plans, again = FaultPlans(1), FaultPlans(1)
    drawn = [plans() for _ in range(1000)]
    assert drawn == [again() for _ in range(1000)]
    faults = [each.fault for each in drawn if each]
    assert len(faults) == 1000
    assert 0 < sum(each in HALF_OPEN for each in faults) < 30
    plans.stopped = True
    assert plans() is None


def samples(rss=lambda _: 50.0, count=100, **changes):
    """One part, a sample each second. `changes`: attributes by the number of the sample."""
    usual = ProcessSample(0.0, "gateway-1", 1, 50.0, 20, 5, tasks=9, unsettled=0)
    return [
        replace(usual, at_s=float(n), rss_mb=rss(n), **{name: change(n) for name, change in changes.items()})
        for n in range(count)
    ]


def test_constant_samples_after_the_warm_up_are_flat():
    assert not_flat(samples(lambda n: 20.0 + n if n < 40 else 50.0 + n % 5), ["gateway-1"]) == []


def test_the_warm_up_is_half_of_a_short_run_five_minutes_of_a_longer_one_and_a_fifth_of_a_long_one():
    for count, warm_s in ((100, 50), (601, 300), (3001, 600)):
        assert warm(samples(count=count), "gateway-1")[0].at_s == warm_s


@pytest.mark.parametrize("last_mb", [50 + 2.5 * RSS_MB, 50 - 2.5 * RSS_MB])
def test_memory_that_goes_up_or_down_is_not_flat(last_mb):
    (problem,) = not_flat(samples(lambda n: 50.0 + (last_mb - 50.0) * n / 99), ["gateway-1"])
    assert problem.startswith("gateway-1: its memory went from")


def test_memory_that_grows_from_life_to_life_is_a_problem():
    lives = {"life": lambda n: 1 + n // 10}
    (problem,) = grown(samples(lambda n: 50.0 + 4 * (n // 10) * GROWN_MB / 10, **lives), ["gateway-1", "gateway-2"])
    assert problem.startswith("gateway-1: its memory grew from")
    assert grown(samples(lambda n: 50.0 + GROWN_MB * (n % 10) / 10, **lives), ["gateway-1"]) == []
    remembered = samples(lambda n: 50.0 + 4 * (n // 10) * GROWN_MB / 10, **lives)
    assert grown(remembered, ["gateway-1"], round(3 * GROWN_MB / COMMAND_MB)) == []


def test_one_sample_too_high_is_not_flat():
    assert not_flat(samples(lambda n: 80.0 if n == 60 else 50.0), ["gateway-1"])


@pytest.mark.parametrize("name", list(COUNTS))
def test_a_count_that_grows_is_not_flat(name):
    (problem,) = not_flat(samples(**{name: lambda n: 10 + n}), ["gateway-1"])
    assert name in problem


def test_a_part_of_two_lives_or_none_is_not_flat():
    assert "started 2 times" in not_flat(samples(life=lambda n: 1 + n // 50), ["gateway-1"])[0]
    assert "too few samples" in not_flat([], ["gateway-1"])[0]
    assert "too few samples" in not_flat(samples(tasks=lambda _: None), ["gateway-1"])[0]


def test_resources_at_rest_are_equal_before_and_after():
    before = {each.part: each for each in samples(count=1)}
    assert not_at_rest(before, before) == []
    (problem,) = not_at_rest(before, {each.part: each for each in samples(count=1, tasks=lambda _: 90)})
    assert problem == "gateway-1: at rest 9 tasks became 90; 5 more or less are allowed"
    assert (
        "did not say how many tasks"
        in not_at_rest(before, {each.part: each for each in samples(count=1, tasks=lambda _: None)})[0]
    )


def test_memory_is_compared_from_the_warm_up_on():
    found = held(samples(lambda n: 10.0 if n < 49 else 50.0 + (n == 70)), "gateway-1")
    assert found.rss_mb == (50.0, 50.0, 51.0, 50.0)
    assert found.counts == {"descriptors": (20, 20), "threads": (5, 5), "tasks": (9, 9)}


def test_a_table_over_time_has_about_as_many_rows_as_asked_and_ends_with_the_last():
    found = over_time(samples(), "gateway-1", 12)
    assert 12 <= len(found) <= 14
    assert found[-1].at_s == 99
    assert over_time([], "gateway-1", 12) == []


# --- verdict

LAMP = {("lamp-01", 1), ("lamp-01", 2)}
FINE = judge(RunEvidence(LAMP, {"lamp-01": 2}, dict.fromkeys(LAMP, 1), dict.fromkeys(LAMP, 1)))
LEDGER = {
    "findings": [],
    "streams": [{"refused": {"edge": 2, "bridge": 1}}, {"refused": {"edge": None, "bridge": 4}}],
}


def verdict(**changes):
    planned = dict.fromkeys(VICTIMS, 2)
    usual = SoakVerdict(FINE, Load(60_000, 60_000, 100.0, 500.0), LEDGER, [], kills=planned, planned=planned)
    return replace(usual, **changes)


def test_a_run_without_a_flaw_holds():
    found = verdict()
    assert found.holds
    assert found.refused == {"edge": 2, "bridge": 5}
    assert found.sentence == ("8 kills, 2 acknowledged, 2 in Kafka, 2 in the table: lost 0, duplicate 0, unexplained gaps 0")
    assert found.as_json()["lost"] == 0


GAP = {"findings": [{"kind": "lost", "spans": [[4, 6], [9, 9]]}, {"kind": "table-double", "spans": [[1, 1]]}], "streams": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"judgement": judge(RunEvidence(LAMP, {"lamp-01": 2}, dict.fromkeys(LAMP, 1), {}))},
        {"judgement": judge(RunEvidence(LAMP, {"lamp-01": 2}, dict.fromkeys(LAMP, 2), dict.fromkeys(LAMP, 1)))},
        {"ledger": GAP},
        {"load": Load(40_000, 40_000, 100.0, 500.0)},
        {"problems": ["gateway-1 ended by itself"]},
        {"kills": dict.fromkeys(VICTIMS, 1)},
        {"planned": {}, "reconnects": {"reset": 999}, "reconnects_wanted": 1000},
    ],
)
def test_any_problem_fails_the_run(changes):
    assert not verdict(**changes).holds


CERTIFICATES = CertificateCounts(5.0, {"gateway-1": 3, "gateway-2": 4}, 3, ended=6, expired=0, failed=1, replaced=2, bridges=2)


def test_certificates_that_were_renewed_often_enough_hold():
    found = verdict(certificates=CERTIFICATES)
    assert found.holds
    assert ("renewals of gateway-1, each for 5 min", 3) in CERTIFICATES.rows
    assert found.as_json()["certificates"]["failed"] == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"renewed": {"gateway-1": 2}}, "gateway-1 renewed its certificate 2 times, at least 3 are wanted"),
        ({"expired": 1}, "1 connections were refused because a certificate had expired"),
        ({"replaced": 1}, "1 of 2 bridges show the certificate that was issued last"),
    ],
)
def test_certificates_that_were_not_renewed_in_time_fail_the_run(changes, problem):
    found = verdict(certificates=replace(CERTIFICATES, **changes))
    assert found.all_problems == [problem]
    assert not found.holds


def test_a_run_without_faults_says_so():
    assert verdict(kills={}, planned={}).sentence.startswith("0 kills, ")


def test_gaps_are_the_numbers_that_nothing_explains():
    assert verdict(ledger=GAP).gaps == 4


def test_soak_that_is_ended_early_judges_the_events_so_far():
    found = verdict(kills={}, stopped=True)
    assert found.holds
    assert found.sentence.startswith("stopped early: 0 kills")


# --- commands

LAMP, METER = Device("lamp-01", DeviceKind.LAMP, 5, 0), Device("meter-02", DeviceKind.METER, 4, 1)


def counted(*commands, happened=None, wanted=0):
    records = [CommandRow(each.name, each.device, each.state) for each in commands if each.state is not None]
    return counted_of(records, *commands, happened=happened, wanted=wanted)


def counted_of(records, *commands, happened=None, wanted=0):
    effects = {(each.device, each.name): [each.sent_s] for each in commands if each.state is CommandState.SUCCEEDED}
    return count_commands(judge_commands(commands, records, effects), commands, records, happened or {}, wanted)


def sent(n, state=CommandState.SUCCEEDED, **other):
    return SentCommand(f"dim.{n}", "lamp-01", 20.0, state=state, sent_s=100.0, ended_s=101.0, **other)


def test_a_command_in_doubt_needs_a_fault_in_its_time():
    doubtful = sent(1, CommandState.IN_DOUBT)
    assert counted(doubtful).doubts == ["command dim.1 to lamp-01 is IN_DOUBT, and nothing had happened to its gateway or line"]
    assert not counted(doubtful, happened={"lamp-01": [(90.0, 100.5)]}).doubts
    assert counted(doubtful, happened={"lamp-01": [(90.0, 99.5), (101.5, 130.0)], "meter-02": [(90.0, 110.0)]}).doubts


def test_a_one_way_command_ends_by_its_deadline_not_when_its_operator_had_the_acceptance():
    taken = sent(8, CommandState.ACCEPTED, reply=False)  # sent at 100, accepted at 101, deadline 120
    in_doubt = [CommandRow(taken.name, taken.device, CommandState.IN_DOUBT)]
    assert counted_of(in_doubt, taken).doubts
    assert not counted_of(in_doubt, taken, happened={"lamp-01": [(115.0, 115.0)]}).doubts
    assert counted_of(in_doubt, taken, happened={"lamp-01": [(121.0, 121.0)]}).doubts


def test_19_of_20_commands_to_devices_that_nothing_happened_to_must_succeed():
    late = sent(1, CommandState.EXPIRED)
    assert not counted(late, *map(sent, range(10, 29))).problems(stopped=False)
    assert "94.7% of the durable" in counted(late, *map(sent, range(10, 28))).problems(stopped=False)[0]
    assert not counted(late, *map(sent, range(10, 28)), happened={"lamp-01": [(90.0, 90.1)]}).share > 0.95
    direct = sent(3, CommandState.REJECTED, durable=False)
    assert counted(direct, sent(10)).share == 1.0
    assert counted(late, sent(10), happened={"lamp-01": [(130.1, 140.0)]}).calm == 2
    assert counted(late, sent(10), happened={"lamp-01": [(129.9, 140.0)]}).calm == 0


def test_too_few_commands_fail_a_run_that_was_not_stopped():
    assert counted(sent(1), wanted=2).problems(stopped=False) == ["1 commands were sent, at least 2 are wanted"]
    assert not counted(sent(1), wanted=2).problems(stopped=True)
    assert "1 commands were sent, at least 2 are wanted" in verdict(commands=counted(sent(1), wanted=2)).all_problems


def test_faults_of_a_device_are_those_of_its_gateway_and_its_lost_connections():
    faults = [
        AppliedFault(ScheduledFault(5.0, FaultKind.KILL, "gateway-1"), 5.0, 7.0),
        AppliedFault(ScheduledFault(8.0, FaultKind.FREEZE, "gateway-2"), 8.0),
        AppliedFault(ScheduledFault(9.0, FaultKind.KILL, "bridge-1"), 9.0, 10.0),
        AppliedFault(ScheduledFault(20.0, FaultKind.DATAGRAMS, "gateway-1"), 20.0, 25.0),
    ]
    found = disturbances([LAMP, METER], faults, {"meter-02": [50.0]}, lambda at_s: 1000 + at_s)
    assert found["lamp-01"] == [(1005.0, 1007.0), (1020.0, 1070.0)]  # and 45 s in which CoAP may still retransmit
    assert found["meter-02"] == [(1008.0, float("inf")), (50.0, 50.0)]
