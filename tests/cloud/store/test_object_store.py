"""The S3 server of the tests keeps its promises, and the line in front of it breaks them as it is told to."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError
from obstore.store import S3Store

from fogline_lab.http_line import Absence, Conditions, HttpLine
from fogline_lab.object_store import BUCKET, REGION, ObjectStore

IMPATIENT = {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}


@pytest.fixture
def line(object_store, folder):
    with HttpLine(object_store.port, folder / "line.log") as made:
        yield made


def client(store, endpoint=None, limit="60s", **more):
    """Return a client that does not repeat requests."""
    given = {"access_key_id": store.key_id, "secret_access_key": store.secret, **more}
    return S3Store(
        BUCKET,
        endpoint=endpoint or store.endpoint,
        region=REGION,
        client_options={"allow_http": True, "timeout": limit},
        retry_config=IMPATIENT,
        **given,
    )


def read(store, path):
    return bytes(obstore.get(client(store), path).bytes())


def test_objects_are_there_after_the_server_was_killed(folder):
    with ObjectStore(folder / "store") as store:
        endpoint = store.endpoint
        obstore.put(client(store), "kept", b"1")
        store.kill()
        store.start()
        assert (store.endpoint, read(store, "kept")) == (endpoint, b"1")


def test_of_concurrent_writes_of_an_absent_object_one_succeeds(object_store):
    def write(number):
        try:
            obstore.put(client(object_store), f"raced-{race}", str(number).encode(), mode="create")
        except AlreadyExistsError:
            return None
        return number

    with ThreadPoolExecutor(4) as pool:
        for race in range(5):
            winners = [each for each in pool.map(write, range(4)) if each is not None]
            assert [str(each).encode() for each in winners] == [read(object_store, f"raced-{race}")]


def test_a_wrong_secret_is_refused(object_store):
    with pytest.raises(PermissionDeniedError):
        obstore.put(client(object_store, secret_access_key="wrong"), "refused", b"1")


def test_the_answer_of_the_nth_write_is_lost_and_the_object_is_stored(object_store, line):
    line.lose_answers(r"/lost-", every=2, limit=1)
    for path in ("other", "lost-1"):
        obstore.put(client(object_store, line.endpoint), path, b"1")
    with pytest.raises(BaseError, match="the answer is lost"):
        obstore.put(client(object_store, line.endpoint), "lost-2", b"2")
    obstore.put(client(object_store, line.endpoint), "lost-4", b"4")
    assert (line.lost, read(object_store, "lost-2")) == ([f"/{BUCKET}/lost-2"], b"2")


@pytest.mark.parametrize("how", Absence)
def test_a_store_that_is_away_stores_nothing_until_it_is_back(object_store, line, how):
    with line.away(how), pytest.raises(BaseError):
        obstore.put(client(object_store, line.endpoint, "2s"), f"away-{how.name}", b"1")
    obstore.put(client(object_store, line.endpoint), f"away-{how.name}", b"2", mode="create")


def test_a_store_without_put_if_absent_overwrites(folder):
    with ObjectStore(folder / "store", unsigned=True) as store, HttpLine(store.port, folder / "line.log") as line:
        line.treat(Conditions.IGNORED)
        for content in (b"1", b"2"):
            obstore.put(client(store, line.endpoint), "overwritten", content, mode="create")
        line.treat(Conditions.REFUSED)
        with pytest.raises(BaseError, match="501"):
            obstore.put(client(store, line.endpoint), "overwritten", b"3", mode="create")
        assert read(store, "overwritten") == b"2"
