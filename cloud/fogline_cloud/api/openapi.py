"""The OpenAPI 3.1 document of the API, served at `/openapi.json`. A test compares it with the routes. Pure."""

from fogline.address import MAX_NAME_BYTES
from fogline.commands.command import MAX_COMMAND_BYTES, MAX_NAME, NAME_PATTERN, CommandState
from fogline_cloud.api.documents.parts import MOMENT, STRING, Json, in_json, object_of, operation, query, ref, string
from fogline_cloud.api.parsers.parser_operations import PARSER_PATHS, PARSER_SCHEMAS
from fogline_cloud.api.requests import MAX_KEY_CHARS, MAX_TYPE_CHARS, MIN_TTL_S
from fogline_cloud.devices.desired import DEFAULT_COMMAND
from fogline_cloud.devices.device_filter import MAX_TERMS

_MAX_TTL_S = 604_800
"""The most that `commands.max_ttl_s` of a bridge can be: the bridge itself refuses a longer time."""
_COMMAND = "#/components/schemas/Command"
_STATE: Json = {"type": "string", "enum": [each.value for each in CommandState]}
_ID: Json = {"name": "id", "in": "path", "required": True, "schema": STRING}
_NAME: Json = {"type": "string", "maxLength": MAX_NAME, "pattern": f"^{NAME_PATTERN}$"}
_DEVICE: Json = {
    "name": "device",
    "in": "path",
    "required": True,
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_NAME_BYTES // 4,  # a character has up to 4 bytes
        "pattern": r"^(?!\.{1,2}$)[^/\u0000-\u001f\u007f-\u009f]+$",
    },
}
_TIME = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?Z$"
_TERM = r"[^=,\s][^=,]*=[^,\s][^,]*"
_TAG = r'(W/)?"[!#-~]*"'
_TAGS = {"type": "string", "pattern": rf"^(\*|{_TAG}(, {_TAG})*)$"}
_WAIT: Json = {
    "name": "wait",
    "in": "query",
    "description": "how long the response waits for a verdict, up to 60s",
    "schema": {"type": "string", "pattern": r"^([0-5]?[0-9](\.[0-9]{1,3})?|60)s?$", "examples": ["30s"]},
}
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "the same key of the same user is the same command, or event, however often it is sent",
    "schema": {"type": "string", "maxLength": MAX_KEY_CHARS, "pattern": "^[!-~]+$"},
}


def document() -> Json:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fogline", "version": "1", "description": "Commands to devices, and events of services."},
        "paths": {
            "/v1/devices/{device}/commands": {"post": _send_command()},
            "/v1/devices": {"get": _list_devices()},
            "/v1/devices/{device}": {"get": _get_device()},
            "/v1/devices/{device}/desired": {"get": _get_desired(), "put": _put_desired()},
            "/v1/commands": {"get": _list_commands()},
            "/v1/commands/{id}": {"get": _get_command(), "delete": _cancel_command()},
            "/v1/commands/{id}/approval": {"post": _approve_command()},
            "/v1/telemetry/{device}": {"post": _send_event("sendTelemetry", "telemetry")},
            "/v1/events/{device}": {"post": _send_event("sendEvent", "an alarm")},
            "/v1/events/stream": {"get": _stream()},
            **PARSER_PATHS,
            "/livez": {"get": _open("live", "Whether this process answers", "text/plain", STRING)},
            "/readyz": {"get": _health("ready")},
            "/healthz": {"get": _health("health")},
            "/openapi.json": {"get": _open("openapi", "This document", "application/json", {"type": "object"})},
        },
        "components": {
            "securitySchemes": {"password": {"type": "http", "scheme": "basic"}},
            "schemas": {
                "Command": _command(),
                "CommandList": _page("commands", "Command"),
                "CommandRequest": _command_request(),
                "DesiredRequest": _desired_request(),
                "DesiredState": _desired_state(),
                "Device": _device(),
                "DeviceList": _page("devices", "Device"),
                **PARSER_SCHEMAS,
                "Reply": _reply(),
                "Problem": _problem(),
            },
        },
        "security": [{"password": []}],
    }


def _send_command() -> Json:
    location = {"Location": {"description": "the address of the command", "schema": STRING}}
    created = {
        "201": {
            **in_json("it is written down; with `wait`, its verdict if that came in time", _COMMAND),
            "headers": location,
        }
    }
    problems = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503)
    return {
        **operation("sendCommand", "Send a command", [_DEVICE, _WAIT, _KEY], created, problems),
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("CommandRequest")}}},
    }


