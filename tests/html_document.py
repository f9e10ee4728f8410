"""HTML read strictly: elements with their attributes, and texts by the element that they stand in."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "img", "hr", "wbr"}


class Document(HTMLParser):
    """Elements with their attributes, and the text of each name; every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._same = False  # a <wbr> is a place within a text
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._same = tag == "wbr"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self._same = False
        assert self._open.pop() == tag

    def handle_data(self, data):
        if not self._open:
            return
        texts = self.texts.setdefault(self._open[-1], [])
        if self._same:
            texts[-1] += data
        else:
            texts.append(data)
