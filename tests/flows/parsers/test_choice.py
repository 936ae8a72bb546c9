import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.parsers import checked_overrides, installed, parser_name


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        ("application/json", "json"),
        ("Application/JSON; charset=utf-8", "json"),
        ("application/vnd.acme+json", "json"),
        ("application/senml+json", "senml"),
        ("text/plain;charset=us-ascii", "raw-number"),
        ("application/octet-stream", "raw-number"),
        ("application/cbor", "cbor"),
        ("application/vnd.acme+cbor", "cbor"),
        ("application/senml+cbor", "senml-cbor"),
        ("text/csv; header=present", "csv"),
        ("application/cbor-seq", None),
        ("", None),
        ("json", None),
    ],
)
def test_the_content_type_chooses(content_type: str, name: str | None) -> None:
    assert parser_name(content_type, {}) == name


def test_settings_override_the_default_choice() -> None:
    overrides = checked_overrides({"Text/Plain": "json", "application/x-ours": "senml"})
    assert parser_name("text/plain; a=b", overrides) == "json"
    assert parser_name("application/x-ours", overrides) == "senml"
    assert parser_name("application/json", overrides) == "json"


def test_the_error_for_a_parser_that_is_not_installed_names_it() -> None:
    with pytest.raises(Misconfigured, match=r'"text/csv" = "comma": no such parser is installed \(installed: .*json'):
        checked_overrides({"text/csv": "comma"})


def test_the_default_parsers_are_installed() -> None:
    assert {"json", "senml", "cbor", "senml-cbor", "raw-number"} <= installed().keys()


def test_a_plugin_is_found_by_its_entry_point(plugin: None) -> None:
    assert "test-wrong" in installed()
