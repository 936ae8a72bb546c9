"""Tables `events` and `fleet` in a folder."""

import pytest

from cloud.fleet.counted_events import CountedEvents


@pytest.fixture
def counted(tmp_path) -> CountedEvents:
    return CountedEvents(tmp_path)
