"""Options to requests."""

import pytest

from edge.coap.client import content_format, request
from fogline_edge.adapters.coap.requests import Block, read_request, seconds, status
from fogline_edge.adapters.coap.wire import Code, Option, RequestRefused


def refused(code, call, *given):
    with pytest.raises(RequestRefused) as error:
        call(*given)
    assert error.value.code == code


def test_path_query_and_format_are_read():
    read = read_request(request("a//b", query=["x=1", "flag", "y=a=b"], options=[content_format(60)]))
    assert (read.path, read.content_format) == (("a", "", "b"), 60)
    assert read.query == (("x", "1"), ("flag", ""), ("y", "a=b"))


def test_a_block_is_read_and_written():
    read = read_request(request(options=[(Option.BLOCK1, b"\x12\x3e")]))
    assert read.block1 == Block(0x123, more=True, size=1024)
    assert read.block1.encode() == b"\x12\x3e"


@pytest.mark.parametrize("number", [1, 5, 9, 21, 19, 31, 65_001])
def test_a_critical_option_that_is_not_understood_is_4_02(number):
    refused(Code.BAD_OPTION, read_request, request(options=[(number, b"x")]))


@pytest.mark.parametrize("number", [4, 6, 14, 16, 258, 65_000])
def test_an_elective_option_that_is_not_understood_is_ignored(number):
    assert read_request(request(options=[(number, b"x" * 20)])).payload == b"x"


@pytest.mark.parametrize(
    "options",
    [[(Option.URI_HOST, b"a"), (Option.URI_HOST, b"b")], [(Option.BLOCK1, b"1234")], [(Option.URI_PORT, b"123")]],
)
def test_a_critical_option_too_often_or_too_long_is_4_02(options):
    refused(Code.BAD_OPTION, read_request, request(options=options))


def test_an_elective_option_too_often_or_too_long_counts_once_or_not_at_all():
    assert read_request(request(options=[content_format(50), content_format(60)])).content_format == 50
    assert read_request(request(options=[(Option.CONTENT_FORMAT, b"123")])).content_format is None


@pytest.mark.parametrize("number", [Option.PROXY_URI, Option.PROXY_SCHEME])
def test_a_proxy_is_5_05(number):
    refused(Code.PROXYING_NOT_SUPPORTED, read_request, request(options=[(number, b"coap")]))


@pytest.mark.parametrize("option", [(Option.URI_PATH, b"\xff"), (Option.URI_QUERY, b"a=\xff"), (Option.BLOCK1, b"\x07")])
def test_values_that_cannot_be_meant_are_4_00(option):
    refused(Code.BAD_REQUEST, read_request, request(options=[option]))


def test_how_long_a_device_takes_commands():
    assert seconds(read_request(request()), 60) is None
    assert seconds(read_request(request(query=["hono-ttd=0"])), 60) is None
    assert seconds(read_request(request(query=["hono-ttd=30"])), 60) == 30
    assert seconds(read_request(request(query=["hono-ttd=999"])), 60) == 60


@pytest.mark.parametrize("told", ["", "-1", "x", "1.5", "\u0663", "9" * 30])
def test_a_time_that_is_no_number_is_4_00(told):
    refused(Code.BAD_REQUEST, seconds, read_request(request(query=[f"hono-ttd={told}"])), 60)


def test_how_a_command_went():
    assert status(read_request(request(query=["hono-cmd-status=204"]))) == 204


@pytest.mark.parametrize("query", [[], ["hono-cmd-status=199"], ["hono-cmd-status=600"], ["hono-cmd-status=ok"]])
def test_a_status_that_is_none_is_4_00(query):
    refused(Code.BAD_REQUEST, status, read_request(request(query=query)))
