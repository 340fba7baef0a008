"""`millstream serve` as people run it: stock clients against the process, and a clean end."""

import json
import os
import re
import subprocess
import sys
from urllib.request import Request, urlopen

import openai
import pytest
from services.openai_api import answering, completion
from spans import TRACE, a_run

GRADER = {
    "type": "string_check",
    "name": "s",
    "operation": "ilike",
    "input": "{{sample.output_text}}",
    "reference": "{{item.gold}}",
}


def test_the_stock_client_against_the_process(mill):
    """The line on standard error names the address; a token is asked for where there is one; SIGTERM ends it with 0."""
    token = "a-token-of-some-length"
    with mill.running("serve", "graders", ready="serving graders on ", env={"MILLSTREAM_TOKEN": token}) as process:
        url = re.search(r"http://[0-9.:]+", process.told())[0]
        with openai.OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as client:
            found = client.fine_tuning.alpha.graders.run(grader=GRADER, model_sample="Paris!", item={"gold": "paris"})
            assert found.reward == 1.0
            with pytest.raises(openai.AuthenticationError):
                client.with_options(api_key="another").fine_tuning.alpha.graders.validate(grader=GRADER)
    assert process.returncode == 0
    assert token not in process.told()


def test_the_gateway_feeds_the_loop(mill):
    """Spans that were posted are a trajectory after the next `up`; the books are balanced."""
    with mill.running("serve", "gateway", ready="serving gateway on ") as process:
        url = re.search(r"http://[0-9.:]+", process.told())[0]
        document = {"resourceSpans": [{"scopeSpans": [{"spans": a_run()}]}]}
        asked = Request(f"{url}/v1/traces", json.dumps(document).encode(), {"content-type": "application/json"})
        with urlopen(asked, timeout=20) as answer:
            assert (answer.status, answer.read()) == (200, b"{}")
    assert process.returncode == 0
    assert mill.run("up", "--until-idle", "--close-open").returncode == 0
    listed = json.loads(mill.run("trajectories", "list", "--json").stdout)["items"]
    assert [(one["id"], one["status"]) for one in listed] == [(TRACE, "complete")]
    assert mill.run("audit").returncode == 0


def test_the_proxy_feeds_the_loop(mill, chat):
    """A stock client with another base URL: its run is a trajectory after the next `up`, whole and audited; neither
    its key nor the proxy's token is told anywhere.
    """
    token, key = "a-token-of-some-length", "sk-a-key-of-the-caller"
    chat.script(answering(completion("4")))
    env = {"MILLSTREAM_TOKEN": token}
    with mill.running("serve", "proxy", "--upstream", chat.url, ready="serving proxy on ", env=env) as process:
        url = re.search(r"http://[0-9.:]+", process.told())[0]
        own = {"X-Millstream-Token": token, "X-Millstream-Trajectory": "sum-1", "X-Millstream-End": "done"}
        messages = [{"role": "user", "content": "2 + 2?"}]
        with openai.OpenAI(base_url=f"{url}/v1", api_key=key, default_headers=own, max_retries=0) as client:
            answer = client.chat.completions.create(model="m", messages=messages)
            assert answer.choices[0].message.content == "4"
            with pytest.raises(openai.AuthenticationError):
                client.with_options(default_headers={"X-Millstream-Token": "no"}).models.list()
        with urlopen(Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}), timeout=20) as page:
            assert "millstream_proxy_calls_total" in page.read().decode()
    assert process.returncode == 0
    assert [headers["authorization"] for headers in chat.headers] == [f"Bearer {key}"]
    assert mill.run("up", "--until-idle", "--close-open").returncode == 0
    (found,) = mill.json("trajectories", "list")["items"]
    assert (found["id"], found["status"], found["final_answer"]) == ("sum-1", "complete", "4")
    assert mill.run("audit").returncode == 0
    written = [path.read_bytes() for path in mill.folder.rglob("*") if path.is_file()]
    for secret in (token, key):
        assert secret not in process.told()
        assert not any(secret.encode() in data for data in written)


def test_a_bad_upstream_starts_nothing(mill):
    """One line, and exit 2."""
    done = mill.run("serve", "proxy", "--upstream", "api.example.com")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--upstream" in done.stderr


AGENT = """
import millstream

for number in range(20):
    with millstream.record(f"question {number}") as run:
        run.model(text="4")
assert millstream.flush(20)
"""


def test_an_agent_elsewhere_sends_through_the_gateway(mill, tmp_path):
    """The SDK with one variable and a token, in a folder of its own: its runs are in the gateway's log."""
    token = "a-token-of-some-length"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with mill.running("serve", "gateway", ready="serving gateway on ", env={"MILLSTREAM_TOKEN": token}) as process:
        url = re.search(r"http://[0-9.:]+", process.told())[0]
        told = {**os.environ, "MILLSTREAM_CAPTURE__GATEWAY": url, "MILLSTREAM_TOKEN": token}
        done = subprocess.run(
            [sys.executable, "-c", AGENT], cwd=elsewhere, env=told, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert not list(elsewhere.rglob("*.db"))
    assert mill.run("up", "--until-idle").returncode == 0
    listed = json.loads(mill.run("trajectories", "list", "--json").stdout)["items"]
    assert [one["status"] for one in listed] == ["complete"] * 20


def test_an_open_host_without_a_token_is_refused(mill):
    """Nothing listens, and the mend is named."""
    done = mill.run("serve", "graders", "--host", "0.0.0.0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--token-file" in done.stderr
