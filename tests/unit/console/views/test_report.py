"""The report: one page that asks nobody for anything, reads without colour, and cannot be talked into markup."""

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from millstream.console.report import render, write
from millstream.console.report_data import (
    FunnelStep,
    ReportAlarm,
    ReportAudit,
    ReportCandidate,
    ReportControl,
    ReportData,
    ReportGrades,
    ReportHack,
    ReportVersion,
    Story,
    StoryGrade,
    StoryStep,
    facts,
)
from millstream.console.report_story import story
from millstream.events import (
    MessageReceived,
    ModelResponded,
    Task,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
)
from millstream.grade import GradeGiven, fail, score
from millstream.trajectory import Trajectory

HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)> \"' onload=x \u202e\x00\ud800 &amp;"


@pytest.fixture
def report(evidence) -> ReportData:
    """A whole report."""
    return ReportData(
        title="A loop",
        seed=3,
        seconds=148.2,
        tasks=300,
        worlds=30,
        temperature=0.7,
        versions=(
            ReportVersion(version=1, report_success=0.44, report_ci=(0.38, 0.5), greedy=0.57, pass_at_4=0.7),
            ReportVersion(version=2, report_success=0.6, report_ci=(0.5, 0.7), promoted=True, verdict="promote"),
            ReportVersion(version=3, report_success=0.58, report_ci=(0.5, 0.66), verdict="refuse"),
        ),
        candidates=(
            ReportCandidate(version=2, champion=1, verdict="promote", reasons=("better: gold",), evidence=evidence),
            ReportCandidate(version=3, champion=2, verdict="refuse", reasons=("no manifest",)),
        ),
        hack=ReportHack(proxy=(0.1, 0.7), gold=(0.45, 0.14), verdict="refuse", reasons=("reward hack: …",)),
        alarms=(
            ReportAlarm(
                id="a1",
                log_ms=1_767_225_600_000,
                lineage="policy-hack",
                alarm="hack",
                version=2,
                runs=40,
                hits=20,
                share=0.5,
                expected=0.05,
                stops=True,
                state="standing",
                reason="20 of 40 were paid though gold failed them",
                trajectory_ids=("run-1", "run-2", "run-3", "run-4"),
            ),
            ReportAlarm(
                id="a2",
                log_ms=1_767_225_700_000,
                lineage="policy",
                alarm="drift",
                version=None,
                runs=9,
                hits=3,
                share=1 / 3,
                expected=0.1,
                stops=False,
                state="standing",
                reason="3 of 9 wrote more",
            ),
        ),
        control=ReportControl(report_success=0.41, report_ci=(0.35, 0.47)),
        grades=ReportGrades(scored=7, failed=2, abstained=1, censored=0, reasons=[("judge", "timeout", "late", 2)]),
        audit=ReportAudit(balanced=False, lines=(("events: in a trajectory", 30),), problems=("lost: e7",)),
        funnel=(
            FunnelStep(name="Events", count=30, unit="events"),
            FunnelStep(name="Runs", count=10),
            FunnelStep(name="In the buffer", count=6, lost={"no_reward": 4, "quota": 0}),
        ),
        story=Story(
            trajectory_id="t1",
            status="complete",
            question="q",
            answer="13 %",
            policy_version=2,
            reward=1.0,
            steps=(
                StoryStep(who="policy", call="load(x)", thought="hm"),
                StoryStep(who="tool", text="gone", failed=True),
            ),
            grades=(StoryGrade(grader="judge", status="failed", score=None, reason="late"),),
        ),
        commands=(("millstream why 2", "everything"),),
        notes=("Synthetic.",),
    )


