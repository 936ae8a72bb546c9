"""Features of Delta tables that the flow's writers would break."""

import msgspec
import pytest

from fogline_cloud.flows.tables.schema import READINGS
from fogline_cloud.flows.tables.table_features import _TYPES, TableState, problems

FIELDS = [{"name": each.name, "type": _TYPES[each.type], "nullable": True, "metadata": {}} for each in READINGS]
PLAIN = TableState(path="/t", features=["invariants", "appendOnly"], fields=FIELDS)
ALTER = "ALTER TABLE delta.`/t`"


def changed(**given):
    return problems(msgspec.structs.replace(PLAIN, **given), READINGS)


def with_column(name="room", **given):
    own = {"name": name, "type": "string", "nullable": True, "metadata": {}, **given}
    return changed(fields=[*(field for field in FIELDS if field["name"] != name), own])


def test_a_table_of_the_flow_has_no_problems():
    assert changed() == changed(properties={"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}) == []


def test_a_column_of_the_user_is_no_problem():
    assert with_column() == with_column(metadata={"comment": "where it is"}) == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"features": ["deletionVectors"], "properties": {"delta.enableDeletionVectors": "true"}},
            (
                "/t: deletion vectors are on, and Fogline would read rows that they hide: "
                f"{ALTER} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'); REORG TABLE delta.`/t` APPLY (PURGE)"
            ),
        ),
        (
            {"properties": {"delta.constraints.positive": "value > 0"}},
            f"/t: the flow does not check the constraint positive: {ALTER} DROP CONSTRAINT positive",
        ),
        (
            {"features": ["rowTracking", "domainMetadata"]},
            (
                "/t: the flow cannot write to a table with the feature rowTracking: "
                f"{ALTER} SET TBLPROPERTIES ('delta.enableRowTracking' = 'false'); {ALTER} DROP FEATURE rowTracking"
            ),
        ),
        (
            {"features": ["typeWidening"]},
            (
                "/t: the flow cannot write to a table with the feature typeWidening: "
                f"{ALTER} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'false'); {ALTER} DROP FEATURE typeWidening"
            ),
        ),
        ({"features": ["new"]}, f"/t: the flow cannot write to a table with the feature new: {ALTER} DROP FEATURE new"),
        (
            {"properties": {"delta.columnMapping.mode": "name"}},
            (
                "/t: column mapping is on, and Fogline names columns as they are: "
                f"{ALTER} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
            ),
        ),
        ({"partitioned_by": []}, "/t: it is partitioned by nothing instead of day: use another folder"),
        ({"fields": FIELDS[2:]}, "/t: its columns are not those of this version: source, id missing; use another folder"),
    ],
)
def test_each_feature_is_refused_with_the_command_that_helps(given, problem):
    """F11."""
    assert changed(**given)[0] == problem


def test_deletion_vectors_that_are_off_still_hide_rows_until_they_are_purged():
    properties = {"delta.enableDeletionVectors": "false"}
    assert "REORG TABLE" in changed(features=["deletionVectors"], properties=properties, hides_rows=True)[0]
    assert changed(features=["deletionVectors"], properties=properties) == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"metadata": {"delta.generationExpression": "upper(device)"}}, "column room is generated"),
        ({"metadata": {"delta.identity.start": 1}}, "column room is an identity column"),
        ({"nullable": False}, "column room must not be null"),
        ({"name": "sequence", "type": "decimal(20,0)"}, "column sequence has the type decimal(20,0) instead of long"),
    ],
)
def test_columns_that_the_flow_would_not_fill_are_refused(given, problem):
    (found,) = with_column(**given)
    assert found.startswith(f"/t: {problem}")
