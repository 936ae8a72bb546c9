import logging

from fogline.process.log_throttle import MAX_LINES, SILENCE_S, LogThrottle


def test_a_repeated_line_is_logged_once_in_30_s_with_the_count_of_its_copies():
    now = 100.0
    throttle = LogThrottle(lambda: now)

    def logged(message, level=logging.ERROR):
        record = logging.LogRecord("fogline.kafka", level, "", 0, message, (), None)
        return record.getMessage() if throttle.filter(record) else None

    refused = "FAIL [bridge-1]: Connect to 127.0.0.1:9092 failed: Connection refused (after {}ms in state CONNECT)"
    assert logged(refused.format(0)) == refused.format(0)
    assert logged(refused.format(3)) is None
    assert logged(refused.format(1) + ", 7 identical error(s) suppressed") is None
    assert logged("FAIL [bridge-1]: another") == "FAIL [bridge-1]: another"
    assert logged(refused.format(0), logging.WARNING) is not None
    now += SILENCE_S
    assert logged(refused.format(2)) == refused.format(2) + " (2 more like this)"
    now += SILENCE_S
    assert logged(refused.format(2)) == refused.format(2)


def test_a_flood_of_different_lines_is_bounded_where_strangers_choose_them():
    now = 100.0
    throttle = LogThrottle(lambda: now, bounded=True)

    def passed(numbers):
        records = [logging.LogRecord("x", logging.INFO, "", 0, f"d{each} has another key", (), None) for each in numbers]
        return sum(throttle.filter(each) for each in records)

    assert passed([*range(1000), *range(1000)]) == MAX_LINES
    now += SILENCE_S
    assert passed(range(500, 1000)) == MAX_LINES
    assert len(throttle._passed) <= MAX_LINES


def test_the_memory_for_different_lines_is_bounded():
    throttle = LogThrottle(lambda: 100.0)
    for number in range(1000):
        record = logging.LogRecord("fogline.kafka", logging.ERROR, "", 0, f"broker-{number} is away", (), None)
        assert throttle.filter(record)
        assert len(throttle._passed) <= MAX_LINES
