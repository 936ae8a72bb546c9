import logging

from fogline_cloud.sparse import MOST, SILENCE_S, Sparse


def test_a_line_that_repeats_itself_is_said_once_in_a_while_and_counted():
    now = 100.0
    sparse = Sparse(lambda: now)

    def said(message, level=logging.ERROR):
        record = logging.LogRecord("fogline.kafka", level, "", 0, message, (), None)
        return record.getMessage() if sparse.filter(record) else None

    refused = "FAIL [bridge-1]: Connect to 127.0.0.1:9092 failed: Connection refused (after {}ms in state CONNECT)"
    assert said(refused.format(0)) == refused.format(0)
    assert said(refused.format(3)) is None
    assert said(refused.format(1) + ", 7 identical error(s) suppressed") is None
    assert said("FAIL [bridge-1]: another") == "FAIL [bridge-1]: another"
    assert said(refused.format(0), logging.WARNING) is not None
    now += SILENCE_S
    assert said(refused.format(2)) == refused.format(2) + " (2 more like this)"
    now += SILENCE_S
    assert said(refused.format(2)) == refused.format(2)


def test_lines_of_ever_new_kinds_take_no_more_memory():
    sparse = Sparse(lambda: 100.0)
    for number in range(1000):
        record = logging.LogRecord("fogline.kafka", logging.ERROR, "", 0, f"broker-{number} is away", (), None)
        assert sparse.filter(record)
        assert len(sparse._said) <= MOST
