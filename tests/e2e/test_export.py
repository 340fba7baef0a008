"""`[export] evaluations`: every grade of a run of `up`, once, in a file."""

import json


def test_up_exports_each_grade_once(mill, examples):
    """As many events as grades, also after a second `up`; failed ones have an error and no score."""
    mill.settings('[export]\nevaluations = "evaluations.jsonl"\n')
    mill.run("import", examples / "runs.ndjson")
    for _ in range(2):
        assert mill.run("up", "--until-idle").returncode == 0
    lines = (mill.folder / "evaluations.jsonl").read_text().splitlines()
    records = [r for line in lines for r in json.loads(line)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]]
    assert {record["eventName"] for record in records} == {"gen_ai.evaluation.result"}
    found = [{a["key"]: next(iter(a["value"].values())) for a in record["attributes"]} for record in records]
    grades = {row["id"]: row for row in mill.json("grades", "list")["items"]}
    assert sorted(one["millstream.grade.id"] for one in found) == sorted(grades)
    for one in found:
        grade = grades[one["millstream.grade.id"]]
        assert one.get("gen_ai.evaluation.score.value") == grade.get("score")
