"""Maintenance in a process beside the flow."""

import threading

from fogline_cloud.maintenance.beside_flow import maintained


def test_a_maintenance_that_fails_is_logged_and_counted_and_comes_again(caplog):
    """F9."""
    failures, twice = [], threading.Event()

    def on_failure():
        failures.append(1)
        if len(failures) == 2:
            twice.set()

    with maintained(["table", "maintain", "--config", "/no/such/cloud.toml"], 0.01, on_failure):
        assert twice.wait(60), "it was not tried again"
    assert "maintenance of the tables failed: " in caplog.text
    assert "/no/such/cloud.toml" in caplog.text


def test_no_maintenance_is_started_if_its_interval_is_zero():
    before = threading.active_count()
    with maintained([], 0, lambda: None):
        assert threading.active_count() == before
