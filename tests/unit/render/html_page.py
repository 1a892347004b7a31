"""A page as a test reads it: tags closed in order, texts, and nothing in it that could do or load anything."""

import re
from html.parser import HTMLParser

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=y>\u202e\x07"
BANNED = {"script", "img", "iframe", "link", "object", "embed", "form", "base", "a", "video", "audio", "use", "image"}
LOADING = {"src", "href", "xlink:href", "action", "srcset", "data"}


class Page(HTMLParser):
    """The tags and attributes of a page, and its texts."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def harmless(html: str) -> Page:
    """No script, no handler, nothing from elsewhere; every picture says what it shows."""
    page = Page(html)
    assert BANNED.isdisjoint(tag for tag, _ in page.tags)
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in LOADING, (tag, name)
            assert "url(" not in (value or "")
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"] or "") > 20
    assert "@import" not in html
    assert "url(" not in html
    assert not re.search(r"https?://", html)
    assert not re.search(r"&lt;/?(bdi|br|span)\b", html)  # nothing is escaped twice
    assert "default-src 'none'" in html
    assert not {"\u202e", "\x07"} & set(html)
    return page
