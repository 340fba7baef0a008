"""`millstream blobs`: what the edge kept whole is read again by its hash, and pruned."""

import hashlib
import json


def test_a_long_output_is_read_again_and_pruned(mill):
    """From an import to the bytes; without a directory the command says what to set."""
    output = "row " * 50_000
    chat = [
        {"role": "user", "content": "list it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": output},
        {"role": "assistant", "content": "done"},
    ]
    (mill.folder / "runs.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    assert "set [capture] blobs" in mill.run("blobs", "show", "0" * 64).stderr
    mill.settings('[capture]\nblobs = "kept"\n')
    assert mill.run("import", "runs.jsonl").returncode == 0
    assert mill.run("up", "--until-idle", "--close-open").returncode == 0
    (item,) = mill.json("trajectories", "list")["items"]
    events = mill.json("trajectories", "show", item["id"])["events"]
    (told,) = [event["truncated"] for event in events if event["kind"] == "ToolReturned"]
    assert told["sha256"] == told["blob"] == hashlib.sha256(output.encode()).hexdigest()
    assert mill.run("blobs", "show", told["blob"]).stdout == output
    assert mill.run("blobs", "show", told["blob"], "--output", "out.txt").returncode == 0
    assert (mill.folder / "out.txt").read_text() == output
    assert mill.json("blobs", "prune") == {"schema": "millstream.blobs-prune/1", "deleted": 0, "bytes": 0}
    assert "deleted 1 blobs, 200000 bytes" in mill.run("blobs", "prune", "--older-than-days", "0").stdout
    assert mill.run("blobs", "show", told["blob"]).returncode == 2
