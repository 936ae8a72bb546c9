"""Payloads of the bench: JSON with readings that change from one event to the next."""

import random

FIRST_NUMBER = 10_000_000
"""The number in the first payload of `numbered`: every number has eight digits, so every payload has the same length."""
_NUMBER = slice(5, 13)


def payloads(client: int, events: int) -> list[bytes]:
    """100 bytes with four readings each. The same ones for the same client, in every run."""
    chance = random.Random(client)
    made = []
    for n in range(events):
        t, h, p, v = chance.uniform(15, 25), chance.uniform(30, 60), chance.uniform(980, 1040), chance.uniform(2.5, 3.2)
        text = f'{{"n": {n}, "temperature": {t:.2f}, "humidity": {h:.2f}, "pressure": {p:.1f}, "battery": {v:.3f}}}'
        made.append(text.ljust(100).encode() if len(text) >= 100 else f"{text[:-1]:<99}}}".encode())
    return made


def numbered(numbers: range, size: int) -> list[bytes]:
    """A payload of `size` bytes for each number: four readings if there is room for them, else one digit."""
    chance = random.Random(numbers.start)
    return [_numbered(chance, n, size) for n in numbers]


def _numbered(chance: random.Random, n: int, size: int) -> bytes:
    head = f'{{"n":{FIRST_NUMBER + n},'
    if size < 90:
        return f'{head}"v":{chance.randrange(10)}}}'.ljust(size).encode()
    t, h, p, v = chance.uniform(15, 25), chance.uniform(30, 60), chance.uniform(980, 1040), chance.uniform(2.5, 3.2)
    return f'{head}"temperature":{t:.2f},"humidity":{h:.2f},"pressure":{p:.1f},"battery":{v:.3f}}}'.ljust(size).encode()


def number_of(payload: bytes) -> int | None:
    """Return the number of a payload that `numbered` made, and `None` for any other."""
    return int(payload[_NUMBER]) - FIRST_NUMBER if payload.startswith(b'{"n":') and payload[_NUMBER].isdigit() else None
