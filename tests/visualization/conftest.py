from html.parser import HTMLParser

import pytest


class Page(HTMLParser):
    """What a browser sees: elements in order, each as (tag, attributes, texts in it)."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), []))
        self._open.append(self.elements[-1])

    def handle_endtag(self, tag):
        while self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, _, texts in self._open:
            texts.append(data)

    @property
    def tags(self):
        return [tag for tag, _, _ in self.elements]

    def text(self, tag):
        return ["".join(texts) for name, _, texts in self.elements if name == tag]


@pytest.fixture(scope="session")
def page_of():
    """Reads the text of a page."""
    return Page
