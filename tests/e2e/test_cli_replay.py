"""A version with another dialect file comes, and history is read again: processes of the old version and of the new."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

EPOCH = "MAPPING_EPOCH: Final = "
RIGHT = '"temperature": number(first(found, "ai.settings.temperature", "gen_ai.request.temperature")),'
WRONG = '"temperature": None,'
SETTINGS = """[assembly]
grace_s = 0.001
[graders]
enabled = ["format"]
[reward]
formula = "format"
"""


def trace(number):
    return f"{number:032x}"


def spans(number, **call):
    """The two spans of a run, as OTLP/JSON."""
    for place, parent, attributes in ((1, "", {"ai.operationId": "ai.generateText"}), (2, f"{1:016x}", call)):
        told = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        yield {
            "traceId": trace(number),
            "spanId": f"{place:016x}",
            "parentSpanId": parent,
            "name": "a span",
            "startTimeUnixNano": str(1_754_000_000_000_000_000 + place),
            "endTimeUnixNano": str(1_754_000_000_000_000_100 + place),
            "attributes": told,
        }


def of_vercel(number):
    """A call of the Vercel AI SDK."""
    return spans(
        number,
        **{
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": '[{"role": "user", "content": "How much?"}]',
            "ai.response.text": f"It is {number}.",
            "ai.settings.temperature": "0.5",
        },
    )


def of_genai(number):
    """A call in the GenAI conventions."""
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": f"It is {number}."}]}])
    return spans(number, **{"gen_ai.operation.name": "chat", "gen_ai.output.messages": said})


@pytest.fixture
def versions(root, tmp_path):
    """The environments of two versions: one whose Vercel mapping forgets the temperature, and the next, in which it
    is mended.
    """
    found = []
    for name, epoch in (("before", 1), ("after", 2)):
        home = tmp_path / name / "millstream"
        shutil.copytree(root / "millstream", home, ignore=shutil.ignore_patterns("__pycache__", "data"))
        reading, vercel = home / "dialects" / "reading.py", home / "dialects" / "vercel.py"
        text = reading.read_text(encoding="utf-8")
        now = next(line for line in text.splitlines() if line.startswith(EPOCH))
        reading.write_text(text.replace(now, f"{EPOCH}{epoch}"), encoding="utf-8")
        mapping = vercel.read_text(encoding="utf-8")
        assert RIGHT in mapping
        vercel.write_text(mapping.replace(RIGHT, WRONG if name == "before" else RIGHT), encoding="utf-8")
        found.append({"PYTHONPATH": str(home.parent), "PYTHONDONTWRITEBYTECODE": "1"})
    return found


@pytest.fixture
def played(mill, versions, wait_until):
    """Runs of two dialects that the version of before has read and graded, one run still open."""
    mill.settings(SETTINGS)
    told = [span for number in (1, 3, 5) for span in of_vercel(number)] + [s for n in (2, 4) for s in of_genai(n)]
    told += list(of_vercel(6))[1:]
    document = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": told}]}]}
    (mill.folder / "spans.json").write_text(json.dumps(document))
    assert mill.run("import", "spans.json", env=versions[0]).returncode == 0
    wait_until(lambda: mill.json("up", "--until-idle", env=versions[0]) and len(revisions(mill, versions[0])) == 5)
    return mill


def revisions(mill, env):
    return {
        item["id"]: (item["revision"], item["status"]) for item in mill.json("trajectories", "list", env=env)["items"]
    }


def test_a_changed_dialect_file_revises_just_what_it_tells_otherwise(played, versions):
    """`replay --dry-run` names the runs and writes nothing, `replay` revises them, the next `up` grades them; a second
    one finds nothing, and the books balance before and after.
    """
    _, after = versions
    old = {trace(number): (1, "complete") for number in range(1, 6)}
    assert revisions(played, after) == old
    looked = played.json("replay", "--from", "telemetry", "--dry-run", env=after)
    names = [change["trajectory_id"] for change in looked["changed"]]
    assert (sorted(names), looked["unchanged"], looked["mapping_epoch"]) == ([trace(n) for n in (1, 3, 5)], 2, 2)
    assert revisions(played, after) == old
    assert played.json("audit", env=after)["balanced"]
    assert played.json("replay", env=after)["changed"] == looked["changed"]
    played.json("up", "--until-idle", env=after)
    new = {name: (2 if int(name, 16) % 2 else 1, "complete") for name in old}
    assert revisions(played, after) == new
    shown = played.json("trajectories", "show", trace(1), env=after)
    assert (shown["mapping_epoch"], shown["evidence"]["cause"]) == (2, "replay")
    assert [event["temperature"] for event in shown["events"] if event["kind"] == "ModelResponded"] == [0.5]
    graded = [item for item in played.json("grades", "list", env=after)["items"] if item["trajectory_id"] == trace(1)]
    assert {item["revision"] for item in graded} == {1, 2}
    again = played.json("replay", env=after)
    assert (again["changed"], again["unchanged"]) == ([], 5)
    played.json("up", "--until-idle", "--close-open", env=after)
    found = played.json("audit", "--wait", "30", env=after)
    assert found["balanced"], found
    assert [line["name"] for line in found["lines"] if line["section"] == "events" and "mapping" in line["name"]] == []


def test_it_refuses_beside_a_running_up_and_a_dry_run_does_not(played, versions):
    """Two that assemble would undo each other's work; who only looks may look at any time."""
    _, after = versions
    with played.running("up", ready="running ", env=after):
        done = played.run("replay", env=after)
        assert (done.returncode, "pid" in done.stderr) == (2, True)
        assert len(played.json("replay", "--dry-run", env=after)["changed"]) == 3
    assert "3 trajectories changed" in played.run("replay", env=after).stdout


def test_killed_it_is_begun_anew(played, versions):
    """SIGKILL before and within its commit: nothing was written, and the next one does all of it."""
    _, after = versions
    for place in ("before-commit", "in-commit"):
        assert played.run("replay", env={**after, "MILLSTREAM_FAILPOINT": place}).returncode == -signal.SIGKILL
    assert set(revisions(played, after).values()) == {(1, "complete")}
    assert len(played.json("replay", env=after)["changed"]) == 3
