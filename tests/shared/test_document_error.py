"""What is wrong with a document is said in words: the field, what is expected there with its limits, and what was meant."""

import ast

import msgspec
import pytest

from fogline.documents.document_error import TOML, did_you_mean, explained
from fogline.documents.json_document import read_document
from fogline.errors import Misconfigured, Poison
from fogline.process.files.settings_file import convert_settings
from fogline_cloud.access.access_file import AccessFile
from fogline_cloud.api.problems import Problem
from fogline_cloud.api.requests import CommandRequest, decode_json
from fogline_cloud.devices.desired import WantBody
from fogline_cloud.settings import CloudSettings
from fogline_edge.settings import EdgeSettings
from rules.source import PRODUCT, files

EDGE = {"tenant": "acme", "gateway": "gw-1", "data": "d"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"name": "x", "ttl_s": 0}', "field `ttl_s`: expected a number of at least 0.001 and at most 4000000 or `null`"),
        (b'{"name": "x", "ttl_s": "30s"}', "field `ttl_s`: expected a number of at least 0.001 and at most 4000000 or `null`"),
        (b'{"name": 3}', "field `name`: expected text"),
        (b'{"name": "x", "durable": "yes"}', "field `durable`: expected `true` or `false`"),
        (b'{"name": "x", "data_base64": "?"}', "field `data_base64`: expected base64 or `null`"),
        (b'{"nmae": "x"}', "unknown field `nmae`; did you mean name?"),
        (b'{"name": "x", "zzzzzz": 1}', "unknown field `zzzzzz`"),
        (b"{}", "missing field `name`"),
        (b"[]", "expected an object"),
        (b"", "it ends too early"),
        (b'{"name": "x"', "it ends too early"),
        (b'{"name": x}', "it is not JSON: invalid character (byte 9)"),
        (b'{"name": "\xff"}', "it is not UTF-8"),
        (b'{"name": "x", "data": ' + b"[" * 100_000, "it is nested too deep"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_command_over_http_that_cannot_be_read_is_answered_in_words(body, words):
    with pytest.raises(Problem) as problem:
        decode_json(body, CommandRequest, "the command")
    assert (problem.value.status, str(problem.value)) == (400, f"the command: {words}")


@pytest.mark.parametrize(
    ("kind", "raw", "words"),
    [
        (CloudSettings, {"tenant": "acme", "shards": 0}, "key `shards`: expected an integer of at least 1 and at most 1024"),
        (CloudSettings, {"tenant": "acme", "kafka": {"a": [1]}}, "key `kafka[]`: expected text"),
        (EdgeSettings, {**EDGE, "mqtt": {"port": "x"}}, "key `mqtt.port`: expected an integer of at least 0 and at most 65535"),
        (EdgeSettings, {**EDGE, "mqtt": 3}, "key `mqtt`: expected a table"),
        (EdgeSettings, {**EDGE, "outbox": {"when_full": {"bulk": "drop"}}}, "expected one of block, drop_oldest, not 'drop'"),
        (
            EdgeSettings,
            {**EDGE, "outbox": {"when_full": {"bilk": "block"}}},
            "one of alarm, bulk, telemetry, not 'bilk'",
        ),
        (EdgeSettings, {**EDGE, "uplink": {"bridge": []}}, "expected text or a list of at least 1 entries"),
        (AccessFile, {"operator": [{"name": "a b", "devices": ["x"]}]}, "key `operator[0].name`: expected text of the form ^"),
        (
            AccessFile,
            {"operator": [{"name": "a", "device": ["x"]}]},
            "in [operator[0]]; did you mean devices?",
        ),
        (AccessFile, {"quota": [{"kind": "gatway"}]}, "expected one of client, device, gateway, not 'gatway'"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_wrong_setting_is_named_with_the_expected_values(kind, raw, words):
    with pytest.raises(Misconfigured) as error:
        convert_settings(raw, kind, "file.toml")
    assert str(error.value).startswith("file.toml: ")
    assert words in str(error.value)


def test_a_message_of_a_peer_is_refused_in_the_same_words():
    with pytest.raises(Poison, match="the desired state is not readable: unknown field `desird`; did you mean desired\\?"):
        read_document(b'{"desird": {}}', WantBody, "the desired state")


def test_toml_has_no_null():
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert({"name": "x", "ttl_s": 0}, CommandRequest)
    assert explained(error.value, CommandRequest, TOML).endswith("at most 4000000")


def test_a_name_that_resembles_none_is_not_guessed_at():
    assert did_you_mean("stat", ["state", "device"]) == "; did you mean state?"
    assert did_you_mean("zzz", ["state", "device"]) == ""


def test_no_error_of_the_decoder_reaches_a_user_in_its_own_words():
    """An `except` of msgspec's errors prints them by `explained`."""
    found = []
    for file in files(*PRODUCT):
        for node in ast.walk(file.tree):
            if not isinstance(node, ast.ExceptHandler) or node.name is None or "msgspec" not in ast.unparse(node.type):
                continue
            printed = {ast.unparse(each.value) for each in ast.walk(node) if isinstance(each, ast.FormattedValue)}
            if printed & {node.name, f"str({node.name})"}:
                found.append(f"{file.path}:{node.lineno}")
    assert not found, "call fogline.documents.document_error.explained:\n" + "\n".join(found)
