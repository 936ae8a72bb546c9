"""A flow looks at its object store before it starts: one sentence for each way in which it could not work."""

import pytest

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.settings import CloudSettings, FlowSettings, StoreSettings
from fogline_cloud.store.probe import check_store
from fogline_lab.http_line import Absence, Conditions, HttpLine
from fogline_lab.object_store import BUCKET, ObjectStore


@pytest.fixture
def line(object_store, folder):
    with HttpLine(object_store.port, folder / "line.log") as made:
        yield made


def settings_for(store, endpoint=None, bucket=BUCKET, **more):
    place = StoreSettings(**{"endpoint": endpoint or store.endpoint, "key_file": str(store.key_file), **more})
    return CloudSettings(tenant="t", flow=FlowSettings(tables=f"s3a://{bucket}/probed", checkpoint="checkpoint"), store=place)


def refusal(settings) -> str:
    with pytest.raises(Misconfigured, match=r"^\[flow\] tables = s3a://") as found:
        check_store(settings)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_store_that_knows_put_if_absent_is_taken_and_left_as_it_was(object_store):
    import obstore
    from obstore.store import S3Store

    settings = settings_for(object_store)
    check_store(settings)
    client = S3Store(
        BUCKET,
        endpoint=object_store.endpoint,
        access_key_id=object_store.key_id,
        secret_access_key=object_store.secret,
        client_options={"allow_http": True},
    )
    assert obstore.list(client, prefix="probed").collect() == []


def test_folders_need_no_store():
    check_store(CloudSettings(tenant="t", store=StoreSettings(endpoint="http://127.0.0.1:1", key_file="missing")))


def test_a_lost_answer_to_the_probe_is_no_refusal(object_store, line):
    line.lose_answers("_fogline_probe", limit=1)
    check_store(settings_for(object_store, line.endpoint))
    assert line.lost


def test_a_store_without_put_if_absent_is_refused(folder):
    with ObjectStore(folder / "store", unsigned=True) as store, HttpLine(store.port, folder / "line.log") as line:
        line.treat(Conditions.IGNORED)
        assert "does not obey put-if-absent (PUT with If-None-Match: *)" in refusal(settings_for(store, line.endpoint))
        line.treat(Conditions.REFUSED)
        assert "does not know put-if-absent (PUT with If-None-Match: *)" in refusal(settings_for(store, line.endpoint))


def test_wrong_keys_are_refused_with_the_setting_to_correct(object_store, folder):
    wrong = object_store.write_key_file(folder / "wrong", secret="x")
    assert "refuses the keys: check [store] key_file" in refusal(settings_for(object_store, key_file=str(wrong)))


def test_missing_keys_are_refused_with_the_setting_to_set(object_store, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert "there are no keys to the object store: set [store] key_file" in refusal(settings_for(object_store, key_file=None))


def test_a_missing_bucket_is_refused(object_store):
    assert "the bucket does not exist" in refusal(settings_for(object_store, bucket="missing"))


@pytest.mark.parametrize("how", Absence)
def test_a_store_that_is_away_is_unreachable(object_store, line, how, monkeypatch):
    monkeypatch.setattr("fogline_cloud.store.probe._ANSWER", "1s")
    with line.away(how), pytest.raises(Unreachable, match=rf"the object store at {line.endpoint} does not answer"):
        check_store(settings_for(object_store, line.endpoint))


def test_a_port_without_a_store_is_unreachable(object_store):
    with pytest.raises(Unreachable, match="does not answer"):
        check_store(settings_for(object_store, "http://127.0.0.1:1"))
