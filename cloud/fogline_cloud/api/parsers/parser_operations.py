"""The operations on parsers in the OpenAPI document. Pure."""

from fogline_cloud.api.documents.parts import MOMENT, STRING, Json, in_json, object_of, operation, query, ref, string

_PARSER: Json = {
    "name": "parser",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._:-]{1,64}$"},
}
_PARSER_CHANGE = "#/components/schemas/ParserChange"
_DIGEST: Json = {"type": ["string", "null"], "description": "SHA-256 of the wheel; null: the installed parser of this name"}


def _list_parsers() -> Json:
    found = {"200": in_json("parsers that the user may deploy", "#/components/schemas/ParserList")}
    return operation("listParsers", "List deployed parsers, and their newest changes", [], found, (400, 401, 503))


def _deploy_parser() -> Json:
    flag = {"type": "string", "enum": ["true", "false"]}
    kinds = {"type": "string", "pattern": "^[!-+\\--~]{1,128}(,[!-+\\--~]{1,128}){0,19}$", "examples": ["application/vnd.acme"]}
    parameters = [
        _PARSER,
        query("content_types", kinds, "media types that the parser is chosen for, with commas between them"),
        query("accept_dead", flag, "the parser may refuse events that the former one reads"),
    ]
    found = {"200": in_json("the next micro-batch has the parser", _PARSER_CHANGE)}
    problems = (400, 401, 403, 408, 409, 413, 415, 422, 429, 503)
    wheel = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {
        **operation("deployParser", "Deploy the wheel of a parser", parameters, found, problems),
        "requestBody": {"required": True, "description": "a wheel of Python files, at most 4 MiB", "content": wheel},
    }


def _roll_back_parser() -> Json:
    found = {"200": in_json("the next micro-batch has the former parser", _PARSER_CHANGE)}
    problems = (400, 401, 403, 404, 422, 429, 503)
    return operation("rollBackParser", "Take the former parser again", [_PARSER], found, problems)


def _parser_change() -> Json:
    return object_of(
        "number time who change name digest why",
        number={"type": "integer", "description": "of the entry in the log of deployments"},
        time=MOMENT,
        who=string("the user, or the flow that went back"),
        change={"type": "string", "enum": ["deploy", "rollback", "return"]},
        name=STRING,
        digest=_DIGEST,
        why=string("why a flow went back"),
        check={"type": "object", "description": "what the check before a deployment has found"},
    )


def _parser_list() -> Json:
    content_types = {"type": "array", "items": STRING}
    parser = object_of("name digest content_types", name=STRING, digest=_DIGEST, former=_DIGEST, content_types=content_types)
    changes = {"type": "array", "items": ref("ParserChange"), "description": "the newest first"}
    return object_of("parsers changes", parsers={"type": "array", "items": parser}, changes=changes)


PARSER_PATHS: Json = {
    "/v1/parsers": {"get": _list_parsers()},
    "/v1/parsers/{parser}": {"put": _deploy_parser()},
    "/v1/parsers/{parser}/rollback": {"post": _roll_back_parser()},
}
"""The operations by path."""
PARSER_SCHEMAS: Json = {"ParserChange": _parser_change(), "ParserList": _parser_list()}
"""Their schemas by name."""
