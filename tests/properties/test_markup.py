"""Whatever text is put into a page comes out as that text, and as nothing else."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from millstream.console.markup import clean, clip, escape, tag

texts = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("<>&\"'/=`!-[]\x00\u202e\ud800\r\n")), max_size=60)


class Reader(HTMLParser):
    """The text and the elements of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.elements = "", []
        self.feed(html)
        self.close()

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs) -> None:
        self.elements.append((tag, dict(attrs)))


@given(texts, texts)
def test_text_and_attributes_come_back_as_they_were_put_in(text: str, value: str) -> None:
    """One element, one attribute, the cleaned text: for any text."""
    read = Reader(tag("p", text, title=value))
    assert read.elements == [("p", {"title": clean(value)})]
    assert read.text == clean(text)


@given(texts)
def test_what_is_written_is_plain_utf_8(text: str) -> None:
    """No control character but tab and newline, no direction override, no lone surrogate."""
    written = escape(text)
    written.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", written)
    assert not re.search(r"[<>\"]", written)


@given(texts, st.integers(1, 40))
def test_clipping_counts_what_it_cuts(text: str, limit: int) -> None:
    """A short text is untouched; of a long one the rest is counted."""
    cut = clip(text, limit)
    assert cut == text if len(text) <= limit else cut.endswith(f"({len(text) - limit} more characters)")


@given(texts)
def test_markup_is_not_escaped_twice(text: str) -> None:
    """A finished piece goes in as it is."""
    assert tag("div", tag("p", text)) == f"<div>{tag('p', text)}</div>"
