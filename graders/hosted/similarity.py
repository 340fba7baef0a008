"""How alike two texts are, in [0, 1], by the metrics that hosted graders name.

fuzzy_match   rapidfuzz ``WRatio`` after lower-casing and dropping what is no letter or digit
bleu          sentence BLEU (Papineni et al. 2002) up to 4-grams, fewer for a shorter text, NIST smoothing
gleu          sentence GLEU (Wu et al. 2016)
meteor        METEOR (Banerjee and Lavie 2005) by exact words and stems; no synonyms, so that no data is fetched
rouge_n, _l   ROUGE F-measure (Lin 2004), lower case, no stemming

BLEU, GLEU and METEOR see NLTK's word tokens. The hosted service does not publish its variants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from millstream.errors import GraderError, MissingExtra

LIBRARIES: Final = ("rapidfuzz", "nltk", "rouge-score")
"""The distributions whose versions decide a similarity."""

MAX_PAIRS: Final = 4_000_000
"""The most pairs of words that the metrics of quadratic time (meteor, rouge_l) compare: about a second."""
_QUADRATIC: Final = ("meteor", "rouge_l")
_WORD = re.compile(r"\w+|[^\w\s]")

Measure: TypeAlias = Callable[[str, str], float]


def similarity(metric: str, text: str, reference: str) -> float:
    """How alike ``text`` is to ``reference``. Raises `MissingExtra` without the libraries, `GraderError` for
    ``cosine``, which the service had for evals alone, and for texts too long for a metric.
    """
    if metric in _QUADRATIC:
        pairs = len(_WORD.findall(text)) * len(_WORD.findall(reference))
        if pairs > MAX_PAIRS:
            raise GraderError(
                f"{metric} would compare {pairs:,} pairs of words, over {MAX_PAIRS:,}; use rouge_1 or bleu"
            )
    return min(1.0, max(0.0, float(measure(metric)(text, reference))))


@lru_cache(maxsize=16)
def measure(metric: str) -> Measure:
    """The function of a metric's name."""
    if metric == "cosine":
        raise GraderError("evaluation_metric 'cosine' needs embeddings and exists in evals only; choose another metric")
    try:
        return _rouge(metric) if metric.startswith("rouge_") else _MEASURES[metric]()
    except ImportError:
        raise MissingExtra("graders", f"text_similarity by {metric!r}") from None


def _fuzzy() -> Measure:
    from rapidfuzz import fuzz, utils

    return lambda text, reference: fuzz.WRatio(text, reference, processor=utils.default_process) / 100


def _bleu() -> Measure:
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    words, smooth = _words(), SmoothingFunction().method3

    def bleu(text: str, reference: str) -> float:
        given, gold = words(text), words(reference)
        if not given or not gold:
            return float(given == gold)
        return float(sentence_bleu([gold], given, smoothing_function=smooth, auto_reweigh=True))

    return bleu


def _gleu() -> Measure:
    from nltk.translate.gleu_score import sentence_gleu

    words = _words()

    def gleu(text: str, reference: str) -> float:
        given, gold = words(text), words(reference)
        return float(sentence_gleu([gold], given)) if given and gold else float(given == gold)

    return gleu


class _NoSynonyms:
    """A WordNet without entries."""

    def synsets(self, _: str) -> Sequence[Any]:
        """None."""
        return ()


def _meteor() -> Measure:
    from nltk.translate.meteor_score import meteor_score

    words = _words()

    def meteor(text: str, reference: str) -> float:
        given, gold = words(text), words(reference)
        if not given or not gold:
            return float(given == gold)
        return float(meteor_score([gold], given, wordnet=_NoSynonyms()))

    return meteor


def _rouge(metric: str) -> Measure:
    from rouge_score.rouge_scorer import RougeScorer

    kind = "rouge" + metric.removeprefix("rouge_").upper()
    scorer = RougeScorer([kind])
    return lambda text, reference: float(scorer.score(reference, text)[kind].fmeasure)


def _words() -> Callable[[str], list[str]]:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    tokenize = NLTKWordTokenizer().tokenize
    return lambda text: list(tokenize(text))


_MEASURES: Final = {"fuzzy_match": _fuzzy, "bleu": _bleu, "gleu": _gleu, "meteor": _meteor}
