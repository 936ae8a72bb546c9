"""Content-Format numbers and media types (IANA, CoRE Parameters): those that devices report in."""

OCTETS = "application/octet-stream"

_MEDIA_TYPES = {
    0: "text/plain; charset=utf-8",
    40: "application/link-format",
    41: "application/xml",
    42: OCTETS,
    47: "application/exi",
    50: "application/json",
    60: "application/cbor",
    61: "application/cwt",
    62: "application/multipart-core",
    63: "application/cbor-seq",
    110: "application/senml+json",
    111: "application/sensml+json",
    112: "application/senml+cbor",
    113: "application/sensml+cbor",
    114: "application/senml-exi",
    115: "application/sensml-exi",
    310: "application/senml+xml",
    311: "application/sensml+xml",
    11542: "application/vnd.oma.lwm2m+tlv",
    11543: "application/vnd.oma.lwm2m+json",
    11544: "application/vnd.oma.lwm2m+cbor",
}
_NUMBERS = {media_type.partition(";")[0]: number for number, media_type in _MEDIA_TYPES.items()}


def media_type(number: int) -> str | None:
    """What a Content-Format number stands for, `None` if it is not known here (or says a content coding too)."""
    return _MEDIA_TYPES.get(number)


def number_of(content_type: str | None) -> int | None:
    """The number of a media type, whatever its parameters; `None` if it has none."""
    return None if content_type is None else _NUMBERS.get(content_type.partition(";")[0].strip().lower())
