"""The endpoint of the collector: URLs that can be used, and those that are not safe."""

import pytest

from fogline.errors import Misconfigured
from fogline.tracing.activation import tracing
from fogline.tracing.settings import TracingSettings, collector_address, resolve_tracing


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("http://127.0.0.1:4318/v1/traces", (False, "127.0.0.1", 4318, "/v1/traces")),
        ("http://[::1]:4318/v1/traces", (False, "::1", 4318, "/v1/traces")),
        ("http://localhost/", (False, "localhost", 80, "/")),
        ("https://collect.example/otlp/v1/traces", (True, "collect.example", 443, "/otlp/v1/traces")),
    ],
)
def test_an_endpoint_is_a_url(endpoint, address):
    assert collector_address(TracingSettings(endpoint=endpoint)) == address


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("127.0.0.1:4318", "expected a URL"),
        ("ftp://127.0.0.1/v1/traces", "expected a URL"),
        ("http://user:password@127.0.0.1:4318/", "expected a URL"),
        ("https://collect.example/v1/traces?key=secret", "expected a URL"),
        ("http://127.0.0.1:port/", "tracing.endpoint = "),
        ("http://127.0.0.1:4318/v1/träces", "expected a URL"),
        ("http://collect.example:4318/v1/traces", "https://, or set tracing.plain_on_lan"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_named(endpoint, why):
    with pytest.raises(Misconfigured, match=why):
        collector_address(TracingSettings(endpoint=endpoint))


def test_plain_text_beyond_this_machine_is_a_decision_of_the_user():
    settings = TracingSettings(endpoint="http://collect.example:4318/v1/traces", plain_on_lan=True)
    assert collector_address(settings).host == "collect.example"


def test_authorities_that_cannot_be_read_are_named(tmp_path):
    settings = resolve_tracing(TracingSettings(endpoint="https://collect.example/", ca="ca.pem"), tmp_path)
    with pytest.raises(Misconfigured, match=f"tracing.ca = '{tmp_path}/ca.pem': .*No such file"):
        tracing(settings, "test", tenant="acme", instance="x").__enter__()


def test_without_the_table_there_is_no_exporter():
    with tracing(None, "test", tenant="acme", instance="x") as export:
        assert export is None
