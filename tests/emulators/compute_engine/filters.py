"""Filter expressions and pages of Compute Engine's lists.

Both kinds of expression: AIP-160 (``labels.a:*``, ``(name = x) AND (status != y)``) and the older one with regular
expressions (``name eq a.*``). Source: the reference of ``instances.list`` (cloud.google.com/compute/docs, 2026-11).
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.emulators.compute_engine.wire import GoogleError

_TOKEN = re.compile(r"""\s*(?:(?P<sign>\(|\)|!=|<=|>=|=|<|>|:)|(?P<text>"(?:[^"\\]|\\.)*"|'[^']*'|[^\s()=<>!:"']+))""")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
PAGE = 500
Test = Callable[[Mapping[str, Any]], bool]


def matcher(expression: str) -> Test:
    """What decides whether a resource is listed.

    Raises:
        GoogleError: It is no expression.
    """
    if not expression.strip():
        return lambda _: True
    return _Parser(expression).parse()


def page(rows: Sequence[Any], params: Mapping[str, Any], limit: int = PAGE) -> tuple[Sequence[Any], str]:
    """One page of rows, and the token of the next one; empty if this is the last."""
    wanted = str(params.get("maxResults", PAGE))
    if not wanted.isdigit() or int(wanted) > PAGE:
        raise GoogleError(
            400, "invalid", f"Invalid value for field 'maxResults': '{wanted}'. Must be between 0 and 500."
        )
    token = str(params.get("pageToken", ""))
    if token and not re.fullmatch(r"p\d+", token):
        raise GoogleError(400, "invalid", f"Invalid value for field 'pageToken': '{token}'. Invalid page token.")
    begin = int(token[1:]) if token else 0
    end = begin + min(int(wanted) or PAGE, limit)
    return rows[begin:end], f"p{end}" if end < len(rows) else ""


class _Parser:
    """``or := and (OR and)*; and := term (AND? term)*; term := NOT? ( '(' or ')' | comparison )``."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens: list[tuple[bool, str]] = []  # whether it is a sign, and what
        at, end = 0, len(expression.rstrip())
        while at < end:
            found = _TOKEN.match(expression, at)
            if found is None:
                raise self._wrong()
            self._tokens.append((bool(found["sign"]), found["sign"] or found["text"]))
            at = found.end()

    def parse(self) -> Test:
        test = self._or()
        if self._tokens:
            raise self._wrong()
        return test

    def _wrong(self) -> GoogleError:
        return GoogleError(
            400, "invalid", f"Invalid value for field 'filter': '{self._expression}'. Invalid list filter expression."
        )

    def _next_is(self, *texts: str) -> bool:
        return bool(self._tokens) and self._tokens[0][1] in texts

    def _pop(self) -> tuple[bool, str]:
        if not self._tokens:
            raise self._wrong()
        return self._tokens.pop(0)

    def _or(self) -> Test:
        tests = [self._and()]
        while self._next_is("OR"):
            self._pop()
            tests.append(self._and())
        return lambda row: any(test(row) for test in tests)

    def _and(self) -> Test:
        tests = [self._term()]
        while self._tokens and not self._next_is("OR", ")"):
            if self._next_is("AND"):
                self._pop()
            tests.append(self._term())
        return lambda row: all(test(row) for test in tests)

    def _term(self) -> Test:
        if self._next_is("NOT"):
            self._pop()
            inner = self._term()
            return lambda row: not inner(row)
        if self._next_is("("):
            self._pop()
            inner = self._or()
            if self._pop() != (True, ")"):
                raise self._wrong()
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        sign, field = self._pop()
        if sign:
            raise self._wrong()
        sign, how = self._pop()
        if how in ("eq", "ne") and not sign:
            words = []
            while self._tokens and not self._next_is(")"):
                words.append(_bare(self._pop()[1]))
            pattern = re.compile(" ".join(words))
            return lambda row: bool(pattern.fullmatch(_text(_value(row, field)))) is (how == "eq")
        if not sign or how in "()":
            raise self._wrong()
        sign, value = self._pop()
        if sign:
            raise self._wrong()
        return _aip(field, how, _bare(value))


def _aip(field: str, how: str, value: str) -> Test:
    def test(row: Mapping[str, Any]) -> bool:
        found = _value(row, field)
        if how == ":":
            if value == "*":
                return found is not None
            return value in found if isinstance(found, (list, Mapping)) else value.lower() in _text(found).lower()
        if how in ("=", "!="):
            return _equal(found, value) is (how == "=")
        if found is None:
            return False
        try:
            return _COMPARE[how](float(_text(found)), float(value))
        except ValueError:
            return _COMPARE[how](_text(found), value)

    return test


def _equal(found: Any, value: str) -> bool:
    text = _text(found)
    if value.endswith("*"):
        return found is not None and text.startswith(value[:-1])
    return text == value


def _text(value: Any) -> str:
    return (
        {True: "true", False: "false", None: ""}.get(value, str(value)) if not isinstance(value, (list, dict)) else ""
    )


def _bare(text: str) -> str:
    if text[:1] in "\"'" and text[-1:] == text[:1]:
        return text[1:-1].replace('\\"', '"')
    return text


def _value(row: Mapping[str, Any], field: str) -> Any:
    """``labels.costgpu-run`` -> its value; None if there is none. Label keys hold no dots."""
    node: Any = row
    for part in field.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node
