"""Damage to what another program has written, from a seed."""

import random


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one thing wrong: cut, flipped, doubled, deepened, or garbage put in."""
    way, at = rng.randrange(6), rng.randrange(len(data) + 1)
    if way == 0:
        return data[:at]
    if way == 1 and data:
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 3, 20])):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if way == 2:
        return data[:at] + rng.randbytes(rng.choice([1, 8, 300])) + data[at:]
    if way == 3:
        return data[:at] + b"[" * rng.choice([10, 100_000]) + data[at:]
    if way == 4:
        return data[:at] + b"9" * rng.choice([20, 6000]) + data[at:]
    return data[at:] + data[:at]
