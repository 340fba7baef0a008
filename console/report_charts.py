"""The report's pictures: inline SVG, coloured by the page's own variables, each with words for those
who do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from millstream.console.markup import Markup, join, tag
from millstream.evidence import GateRow

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 16, 52


class Point(Struct, frozen=True, kw_only=True):
    """A measured value on a chart: where, with its interval, and how it is drawn."""

    x: float
    value: float
    low: float | None = None
    high: float | None = None
    mark: str = "dot"


class Series(Struct, frozen=True, kw_only=True):
    """Points of one kind; ``joined``: indices that a line runs through. ``style`` is a CSS class."""

    style: str
    points: tuple[Point, ...]
    joined: tuple[int, ...] = ()


def _y(value: float) -> float:
    return round(TOP + (1 - value) * (HEIGHT - TOP - BOTTOM), 1)


def chart(name: str, title: str, words: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """Rates from 0 to 100 % over named places. ``words`` say what the picture shows."""
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    places = [round(LEFT + step * (i + 0.5), 1) for i in range(len(labels))]
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", words, id=f"{name}-words"),
        _grid(),
        [_label(label, x, step) for label, x in zip(labels, places, strict=True)],
        [_series(one, places, step) for one in series],
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{name}-title {name}-words",
        class_="chart",
    )


def _grid() -> Markup:
    lines = [
        join(
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_y(v / 100), y2=_y(v / 100), class_="grid"),
            tag("text", f"{v} %", x=LEFT - 8, y=_y(v / 100) + 4, text_anchor="end", class_="tick"),
        )
        for v in (0, 25, 50, 75, 100)
    ]
    return tag("g", lines, aria_hidden="true")


def _label(label: str, x: float, step: float) -> Markup:
    """A place's name on up to two lines, split at a newline."""
    lines = label.split("\n")[:2]
    small = " small" if step < 80 else ""
    return tag(
        "text",
        [
            tag("tspan", line, x=x, dy="1.25em" if i else "0", class_="second" if i else None)
            for i, line in enumerate(lines)
        ],
        x=x,
        y=HEIGHT - BOTTOM + 22,
        text_anchor="middle",
        class_=f"tick{small}",
    )


def _series(series: Series, places: Sequence[float], step: float) -> Markup:
    spots = [(places[0] + step * p.x, p) for p in series.points]
    line = " ".join(f"{round(spots[i][0], 1)},{_y(spots[i][1].value)}" for i in series.joined)
    return tag(
        "g",
        tag("polyline", points=line, class_="line") if len(series.joined) > 1 else None,
        [_point(round(x, 1), point) for x, point in spots],
        class_=series.style,
    )


def _point(x: float, point: Point) -> Markup:
    y = _y(point.value)
    whisker = None
    if point.low is not None and point.high is not None:
        low, high = _y(point.low), _y(point.high)
        whisker = tag("path", d=f"M{x} {low}V{high}M{x - 5} {low}h10M{x - 5} {high}h10", class_="whisker")
    return join(whisker, mark(x, y, point.mark))


def mark(x: float, y: float, kind: str) -> Markup:
    """A mark of a kind (dot, ring, diamond, square) with its middle at (x, y)."""
    if kind == "diamond":
        return tag("path", d=f"M{x} {y - 6}l6 6l-6 6l-6 -6z", class_="mark")
    if kind == "square":
        return tag("rect", x=x - 5, y=y - 5, width=10, height=10, class_="mark")
    return tag("circle", cx=x, cy=y, r=5.5, class_="mark hollow" if kind == "ring" else "mark")


FOREST_WIDTH, FOREST_HEIGHT = 150, 22


def forest(row: GateRow) -> Markup:
    """A row's interval against nought and its margin, to its own scale; a dash where there is none."""
    if row.difference is None or row.low is None or row.high is None:
        return tag("span", "–", class_="muted")
    margin = row.margin or None
    reach = max(abs(v) for v in (row.low, row.high, margin or 0.0, 0.005)) * 1.12
    style = {"better": "good", "holds": "good", "worse": "bad", "violated": "bad"}.get(row.state, "open")

    def x(value: float) -> float:
        return round(FOREST_WIDTH / 2 + value / reach * (FOREST_WIDTH / 2 - 4), 1)

    middle = FOREST_HEIGHT / 2
    return tag(
        "svg",
        tag("line", x1=x(0), x2=x(0), y1=1, y2=FOREST_HEIGHT - 1, class_="zero"),
        tag("line", x1=x(margin), x2=x(margin), y1=1, y2=FOREST_HEIGHT - 1, class_="margin") if margin else None,
        tag("line", x1=x(row.low), x2=x(row.high), y1=middle, y2=middle, class_="span"),
        tag("circle", cx=x(row.difference), cy=middle, r=4, class_="mark"),
        viewBox=f"0 0 {FOREST_WIDTH} {FOREST_HEIGHT}",
        class_=f"forest {style}",
        aria_hidden="true",
    )
