"""Requests that schemathesis makes of the OpenAPI document, against the real API: it takes what the document allows."""

import asyncio

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from e2e.http_api import served
from fogline_cloud.api.openapi import document
from fogline_lab.device.command_device import CommandDevice
from property_tests import at_most

OPERATIONS = {
    each.ok().definition.raw["operationId"]: each.ok()
    for each in schemathesis.openapi.from_dict(document()).get_all_operations()
}
del OPERATIONS["stream"]  # it does not end
DEVICE = "lamp-1"
DOCUMENTED = [status_code_conformance, content_type_conformance, response_schema_conformance]


async def try_requests(line, operation, mode, judge):
    """Send what schemathesis makes of an operation, to a device that is there and to others. `judge` gets each response."""
    async with served(line) as (found, downlink, *_):
        downlink.reachable(DEVICE, CommandDevice(downlink))

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=at_most(100), suppress_health_check=list(HealthCheck))
        def send(case: Case) -> None:
            case.query.pop("wait", None)  # up to a minute each
            judge(case, case.call(base_url=found.url, auth=("alice", "x"), timeout=60))

        await asyncio.to_thread(send)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_request_that_the_document_allows_is_no_client_error_and_each_response_is_documented(line, name):
    def judge(case, response):
        known = "after" not in case.query  # a page begins behind a command that is known
        assert response.status_code != 400 or not known, response.text
        case.validate_response(response, checks=DOCUMENTED)

    await try_requests(line, OPERATIONS[name], GenerationMode.POSITIVE, judge)


@pytest.mark.parametrize("name", [name for name, each in OPERATIONS.items() if each.definition.raw["parameters"]])
async def test_request_that_the_document_forbids_is_refused_with_the_reason(line, name):
    def judge(_, response):
        assert response.status_code < 500 or response.status_code == 503, response.text
        if response.status_code >= 400 and response.status_code != 404:
            assert response.json()["detail"]

    await try_requests(line, OPERATIONS[name], GenerationMode.NEGATIVE, judge)
