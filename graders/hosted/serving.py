"""The hosted service's two calls, as routes: ``graders/validate`` and ``graders/run``.

The stock client needs nothing but another ``base_url``. Without a grade the answer is HTTP 200 with a null
reward and its flags, or (``[hosted] on_failed = "http_error"``) an error: never a silent 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.errors import MillstreamError, MissingExtra, SettingsError, nearest
from millstream.grade import Failed
from millstream.graders.hosted.definitions import Definition
from millstream.graders.hosted.means import NOTHING, Means
from millstream.graders.hosted.parsing import checked, decoded, limits_of
from millstream.graders.hosted.running import Outcome, timed
from millstream.graders.hosted.samples import sample_in
from millstream.serving import Refusal, Request, Response, Route, json_response, refusal
from millstream.settings import HostedSettings

BASE: Final = "/v1/fine_tuning/alpha/graders"
FIELDS: Final = ("grader", "model_sample", "item", "reference_answer")
UNAVAILABLE, UNGRADED = 503, 422
"""What ``http_error`` answers: the client tries the first again, and not the second."""


def routes(settings: HostedSettings, means: Means = NOTHING) -> tuple[Route, ...]:
    """Both calls."""
    served = HostedGraders(settings, means)
    return (Route("POST", f"{BASE}/validate", served.validate), Route("POST", f"{BASE}/run", served.run))


class HostedGraders:
    """Answers both calls. Handlers may run side by side: there is no state."""

    def __init__(self, settings: HostedSettings, means: Means = NOTHING) -> None:
        self._limits = limits_of(settings)
        self._http_error = settings.on_failed == "http_error"
        self._means = means

    def validate(self, request: Request) -> Response:
        """The grader as it came, when every field of it is sound."""
        body = _object(request.body, FIELDS[:1])
        self._definition(body)
        return json_response({"grader": body["grader"]})

    def run(self, request: Request) -> Response:
        """The grade of one sample."""
        body = _object(request.body, FIELDS)
        definition = self._definition(body)
        sample, item = _sample(body), _item(body)
        try:
            outcome, answer = timed(definition, item, sample, self._means)
        except MissingExtra as error:
            raise Refusal(501, str(error), code="missing_extra") from None
        if self._http_error and isinstance(outcome.grade, Failed):
            return _failed(outcome, outcome.grade, answer)
        return json_response(answer)

    def _definition(self, body: Mapping[str, Any]) -> Definition:
        if "grader" not in body:
            raise Refusal(400, "grader is missing", param="grader")
        try:
            return checked(body["grader"], self._limits)
        except SettingsError as error:
            place = str(error).partition(":")[0].split(" ")[0]
            raise Refusal(400, str(error), code="invalid_grader", param=place) from None


def _object(text: bytes, fields: tuple[str, ...]) -> dict[str, Any]:
    try:
        body = decoded(text, "the body")
    except MillstreamError as error:
        raise Refusal(400, str(error), code="invalid_json") from None
    if not isinstance(body, dict):
        raise Refusal(400, f"the body must be a JSON object, not {type(body).__name__}")
    for name in body:
        if name not in fields:
            raise Refusal(400, f"unknown field {name!r}{nearest(name, list(fields))}", param=name)
    return body


def _sample(body: Mapping[str, Any]) -> dict[str, Any]:
    """The sample: a text as the service had it, or a message with the tool calls and the audio that a text lacks."""
    said = body.get("model_sample")
    sample = sample_in(said) if isinstance(said, str | dict) else None
    if sample is None:
        told = "model_sample must be a text (what the model said), a chat message of the assistant, or a sample"
        raise Refusal(400, told, param="model_sample")
    return sample


def _item(body: Mapping[str, Any]) -> dict[str, Any]:
    item = body.get("item")
    if item is not None and not isinstance(item, dict):
        raise Refusal(400, f"item must be a JSON object, not {type(item).__name__}", param="item")
    if "reference_answer" in body:  # what early clients sent instead of an item
        return {"reference_answer": body["reference_answer"], **(item or {})}
    return item or {}


def _failed(outcome: Outcome, grade: Failed, answer: Mapping[str, Any]) -> Response:
    """An error whose code is the flag that was set; the answer that ``null`` would give stands beside it."""
    status = UNAVAILABLE if grade.kind in {"infrastructure", "timeout"} else UNGRADED
    error = refusal(status, grade.reason, code=next(iter(outcome.flags), "other_error"))
    assert isinstance(error.body, bytes)
    return json_response({**decoded(error.body, "error"), "answer": answer}, status)