def _list_commands() -> Json:
    parameters = [
        query("device", STRING, "only commands for this device"),
        query("state", _STATE, "only commands in this state"),
        query("since", MOMENT, "only commands that were accepted since then"),
        *_paging("commands"),
    ]
    found = {"200": in_json("the newest commands first", "#/components/schemas/CommandList")}
    return operation("listCommands", "List commands", parameters, found, (400, 401, 503))


def _list_devices() -> Json:
    where, about = f"^{_TERM}(,{_TERM}){{0,{MAX_TERMS - 1}}}$", "only devices that match every term"
    parameters = [
        query("where", {"type": "string", "pattern": where, "examples": ["type=lamp,site=berlin"]}, about),
        *_paging("devices"),
    ]
    found = {"200": in_json("devices by name", "#/components/schemas/DeviceList")}
    return operation("listDevices", "List devices", parameters, found, (400, 401, 503))


def _get_device() -> Json:
    found = {"200": in_json("the device", "#/components/schemas/Device")}
    return operation("getDevice", "Show a device", [_DEVICE], found, (400, 401, 404, 503))


def _desired_found() -> Json:
    etag = {"ETag": {"description": "the version, for `If-Match`", "schema": STRING}}
    return {"200": {**in_json("the desired state, and the reported one", "#/components/schemas/DesiredState"), "headers": etag}}


def _get_desired() -> Json:
    known = {"name": "If-None-Match", "in": "header", "description": "the ETags that the client has", "schema": _TAGS}
    found = {**_desired_found(), "304": {"description": "the client has it: `If-None-Match`"}}
    return operation("getDesired", "Show the desired state", [_DEVICE, known], found, (400, 401, 404, 503))


def _put_desired() -> Json:
    conditions: list[Json] = [
        {"name": "If-Match", "in": "header", "description": "the ETags of which it must have one", "schema": _TAGS},
        {"name": "If-None-Match", "in": "header", "description": "*: there must be none", "schema": _TAGS},
    ]
    problems = (400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 503)
    parameters = [_DEVICE, _KEY, *conditions]
    return {
        **operation("putDesired", "Replace the desired state", parameters, _desired_found(), problems),
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("DesiredRequest")}}},
    }


def _get_command() -> Json:
    return operation(
        "getCommand", "Show a command", [_ID, _WAIT], {"200": in_json("the command", _COMMAND)}, (400, 401, 404, 503)
    )


def _cancel_command() -> Json:
    found = {
        "200": in_json("it is cancelled: the device never saw it", _COMMAND),
        "202": in_json("its gateway has not decided yet; ask again", _COMMAND),
    }
    return operation("cancelCommand", "Cancel a command", [_ID], found, (400, 401, 403, 404, 409, 429, 503))


def _approve_command() -> Json:
    found = {"200": in_json("it is approved, and goes on its way", _COMMAND)}
    return operation(
        "approveCommand", "Approve a command of another operator", [_ID], found, (400, 401, 403, 404, 409, 429, 503)
    )


def _send_event(name: str, what: str) -> Json:
    headers = [
        {"name": f"ce-{each}", "in": "header", "schema": {"type": "string", "pattern": "^[!-~]+$", "maxLength": 256}}
        for each in ("id", "source", "type", "subject")
    ]
    headers += [
        {"name": "ce-specversion", "in": "header", "schema": {"type": "string", "enum": ["1.0"]}},
        {"name": "ce-time", "in": "header", "schema": {"type": "string", "pattern": _TIME}},
    ]
    accepted = {"202": {"description": "it is committed in Kafka"}}
    sent = operation(
        name, f"Send {what} of a device", [_DEVICE, _KEY, *headers], accepted, (400, 401, 403, 408, 413, 415, 429, 503)
    )
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}}
    description = "any content type; application/cloudevents+json is a CloudEvent in structured mode"
    return {**sent, "requestBody": {"required": True, "description": description, "content": content}}


def _stream() -> Json:
    parameters = [
        query("device", STRING, "only this device"),
        query("kind", {"type": "string", "enum": ["command", "reading"]}, "only events of this kind"),
        {"name": "Last-Event-ID", "in": "header", "schema": STRING},
    ]
    text = {"200": {"description": "server-sent events", "content": {"text/event-stream": {"schema": STRING}}}}
    return operation("stream", "States of commands and latest readings, as they come", parameters, text, (400, 401, 503))


def _open(name: str, summary: str, media_type: str, schema: Json) -> Json:
    found = {"200": {"description": summary, "content": {media_type: {"schema": schema}}}}
    return {**operation(name, summary, [], found, ()), "security": []}


