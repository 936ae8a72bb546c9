"""Parts of an OpenAPI 3.1 document. Pure."""

from typing import Any

Json = dict[str, Any]
_PROBLEMS = {
    400: "the request cannot be read, or a value is not allowed",
    401: "no user name and password, or wrong ones",
    403: "the user may not do this (access.toml)",
    404: "the device, the command, or the parser is not known here",
    408: "the body did not come in time",
    409: "the same key came with another body, or another parser has the content type",
    412: "the desired state has another version",
    413: "the body is too big",
    415: "the body has a content encoding",
    422: "the gateway or the device cannot take this command, or the parser cannot be deployed",
    429: "the user is over its quota; `Retry-After` says when to come again",
    503: "not at present; `Retry-After` says when to come again",
}
STRING: Json = {"type": "string"}
MOMENT: Json = {"type": "string", "format": "date-time"}


def operation(name: str, summary: str, parameters: list[Json], responses: Json, problems: tuple[int, ...]) -> Json:
    """Return an operation. `problems`: the statuses of its problems."""
    found = {
        str(status): {"description": _PROBLEMS[status], "content": {"application/problem+json": {"schema": ref("Problem")}}}
        for status in problems
    }
    return {"operationId": name, "summary": summary, "parameters": parameters, "responses": {**responses, **found}}


def query(name: str, schema: Json, description: str) -> Json:
    """Return an optional parameter of the query."""
    return {"name": name, "in": "query", "description": description, "schema": schema}


def in_json(description: str, reference: str) -> Json:
    """Return a response with a JSON body. `reference`: of its schema."""
    return {"description": description, "content": {"application/json": {"schema": {"$ref": reference}}}}


def ref(name: str) -> Json:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(required: str, **properties: Json) -> Json:
    """Return the schema of an object. `required`: names with blanks between them."""
    return {"type": "object", "required": required.split(), "properties": properties}


def string(about: str) -> Json:
    """Return the schema of a string."""
    return {**STRING, "description": about}
