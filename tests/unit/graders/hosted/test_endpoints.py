"""Graders that ask a URL: only one that the settings allow, and only a finite number is a score."""

import pytest
from services.chat import hang_up, silent

from millstream.adapters.http_client import HttpPoster
from millstream.errors import SettingsError
from millstream.grade import Failed, Scored
from millstream.graders.hosted.endpoints import Endpoints
from millstream.graders.hosted.means import Means
from millstream.graders.hosted.parsing import checked
from millstream.graders.hosted.running import run
from millstream.graders.hosted.samples import sample_of


@pytest.fixture
def graded(chat):
    """Grade by an endpoint of the scripted server."""
    poster = HttpPoster()

    def made(url=None, allowed=None, timeout_s=5.0):
        means = Means(endpoint=Endpoints(poster, allowed or (chat.url,), timeout_s))
        grader = {"type": "endpoint", "name": "e", "url": url or f"{chat.url}/score", "headers": {"X-Key": "secret"}}
        return run(checked(grader), {"gold": 1}, sample_of("it"), means, "run-1").grade

    yield made
    poster.close()


def test_the_score_of_an_endpoint(chat, graded):
    """It is told sample, item and trace id, with the grader's headers."""
    chat.script({"body": '{"score": 0.25}'})
    assert graded() == Scored(score=0.25)
    assert chat.asked[0]["item"] == {"gold": 1}
    assert chat.asked[0]["sample"]["output_text"] == "it"
    assert chat.asked[0]["trace_id"] == "run-1"
    assert chat.headers[0]["X-Key"] == "secret"


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"score": "1"}', '{"score": true}', '{"score": NaN}', "0.5", "null"])
def test_what_is_no_score_is_failed(chat, graded, body):
    """Unparsable, never a number."""
    chat.script({"body": body})
    grade = graded()
    assert isinstance(grade, Failed)
    assert grade.kind == "unparsable"


@pytest.mark.parametrize(("act", "kind"), [(503, "infrastructure"), (404, "infrastructure"), (silent, "timeout")])
def test_an_endpoint_that_is_away_is_failed(chat, graded, act, kind):
    """With the kind, and without its headers in the reason."""
    chat.script(act)
    grade = graded(timeout_s=0.2)
    assert grade.kind == kind
    assert "secret" not in grade.reason


def test_one_more_try(chat, graded):
    """A connection that broke is tried again once."""
    chat.script(hang_up, {"body": '{"score": 1}'})
    assert graded() == Scored(score=1.0)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/v1/score",
        "https://127.0.0.1/v1/score",
        "http://evil.example/v1/score",
        "http://127.0.0.1:{port}/{path}0/score",
        "http://127.0.0.1:{port}/{path}/../admin",
        "http://user@127.0.0.1:{port}/{path}/score",
        "http://127.0.0.1:{port}@evil.example/{path}/score",
    ],
)
def test_other_urls_are_not_asked(chat, graded, url):
    """Another host, port, scheme, user, or a path beside the allowed one."""
    port, _, path = chat.url.rpartition(":")[2].partition("/")
    grade = graded(url.format(port=port, path=path))
    assert isinstance(grade, Failed)
    assert "[hosted] endpoints" in grade.reason
    assert chat.asked == []


def test_what_may_be_asked_must_be_urls():
    """A setting that is none is refused."""
    with pytest.raises(SettingsError, match="endpoints"):
        Endpoints(HttpPoster(), ("example.org",), 1.0)
