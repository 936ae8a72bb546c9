"""Large bodies are deleted after their time, and never one that is live."""

from datetime import UTC, datetime, timedelta

import pytest

from fogline.events.large_body import new_body_id
from fogline_cloud.maintenance.body_expiry import delete_ended, delete_expired
from fogline_cloud.settings import CloudSettings, FlowSettings, TablesSettings
from fogline_cloud.store.object_folder import ObjectFolder

LIMITS = TablesSettings(body_days=90, ended_body_hours=24)
NOW = datetime.now(UTC)
BEGUN = NOW - timedelta(days=200)


@pytest.fixture
def bodies(folder):
    return ObjectFolder(CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder))), str(folder / "bodies"))


def put(bodies, *, chunks=2, event=False, ended=False, begun=BEGUN):
    """Put the objects of a body; they are as old as now."""
    name = new_body_id(begun.timestamp())
    place = f"{begun.date()}/gateway=gw-1/{name}"
    for number in range(chunks):
        bodies.put(f"{place}/{number:06}", b"x")
    if event:
        bodies.put(f"{place}/event", b"x")
    if ended:
        bodies.put(f"ended/gateway=gw-1/{name}", b"x")
    return place


def left(bodies):
    return sorted({each.path.rpartition("/")[0] for each in bodies.objects("") if not each.path.startswith("ended/")})


def marks(bodies):
    return [each.path for each in bodies.objects("ended/")]


@pytest.mark.fault("C21")
def test_ended_body_is_deleted_after_its_hours_and_no_other(bodies):
    live = [put(bodies), put(bodies, event=True), put(bodies, event=True, ended=True)]
    put(bodies, ended=True)
    assert delete_ended(bodies, LIMITS, NOW + timedelta(hours=23), dry_run=False) == 0
    assert len(left(bodies)) == 4
    assert delete_ended(bodies, LIMITS, NOW + timedelta(hours=25), dry_run=False) == 1
    assert left(bodies) == sorted(live)
    assert marks(bodies) == []


def test_body_is_deleted_when_its_days_are_over_whatever_the_gateways_clock_was(bodies):
    put(bodies, event=True)
    future = put(bodies, event=True, begun=NOW + timedelta(days=400))
    unset = put(bodies, event=True, begun=datetime(1970, 1, 2, tzinfo=UTC))
    put(bodies)
    assert delete_expired(bodies, LIMITS, NOW + timedelta(days=89), dry_run=False) == 0
    assert unset in left(bodies)
    assert delete_expired(bodies, LIMITS, NOW + timedelta(days=91), dry_run=False) == 3
    assert left(bodies) == [future]


def test_body_of_a_gateway_that_is_offline_for_weeks_in_the_middle_of_it_is_live(bodies):
    put(bodies)
    for days in (1, 30, 89):
        at = NOW + timedelta(days=days)
        assert delete_expired(bodies, LIMITS, at, dry_run=False) + delete_ended(bodies, LIMITS, at, dry_run=False) == 0


def test_dry_run_counts_and_deletes_nothing(bodies):
    put(bodies, ended=True)
    late = NOW + timedelta(days=91)
    assert (delete_expired(bodies, LIMITS, late, dry_run=True), delete_ended(bodies, LIMITS, late, dry_run=True)) == (1, 1)
    assert (len(left(bodies)), len(marks(bodies))) == (1, 1)


def test_deletion_that_was_killed_goes_on(bodies):
    place = put(bodies, ended=True)
    bodies.delete([f"{place}/000000"])
    assert delete_ended(bodies, LIMITS, NOW + timedelta(hours=25), dry_run=False) == 1
    assert (left(bodies), marks(bodies)) == ([], [])
