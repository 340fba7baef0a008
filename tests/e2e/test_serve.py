"""`millstream serve` as people run it: stock clients against the process, and a clean end."""

import json
import re
from urllib.request import Request, urlopen

import openai
import pytest
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


def test_an_open_host_without_a_token_is_refused(mill):
    """Nothing listens, and the mend is named."""
    done = mill.run("serve", "graders", "--host", "0.0.0.0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--token-file" in done.stderr
