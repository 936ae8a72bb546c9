"""`fogline doctor` says about large bodies whether they can be written, and whether they are deleted after their time."""

import os
import time
from datetime import UTC, datetime

import pytest

from fogline.events.large_body import new_body_id
from fogline.process.checkup import Grade
from fogline_cloud.cli.administration.doctor import _bodies
from fogline_cloud.maintenance.body_expiry import delete_ended, delete_expired
from fogline_cloud.settings import CloudSettings, FlowSettings, StoreSettings
from fogline_cloud.store.object_folder import ObjectFolder
from fogline_lab.object_store import BUCKET, REGION

DAY_S = 86_400.0


@pytest.fixture
def settings(folder):
    return CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder)))


@pytest.fixture
def bodies(settings, folder):
    return ObjectFolder(settings, str(folder / "bodies"))


def put(bodies, *, days_ago: float, event: bool = False, ended: bool = False) -> None:
    """Put the objects of a body, as if they were written so many days ago."""
    then = time.time() - days_ago * DAY_S
    name = new_body_id(then)
    place = f"{datetime.fromtimestamp(then, UTC).date()}/gateway=gw-1/{name}"
    paths = [f"{place}/000000", *([f"{place}/event"] if event else []), *([f"ended/gateway=gw-1/{name}"] if ended else [])]
    for each in paths:
        bodies.put(each, b"x")
        os.utime(f"{bodies.place}/{each}", (then, then))


def found(settings) -> list[tuple[Grade, str]]:
    return [(each.grade, f"{each.text} {each.remedy}".strip()) for each in _bodies(settings)]


def test_no_body_has_come_yet(settings, folder):
    ((grade, text),) = found(settings)
    assert (grade, "none yet" in text) == (Grade.OK, True)
    assert not (folder / "bodies").exists(), "it changes nothing"


def test_bodies_within_their_time_are_right(settings, bodies):
    put(bodies, days_ago=89, event=True)
    put(bodies, days_ago=89)
    put(bodies, days_ago=1, ended=True)
    assert [grade for grade, _ in found(settings)] == [Grade.OK, Grade.OK]
    assert not [each for each in bodies.objects("") if "doctor" in each.path]


def test_bodies_that_no_maintenance_has_deleted_are_counted_until_it_runs(settings, bodies):
    put(bodies, days_ago=100, event=True)
    put(bodies, days_ago=100)
    put(bodies, days_ago=5, ended=True)
    grade, text = found(settings)[-1]
    assert (grade, text.partition(". ")[0]) == (
        Grade.WARN,
        "3 large bodies should be deleted: 2 older than tables.body_days, 1 ended Run: fogline table maintain",
    )
    for delete in (delete_expired, delete_ended):
        delete(bodies, settings.tables, datetime.now(UTC), dry_run=False)
    assert [grade for grade, _ in found(settings)] == [Grade.OK, Grade.OK]


def test_folder_that_cannot_be_written_fails(settings, folder):
    (folder / "bodies").write_text("a file, where the folder should be")
    ((grade, text),) = found(settings)
    assert (grade, "takes no large body" in text) == (Grade.FAIL, True)


@pytest.mark.slow
def test_bodies_in_an_object_store_are_checked_too(object_store, tenant):
    stored = StoreSettings(endpoint=object_store.endpoint, region=REGION, key_file=str(object_store.key_file))
    settings = CloudSettings(tenant="t", flow=FlowSettings(tables=f"s3a://{BUCKET}/{tenant}"), store=stored)
    assert [grade for grade, _ in found(settings)] == [Grade.OK, Grade.OK]