class Page(HTMLParser):
    """Elements with their attributes, and whether every one is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_every_section_is_there(report) -> None:
    """The curve, the funnel, the decisions, the hack, the alarms, the grades, a run, the books and what to type."""
    page = render(report)
    assert re.findall(r'<section id="(\w+)"', page) == [
        "glance", "curve", "funnel", "gates", "hack", "alarms", "grades", "run", "books", "further",
    ]  # fmt: skip
    figures = ("44.0 % → 60.0 %", "60 won, 10 lost", "4 no reward", "2 of 10", "148 s", "41.0 %")
    words = (
        "✓ promoted",
        "✗ refused",
        "The books do not balance",
        "lost: e7",
        "Tool fails",
        "millstream why 2",
        "judge",
        "50.0 % (20 of 40)",
        "2026-01-01T00:00:00.000Z",
        "policy-hack, version 2: 20 of 40 were paid though gold failed them.",
        "run-4",
        "and 1 more",
        "is stopped",
        "goes on",
    )
    for piece in (*figures, *words):
        assert piece in page


def test_alarms_that_were_watched_for_and_never_came_say_so(report) -> None:
    """None raised is told; nobody watching is no section."""
    assert "None was raised." in render(msgspec.structs.replace(report, alarms=()))
    assert 'id="alarms"' not in render(msgspec.structs.replace(report, alarms=None))


def test_a_report_of_nothing_still_renders() -> None:
    """Sections without data are left out; the grades are always there, all four at 0."""
    page = render(ReportData(title="Empty"))
    assert re.findall(r'<section id="(\w+)"', page) == ["glance", "grades"]
    Page(page)


def test_the_page_asks_nobody_for_anything(report) -> None:
    """No script, no link out, no image, no font; and the page forbids itself all of it."""
    page = Page(render(report))
    assert not page.open
    assert page.of("script") == page.of("img") == page.of("link") == page.of("iframe") == []
    assert {a["href"] for a in page.of("a")} <= {f"#{s}" for s in re.findall(r'<section id="(\w+)"', render(report))}
    policy = next(m["content"] for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "http:" not in render(report)
    assert "https:" not in render(report)
    assert "url(" not in render(report)


def test_pictures_have_words_and_tables_have_captions(report) -> None:
    """Each chart is an image with a title and a description; each table has a caption and headed cells."""
    text = render(report)
    page = Page(text)
    charts = [s for s in page.of("svg") if s.get("role") == "img"]
    assert len(charts) == 2
    ids = set(re.findall(r' id="([\w-]+)"', text))
    assert all(name in ids for chart in charts for name in str(chart["aria-labelledby"]).split())
    assert all(s.get("role") == "img" or s.get("aria-hidden") == "true" for s in page.of("svg"))
    assert text.count("<table") == text.count("<caption>") > 4
    assert all("scope" in th for th in page.of("th"))
    assert [tag for tag, _ in page.elements if tag == "h1"] == ["h1"]
    assert page.of("html")[0]["lang"] == "en"
    assert len(ids) == len(re.findall(r' id="([\w-]+)"', text))


def test_hostile_text_stays_text(report) -> None:
    """A trace that tries to be markup, to turn the text around or to break the encoding is only read."""
    hostile = msgspec.structs.replace(
        report,
        title=HOSTILE,
        subtitle=HOSTILE,
        candidates=(msgspec.structs.replace(report.candidates[0], reasons=(HOSTILE,)),),
        hack=msgspec.structs.replace(report.hack, formula=HOSTILE, reasons=(HOSTILE,)),
        alarms=(msgspec.structs.replace(report.alarms[0], lineage=HOSTILE, reason=HOSTILE, trajectory_ids=(HOSTILE,)),),
        grades=ReportGrades(reasons=[(HOSTILE, HOSTILE, HOSTILE, 1)]),
        audit=ReportAudit(balanced=False, lines=((HOSTILE, 1),), problems=(HOSTILE,)),
        funnel=(FunnelStep(name=HOSTILE, count=1, note=HOSTILE, lost={HOSTILE: 1}),),
        story=Story(
            trajectory_id=HOSTILE,
            status=HOSTILE,
            question=HOSTILE,
            answer=HOSTILE,
            reference=HOSTILE,
            steps=tuple(
                StoryStep(who=who, text=HOSTILE, thought=HOSTILE, call=HOSTILE) for who in ("policy", "tool", HOSTILE)
            ),
            grades=(StoryGrade(grader=HOSTILE, status=HOSTILE, score=None, reason=HOSTILE),),
        ),
        commands=((HOSTILE, HOSTILE),),
        notes=(HOSTILE,),
    )
    text = render(hostile)
    page = Page(text)
    assert page.of("script") == page.of("img") == []
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert not any(sign in text for sign in ("\u202e", "\x00", "\ud800"))
    assert "⟨U+202E⟩" in text
    assert text.encode("utf-8")


def test_long_texts_are_cut_with_a_count(report) -> None:
    """A tool output of 100,000 characters does not make a page of that size."""
    long = msgspec.structs.replace(report.story, steps=(StoryStep(who="tool", text="x" * 100_000),))
    assert "(98,000 more characters)" in render(msgspec.structs.replace(report, story=long))


def test_the_page_is_a_function_of_the_data(report, tmp_path: Path) -> None:
    """The same data, the same bytes; written where it was asked for."""
    path = write(report, tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8") == render(report)
    assert path.is_absolute()


def test_the_facts_are_those_of_the_contract(report) -> None:
    """``--json`` carries the same facts, under the agreed names, without a NaN."""
    tree = msgspec.json.decode(msgspec.json.encode(facts(report)))
    assert {"version", "report_success", "report_ci", "greedy", "promoted"} <= tree["versions"][0].keys()
    assert {"version", "verdict", "reasons"} <= tree["candidates"][0].keys()
    assert (tree["hack"]["proxy"], tree["hack"]["gold"], tree["hack"]["verdict"]) == (
        [0.1, 0.7],
        [0.45, 0.14],
        "refuse",
    )
    assert {"scored", "failed", "abstained", "censored"} <= tree["grades"].keys()
    assert tree["audit"]["balanced"] is False
    assert tree["seconds"] == 148.2
    assert tree["control"]["report_success"] == 0.41


def test_a_run_becomes_a_story() -> None:
    """Messages, thoughts, calls (also one whose arguments are no JSON), results, errors and grades, in order."""
    run = Trajectory(
        id="t1",
        events=(
            TrajectoryStarted(
                id="0", trajectory_id="t1", task=Task(question="How much?", reference=3.5), policy_version=4
            ),
            MessageReceived(id="1", trajectory_id="t1", content="How much?"),
            ModelResponded(
                id="2",
                trajectory_id="t1",
                reasoning="look",
                tool_calls=(
                    ToolCall(id="a", name="load", arguments={"document": "d1"}),
                    ToolCall(id="b", name="calculator", arguments_raw="2 +", malformed=True),
                ),
            ),
            ToolReturned(id="3", trajectory_id="t1", call_id="a", output="7"),
            ToolReturned(id="4", trajectory_id="t1", call_id="b", error="no JSON"),
            ModelResponded(id="5", trajectory_id="t1", text="3.5"),
            TrajectoryEnded(id="6", trajectory_id="t1", final_answer="3.5"),
        ),
    )
    grades = [
        GradeGiven(id="g", trajectory_id="t1", revision=1, grader="judge", epoch="e", grade=fail("late", "timeout")),
        GradeGiven(
            id="h", trajectory_id="t1", revision=1, grader="correct", epoch="e", grade=score(1.0, reason="equal")
        ),
    ]
    told = story(run, grades, reward=1.0)
    assert (told.question, told.reference, told.answer, told.policy_version) == ("How much?", "3.5", "3.5", 4)
    assert [(s.who, s.call or s.text, s.failed) for s in told.steps] == [
        ("task", "How much?", False),
        ("policy", "", False),
        ("policy", 'load(document="d1")', False),
        ("policy", "calculator(2 +)", False),
        ("tool", "7", False),
        ("tool", "no JSON", True),
        ("policy", "3.5", False),
        ("end", "done", False),
    ]
    assert told.steps[1].thought == "look"
    assert [(g.grader, g.status, g.score) for g in told.grades] == [
        ("correct", "scored", 1.0),
        ("judge", "failed", None),
    ]
