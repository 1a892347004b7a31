"""Mutations of true answers, from a seed: what a lying, damaged or mistaken other side may say instead."""

import json
import random
from typing import Any

HUGE = [10**400, -(10**400), 1e308, -1e308, 1 << 63, -1, 2**31, 1e-320, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", "\ud800", "\0", "../x", "/etc/passwd", "x" * 100_000, "\x1b]0;t\x07", "a\\b", "é\u202e", ".", "a//b", "\n"]
PLAIN: list[Any] = [None, True, False, 0, 1, -1, 1.5, [], {}, [[]], {"": None}, *TEXTS, *HUGE]


def deep(levels: int, kind: int = 0) -> Any:
    """Lists, or objects, in each other."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind % 2 == 0 else {"a": value}
    return value


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with one thing changed somewhere."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        changed = dict(value)
        way = rng.random()
        if way < 0.12:
            del changed[key]
        elif way < 0.2:
            changed[rng.choice(TEXTS)] = changed.pop(key)
        else:
            changed[key] = mutated(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        index, changed_list = rng.randrange(len(value)), list(value)
        way = rng.random()
        if way < 0.1:
            del changed_list[index]
        elif way < 0.2:
            changed_list.insert(index, value[index])
        elif way < 0.23:
            changed_list *= 1000
        else:
            changed_list[index] = mutated(value[index], rng)
        return changed_list
    way = rng.random()
    if way < 0.05:
        return deep(rng.choice([5, 20, 500]), rng.randrange(2))
    if way < 0.15 and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64:
        return value * rng.choice([-1, 2, 1 << 40, 0.5])
    return rng.choice(PLAIN)


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


def mutations(value: Any, rng: random.Random) -> bytes:
    """One JSON text in place of the value's."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        value = mutated(value, rng)
    try:
        data = json.dumps(value).encode()
    except (ValueError, RecursionError):
        return b"null"
    return damaged(data, rng) if rng.random() < 0.3 else data
