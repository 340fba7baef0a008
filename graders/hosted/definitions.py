"""The seven kinds of hosted grader, field by field as people wrote them.

Field names and choices are those of the public client (PyPI ``openai``: types/graders, types/evals); a test
holds them to it. ``pass_threshold`` comes from evals: it is checked and kept, and changes no score.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

Operation: TypeAlias = Literal["eq", "ne", "like", "ilike"]
Metric: TypeAlias = Literal[
    "cosine",
    "fuzzy_match",
    "bleu",
    "gleu",
    "meteor",
    "rouge_1",
    "rouge_2",
    "rouge_3",
    "rouge_4",
    "rouge_5",
    "rouge_l",
]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Role: TypeAlias = Literal["user", "assistant", "system", "developer"]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of the hosted service, in bytes and counts."""

    source_bytes: int = 256_000
    """A ``python`` source must be smaller than this."""
    graders: int = 64
    """The most graders in a ``multi``."""


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A JSON object without room for unknown fields."""


class CacheBreakpoint(Strict, frozen=True, kw_only=True):
    """A mark of prompt caching; kept, and without effect on a grade."""

    mode: Literal["explicit"]
    ttl: Literal["30m", "12h"] | UnsetType = UNSET


class InputText(Strict, frozen=True, kw_only=True, tag_field="type", tag="input_text"):
    """Text to a judge; holds templates."""

    text: str
    prompt_cache_breakpoint: CacheBreakpoint | UnsetType = UNSET


class OutputText(Strict, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """Text as if a model had said it; holds templates."""

    text: str


class InputImage(Strict, frozen=True, kw_only=True, tag_field="type", tag="input_image"):
    """An image by its URL."""

    image_url: str
    detail: Literal["high", "low", "auto"] = "auto"


class Audio(Strict, frozen=True, kw_only=True):
    """Base64 audio."""

    data: str
    format: Literal["mp3", "wav"]


class InputAudio(Strict, frozen=True, kw_only=True, tag_field="type", tag="input_audio"):
    """Audio to a judge."""

    input_audio: Audio


Content: TypeAlias = str | InputText | OutputText | InputImage | InputAudio
Contents: TypeAlias = str | InputText | OutputText | InputImage | InputAudio | tuple[Content, ...]


class Message(Strict, frozen=True, kw_only=True):
    """One message to a judge."""

    role: Role
    content: Contents
    type: Literal["message"] = "message"

    def texts(self) -> tuple[str, ...]:
        """Every text in it that may hold templates."""
        contents = self.content if isinstance(self.content, tuple) else (self.content,)
        return tuple(text for content in contents for text in _texts(content))


def _texts(content: Content) -> tuple[str, ...]:
    match content:
        case str():
            return (content,)
        case InputText() | OutputText():
            return (content.text,)
        case InputImage():
            return (content.image_url,)
        case InputAudio():
            return (content.input_audio.data,)


class SamplingParams(Strict, frozen=True, kw_only=True):
    """How the judge samples."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_completions_tokens: int | None = None
    reasoning_effort: Effort | None = None


class StringCheck(Strict, frozen=True, kw_only=True, tag_field="type", tag="string_check"):
    """Two texts compared: 0 or 1."""

    name: str
    input: str
    reference: str
    operation: Operation


class TextSimilarity(Strict, frozen=True, kw_only=True, tag_field="type", tag="text_similarity"):
    """How alike two texts are: 0 to 1."""

    name: str
    input: str
    reference: str
    evaluation_metric: Metric
    pass_threshold: float | None = None


class ScoreModel(Strict, frozen=True, kw_only=True, tag_field="type", tag="score_model"):
    """A judge that gives a number in ``range``."""

    name: str
    model: str
    input: tuple[Message, ...]
    range: tuple[float, float] = (0.0, 1.0)
    sampling_params: SamplingParams = SamplingParams()
    pass_threshold: float | None = None


class LabelModel(Strict, frozen=True, kw_only=True, tag_field="type", tag="label_model"):
    """A judge that gives one of ``labels``: 1 when it is a passing one, else 0."""

    name: str
    model: str
    input: tuple[Message, ...]
    labels: tuple[str, ...]
    passing_labels: tuple[str, ...]


class Python(Strict, frozen=True, kw_only=True, tag_field="type", tag="python"):
    """Code that arrives as data: ``grade(sample, item)`` returns the score."""

    name: str
    source: str
    image_tag: str = ""
    pass_threshold: float | None = None


class Endpoint(Strict, frozen=True, kw_only=True, tag_field="type", tag="endpoint"):
    """A score from a URL: POST ``{sample, item, trace_id}``, answer ``{score}``. Headers may hold secrets."""

    name: str
    url: str
    headers: dict[str, str] = {}
    pass_threshold: float | None = None

    def __repr__(self) -> str:
        """Without the headers' values."""
        return f"Endpoint(name={self.name!r}, url=…, headers={sorted(self.headers)!r})"


Single: TypeAlias = StringCheck | TextSimilarity | ScoreModel | LabelModel | Python | Endpoint


class Multi(Strict, frozen=True, kw_only=True, tag_field="type", tag="multi"):
    """A formula over the scores of other graders, by their names in ``graders``."""

    name: str
    graders: dict[str, Single]
    calculate_output: str


Definition: TypeAlias = Single | Multi
KINDS: Final[dict[str, Any]] = {
    "string_check": StringCheck,
    "text_similarity": TextSimilarity,
    "score_model": ScoreModel,
    "label_model": LabelModel,
    "python": Python,
    "multi": Multi,
    "endpoint": Endpoint,
}
