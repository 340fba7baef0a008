"""Small parts the report's sections share: figures as text, tables, keys of charts."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.console.markup import Child, Markup, tag
from millstream.console.report_charts import mark


def percent(value: float | None) -> str:
    """A share as ``43.7 %``; a dash where nothing was measured."""
    return "–" if value is None else f"{100 * value:.1f} %"


def span(interval: tuple[float, float] | None) -> str:
    """An interval of shares as ``38.1 … 49.4``."""
    return "–" if interval is None else f"{100 * interval[0]:.1f} … {100 * interval[1]:.1f}"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Child]], numbers: Sequence[int] = ()) -> Markup:
    """A table whose first cell of each row names it; on a narrow screen each row becomes a block."""

    def style(column: int) -> str | None:
        return "n" if column in numbers else None

    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            [tag("td", cell, class_=style(i), data_label=head[i]) for i, cell in enumerate(row) if i],
        )
        for row in rows
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption),
            tag("thead", tag("tr", [tag("th", title, scope="col", class_=style(i)) for i, title in enumerate(head)])),
            tag("tbody", body),
            class_="stack",
        ),
        class_="scroll",
        role="region",
        aria_label=caption,
        tabindex=0,
    )


def key(entries: Sequence[tuple[str, str, str]]) -> Markup:
    """The key of a chart: (style, mark, words)."""
    return tag(
        "ul",
        [
            tag(
                "li",
                tag("svg", mark(9, 7, kind), viewBox="0 0 18 14", aria_hidden="true"),
                tag("span", words),
                class_=style,
            )
            for style, kind, words in entries
        ],
        class_="key",
    )
