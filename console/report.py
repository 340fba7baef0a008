"""The report: one self-contained HTML page. No script, no request, readable without colour or sight.

`render` is a function of `ReportData` alone. The page forbids itself every outside source by its own
content security policy, and all text goes through `millstream.console.markup`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from millstream.console import report_reading as reading
from millstream.console import report_sections as sections
from millstream.console.markup import Markup, tag
from millstream.console.report_alarms import alarms
from millstream.console.report_data import ReportData

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(data: ReportData) -> str:
    """The page."""
    found = [section for section in _sections(data) if section is not None]
    page = tag(
        "html",
        _head(data),
        tag(
            "body",
            tag("a", "Skip to the figures", href="#glance", class_="skip"),
            _header(data, [(name, title) for name, title, _ in found]),
            tag("main", [_section(name, title, body) for name, title, body in found]),
            _footer(data),
        ),
        lang="en",
    )
    return "<!doctype html>\n" + page + "\n"


def write(data: ReportData, path: Path) -> Path:
    """Write the page; its absolute path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(data), encoding="utf-8")
    return path.resolve()


_Section = tuple[str, str, Markup]


def _sections(data: ReportData) -> Sequence[_Section | None]:
    return (
        ("glance", "At a glance", sections.glance(data)),
        ("curve", "Success on tasks nobody trained on", sections.curve(data)) if data.versions else None,
        ("funnel", "From events to training", sections.funnel(data)) if data.funnel else None,
        ("gates", "What the gate decided", sections.gates(data)) if data.candidates else None,
        ("hack", "A reward with a hole", sections.hack(data.hack)) if data.hack else None,
        ("alarms", "Alarms about rewards", alarms(data.alarms)) if data.alarms is not None else None,
        ("grades", "Grades, and those that are none", reading.grades(data.grades)),
        ("run", "One run, step by step", reading.run(data.story)) if data.story else None,
        ("books", "The books", reading.books(data.audit)) if data.audit else None,
        ("further", "Look further", reading.commands(data.commands)) if data.commands else None,
    )


def _head(data: ReportData) -> Markup:
    css = files("millstream.console").joinpath("report.css").read_text(encoding="utf-8")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", data.title),
        tag("style", Markup(css)),
    )


def _header(data: ReportData, entries: Sequence[tuple[str, str]]) -> Markup:
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title in entries]
    return tag(
        "header",
        tag("h1", data.title),
        tag("p", data.subtitle, class_="lead") if data.subtitle else None,
        tag("nav", tag("ul", links), aria_label="Sections"),
    )


def _section(name: str, title: str, body: Markup) -> Markup:
    return tag("section", tag("h2", title, id=f"{name}-head"), body, id=name, aria_labelledby=f"{name}-head")


def _footer(data: ReportData) -> Markup:
    return tag("footer", [tag("p", note) for note in data.notes], tag("p", f"Seed {data.seed}. Made by Millstream."))