def _health(name: str) -> Json:
    found = _open(name, "Whether this process can serve", "text/plain", STRING)
    why = {"description": "why it cannot", "content": {"text/plain": {"schema": STRING}}}
    return {**found, "responses": {**found["responses"], "503": why}}


def _paging(what: str) -> list[Json]:
    limit = {"type": "integer", "minimum": 1, "maximum": 200}
    return [query("limit", limit, f"{what} in one response"), query("after", STRING, "`next` of the page before")]


def _command_request() -> Json:
    return {
        "type": "object",
        "required": ["name"],
        "not": {"required": ["data", "data_base64"]},
        "additionalProperties": False,
        "properties": {
            "name": {**_NAME, "description": "the name of the command", "examples": ["switch"]},
            "data": {"description": "arguments, any JSON"},
            "data_base64": {
                "type": ["string", "null"],
                "contentEncoding": "base64",
                "maxLength": 4 * (MAX_COMMAND_BYTES // 3),
                "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
                "description": "arguments that are not JSON; not with `data`",
            },
            "content_type": {
                "type": ["string", "null"],
                "minLength": 1,
                "maxLength": MAX_TYPE_CHARS,
                "pattern": "^[!-~]+$",
                "description": "of the arguments; application/json for `data`",
            },
            "ttl_s": {
                "type": ["number", "null"],
                "minimum": MIN_TTL_S,
                "maximum": _MAX_TTL_S,
                "description": "time to live in seconds; 30 without it",
            },
            "durable": {"type": "boolean", "default": True, "description": "false: deliver it now or refuse it"},
            "idempotent": {"type": "boolean", "default": False, "description": "the gateway may repeat it if in doubt"},
            "newest_wins": {
                "type": "boolean",
                "default": False,
                "description": "it replaces commands of the same name that still wait for the device",
            },
            "one_way": {"type": "boolean", "default": False, "description": "the device gives no reply"},
        },
    }


def _command() -> Json:
    return object_of(
        "id device name state provisional accepted expires changed",
        id=STRING,
        device=STRING,
        name=STRING,
        state=_STATE,
        provisional={"type": "boolean", "description": "the gateway has not reported a verdict in time"},
        status={"type": ["integer", "null"], "description": "of the device; or as in HTTP, if no device gave one"},
        why=STRING,
        gateway=STRING,
        operator=STRING,
        accepted=MOMENT,
        expires=MOMENT,
        changed=MOMENT,
        reply={"oneOf": [ref("Reply"), {"type": "null"}]},
    )


def _reply() -> Json:
    return {
        "type": "object",
        "description": "the reply of the device: `data` if it is JSON, else `data_base64`",
        "properties": {"content_type": {"type": ["string", "null"]}, "data": {}, "data_base64": STRING},
    }


def _page(name: str, schema: str) -> Json:
    next_page = {"type": ["string", "null"], "description": "`after` of the next page, null on the last one"}
    return object_of(f"{name} next", **{name: {"type": "array", "items": ref(schema)}}, next=next_page)


def _desired_request() -> Json:
    desired = {"type": "object", "description": "the state, at most 8 KiB", "examples": [{"on": True}]}
    command = {**_NAME, "default": DEFAULT_COMMAND, "description": "the command that carries the state"}
    return {**object_of("desired", desired=desired, command=command), "additionalProperties": False}


def _desired_state() -> Json:
    return object_of(
        "device desired command version state changed changed_by reported difference",
        device=STRING,
        desired={"type": "object"},
        command=STRING,
        version={"type": "integer"},
        state=string("WAITING, SENT, or the end of the command that carries it"),
        command_id=STRING,
        why=STRING,
        changed=MOMENT,
        changed_by=STRING,
        reported={"type": ["object", "null"]},
        difference={"type": "object", "description": "the part of `desired` that `reported` does not have"},
    )


def _device() -> Json:
    return object_of(
        "device type tags firmware gateways last_seen version commands",
        device=STRING,
        type=STRING,
        tags={"type": "object", "additionalProperties": STRING},
        firmware=STRING,
        gateways={"type": "array", "items": STRING, "description": "those that had events of it, the newest first"},
        last_seen={"type": ["string", "null"], "format": "date-time", "description": "when its last event came"},
        version={"type": "integer", "description": "0 if nobody has set it"},
        commands={"type": ["object", "null"], "description": "the JSON Schema of the arguments of each command"},
    )


def _problem() -> Json:
    status, detail = {"type": "integer"}, string("one sentence")
    found = object_of("type title status detail", type=STRING, title=STRING, status=status, detail=detail)
    return {**found, "description": "RFC 9457"}
