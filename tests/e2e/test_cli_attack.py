"""`millstream graders attack`, and what a weak grader may not do."""

import json

GATED = '[gate]\nevaluation = "examples:none"\ngold = "{gold}"\n'

ENABLED = '[graders]\nenabled = ["contains", "exact"]\n[reward]\nformula = "exact"\n'


def test_an_unfit_grader_is_told_kept_and_kept_from_the_gate(mill):
    """Exit 1 with the attacks that it pays for; `up` then refuses to start with it as gold."""
    found = mill.json("graders", "attack", "contains", code=1)
    assert (found["schema"], found["verdict"]) == ("millstream.grader-examination/1", "weak")
    assert {f["family"] for f in found["findings"] if f.get("paid")} >= {"answer lists", "hedging"}
    mill.settings(GATED.format(gold="contains"))
    done = mill.run("up", "--until-idle")
    assert done.returncode == 2
    assert "[gate] gold = 'contains'" in done.stderr
    assert "weak" in done.stderr
    mill.settings(
        '[graders]\nenabled = ["contains", "exact"]\n[reward]\nformula = "exact"\n' + GATED.format(gold="exact")
    )
    assert {g["name"]: g["examined"] for g in mill.json("graders", "list")["items"]} == {
        "contains": "weak",
        "exact": "not yet",
    }
    assert mill.run("up", "--until-idle").returncode == 0
    assert {g["name"]: g["examined"] for g in mill.json("graders", "list")["items"]}["exact"] == "sound"


def test_a_builtin_gold_is_examined_at_the_start(mill):
    """Nobody has to ask: what pays wrong answers cannot be gold."""
    mill.settings(GATED.format(gold="format"))
    done = mill.run("up", "--until-idle")
    assert done.returncode == 2
    assert "blind" in done.stderr


def test_ones_own_grader_is_attacked_in_its_child_on_ones_own_tasks(mill):
    """`--tasks` names them; a grader that holds is sound and the command leaves with 0."""
    (mill.folder / "mine.py").write_text(
        "import millstream as ms\n@ms.grader\ndef mine(t):\n"
        "    return ms.score(float((t.final_answer or '').strip() == t.task.reference))\n"
    )
    rows = [{"id": str(n), "question": f"Which is {n}?", "reference": word} for n, word in enumerate(["red", "blue"])]
    (mill.folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    mill.settings('[graders]\nfiles = ["mine.py"]\n')
    found = mill.json("graders", "attack", "mine", "--tasks", "tasks.jsonl")
    assert (found["verdict"], found["tasks"], found["own_tasks"]) == ("sound", 2, True)
    done = mill.run("graders", "attack", "mine", "--tasks", "mine.py")
    assert done.returncode == 2
    assert "mine.py" in done.stderr


def test_graders_of_ones_own_may_be_examined_at_the_start(mill):
    """`[graders] examine = "all"`: one that is weak is told by `status`, one that hangs is untested, `up` goes on."""
    (mill.folder / "mine.py").write_text(
        "import time\nimport millstream as ms\n@ms.grader\ndef holds(t):\n"
        "    return ms.score(float(str(t.task.reference) in (t.final_answer or '')))\n"
        "@ms.grader\ndef hangs(t):\n    time.sleep(60)\n"
    )
    graders = '[graders]\nenabled = []\nfiles = ["mine.py"]\nexamine = "all"\ntimeout_s = 1\n'
    mill.settings(graders + '[reward]\nformula = "holds"\n')
    assert mill.run("up", "--until-idle").returncode == 0
    assert {g["name"]: g["examined"] for g in mill.json("graders", "list")["items"]} == {
        "hangs": "untested",
        "holds": "weak",
    }
    assert any("grader holds@" in note and "weak" in note for note in mill.json("status")["notes"])
