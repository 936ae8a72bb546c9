"""The alerts of deploy/prometheus fire when they should, name metrics that exist, and have runbooks."""

import re
from pathlib import Path

import pytest

from deploy.metric_checks import promtool, unknown_metrics
from rules.source import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES = (FOLDER / "fogline-alerts.yml").read_text("utf-8")
CASES = (Path(__file__).parent / "alerts_test.yml").read_text("utf-8")
RUNBOOKS = (ROOT / "docs" / "alerts.md").read_text("utf-8")
ALERTS = re.findall(r"- alert: (\w+)", RULES)


def test_there_are_alerts():
    assert len(ALERTS) >= 15


def test_promtool_accepts_rules_and_settings():
    promtool("check", "rules", FOLDER / "fogline-alerts.yml")
    promtool("check", "config", FOLDER / "prometheus.yml")


def test_each_alert_fires_when_it_should():
    promtool("test", "rules", Path(__file__).parent / "alerts_test.yml")


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_case_in_which_it_fires(alert):
    cases = re.split(r"alertname: ", CASES)[1:]
    assert any(case.startswith(f"{alert}\n") and "exp_labels" in case for case in cases), "add one to alerts_test.yml"


def test_rules_name_metrics_that_exist():
    assert not unknown_metrics(RULES + CASES)


def test_each_alert_links_to_its_runbook_and_each_runbook_belongs_to_an_alert():
    assert re.findall(r"^## (Fogline\w+)$", RUNBOOKS, re.MULTILINE) == ALERTS
    links = re.findall(r"runbook: (\S+)", RULES)
    assert links == [f"docs/alerts.md#{alert.lower()}" for alert in ALERTS]
