"""`fogline doctor` looks at the object store, its keys, its jars and the LogStore of Spark's commits."""

import json

import pytest

from fogline_cloud.cli.main import main
from fogline_lab.object_store import BUCKET


@pytest.fixture
def findings(object_store, folder, tenant, capsys, monkeypatch):
    """What doctor says of the store, for these lines in `[store]` and `[flow.spark]`."""

    def look(key_file=None, endpoint=None, spark=""):
        config = folder / "cloud.toml"
        config.write_text(
            f'tenant = "t"\n[flow]\ntables = "s3://{BUCKET}/{tenant}"\n{spark}\n'
            f'[store]\nendpoint = "{endpoint or object_store.endpoint}"\nkey_file = "{key_file or object_store.key_file}"\n'
        )
        main(["doctor", "--config", str(config), "--json"])
        found = json.loads(capsys.readouterr().out)
        return [(each["grade"], each["text"]) for each in found if each["subject"] == "store"]

    return look


def test_a_store_that_works_is_one_good_finding(findings, object_store):
    assert findings() == [
        ("OK", f"{object_store.endpoint} takes {object_store.key_file}, has the bucket, and knows put-if-absent")
    ]


def test_each_fault_of_the_store_is_a_finding_with_its_remedy(findings, object_store, folder, monkeypatch):
    wrong = object_store.write_key_file(folder / "wrong", secret="x")
    for (grade, text), what in (
        (findings(key_file=wrong)[0], "refuses the keys"),
        (findings(key_file=folder / "none")[0], "[store] key_file: cannot read"),
        (findings(endpoint="http://127.0.0.1:1")[0], "the object store at http://127.0.0.1:1 does not answer"),
    ):
        assert grade == "FAIL"
        assert what in text
    spark = '[flow.spark]\n"spark.delta.logStore.s3a.impl" = "io.delta.storage.S3SingleDriverLogStore"'
    assert [grade for grade, _ in findings(spark=spark)] == ["WARN", "OK"]
    monkeypatch.setenv("FOGLINE_JARS", str(folder))
    assert "run deploy/setup/setup.sh s3" in findings()[0][1]
