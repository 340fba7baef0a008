"""The stock client's `python` graders through `serve graders`, in the real sandbox, several at once."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from services.fixtures import need

from millstream.bootstrap.runtime import Runtime
from millstream.bootstrap.serving import door_of, grader_routes, server
from millstream.loading import load

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("sandbox")]

SOURCE = "def grade(sample, item):\n    return item['n'] / 100 if item['n'] else 1 / 0\n"


def test_code_of_many_callers_is_not_mixed_up(tmp_path):
    """Twenty callers, eight at a time: each its own number, and the one that divides by zero its flag and no reward."""
    need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")
    file = tmp_path / "millstream.toml"
    file.write_text("")
    loaded = load(file, environ={})
    with (
        Runtime(loaded) as runtime,
        server(grader_routes(runtime), door_of(loaded, "127.0.0.1", 0, None)) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        grader = {"type": "python", "name": "p", "source": SOURCE}
        run = client.fine_tuning.alpha.graders.run
        found = list(pool.map(lambda n: run(grader=grader, model_sample="x", item={"n": n}), range(20)))
    assert [one.reward for one in found] == [None, *(n / 100 for n in range(1, 20))]
    assert found[0].metadata.errors.python_grader_runtime_error is True
    assert "ZeroDivisionError" in found[0].metadata.errors.python_grader_runtime_error_details
