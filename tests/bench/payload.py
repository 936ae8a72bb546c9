"""What the devices of the bench say: 100 bytes of JSON, four readings that change from one event to the next."""

import random


def payloads(client: int, events: int) -> list[bytes]:
    """The same ones for the same client, in every run."""
    chance = random.Random(client)
    made = []
    for n in range(events):
        t, h, p, v = chance.uniform(15, 25), chance.uniform(30, 60), chance.uniform(980, 1040), chance.uniform(2.5, 3.2)
        text = f'{{"n": {n}, "temperature": {t:.2f}, "humidity": {h:.2f}, "pressure": {p:.1f}, "battery": {v:.3f}}}'
        made.append(text.ljust(100).encode() if len(text) >= 100 else f"{text[:-1]:<99}}}".encode())
    return made
