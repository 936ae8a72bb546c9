"""The dashboards of deploy/grafana are what their generator makes, and Grafana and Prometheus can read them."""

import importlib.util
import json

import pytest

from deploy.metric_checks import promtool, unknown_metrics
from rules.source import ROOT

FOLDER = ROOT / "deploy" / "grafana"


def load_generator():
    spec = importlib.util.spec_from_file_location("grafana_generate", FOLDER / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()
NAMES = ("fleet", "gateway", "bridge", "flow", "commands")


def test_there_are_these_dashboards():
    assert tuple(GENERATOR.DASHBOARDS) == NAMES
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_file_agrees_with_its_generator(name):
    assert (FOLDER / f"{name}.json").read_text("utf-8") == GENERATOR.render(name), "run `make docs`"


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_has_its_data_source_as_a_variable_and_panels_that_do_not_overlap(name):
    dashboard = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    variables = [each["name"] for each in dashboard["templating"]["list"]]
    assert variables[:2] == ["datasource", "tenant"]
    panels = dashboard["panels"]
    assert len(panels) >= 6
    assert len({each["id"] for each in panels}) == len({json.dumps(each["gridPos"]) for each in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["targets"]
        assert all(each["datasource"]["uid"] == "${datasource}" for each in (panel, *panel["targets"]))
        assert "gateway" in variables or not any("$gateway" in each["expr"] for each in panel["targets"])


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_names_metrics_that_exist(name):
    assert not unknown_metrics((FOLDER / f"{name}.json").read_text("utf-8"))


def test_promtool_reads_every_expression(tmp_path):
    expressions = [
        query.expression for each in GENERATOR.DASHBOARDS.values() for panel in each.panels for query in panel.queries
    ]
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$__rate_interval", "5m")} for number, text in enumerate(expressions)
    ]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")  # JSON is YAML
    promtool("check", "rules", path)
