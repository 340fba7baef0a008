"""Keys and tokens whose form their issuers fixed: a prefix, then letters and digits.

The forms are those that the issuers document for scanners; a form that can't be told from a word is not here.
Each begins with its prefix and is bounded, so that a search stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from millstream.capture.detectors.base import Found
from millstream.capture.detectors.runs import in_text

_ANY, _MORE = "[A-Za-z0-9]", "[A-Za-z0-9_-]"
_END = "(?![A-Za-z0-9])"

FORMS: Final[tuple[tuple[str, str], ...]] = (
    ("anthropic_key", rf"sk-ant-{_MORE}{{16,300}}"),
    ("openrouter_key", rf"sk-or-{_MORE}{{16,300}}"),
    ("langfuse_key", rf"sk-lf-{_MORE}{{16,300}}"),
    ("openai_key", rf"sk-{_MORE}{{16,300}}"),
    ("elevenlabs_key", rf"sk_[0-9a-f]{{40,80}}{_END}"),
    ("stripe_key", rf"(?:[sr]k_(?:live|test)_|whsec_){_ANY}{{16,250}}"),
    ("aws_key", rf"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{{16}}{_END}"),
    ("github_token", rf"gh[pousr]_{_ANY}{{20,255}}|github_pat_[A-Za-z0-9_]{{20,255}}"),
    ("gitlab_token", rf"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-{_MORE}{{20,300}}"),
    ("slack_token", rf"xox[abeoprs]-{_MORE}{{10,250}}|xapp-\d-{_MORE}{{10,250}}"),
    ("google_key", rf"AIza{_MORE}{{30,60}}|GOCSPX-{_MORE}{{20,60}}|ya29\.{_MORE}{{20,300}}"),
    ("huggingface_token", rf"(?:hf|api_org)_{_ANY}{{20,100}}"),
    ("npm_token", rf"npm_{_ANY}{{36}}{_END}"),
    ("pypi_token", rf"pypi-AgE{_MORE}{{40,400}}"),
    ("sendgrid_key", rf"SG\.{_MORE}{{16,32}}\.{_MORE}{{16,64}}"),
    ("twilio_key", rf"SK[0-9a-f]{{32}}{_END}"),
    ("digitalocean_token", rf"do[oprt]_v1_[0-9a-f]{{64}}{_END}"),
    ("shopify_token", rf"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{{32}}{_END}"),
    ("square_token", rf"sq0(?:atp|csp|idp)-{_MORE}{{22,60}}"),
    ("databricks_token", rf"dapi[0-9a-f]{{32}}(?:-\d)?{_END}"),
    ("telegram_token", rf"\d{{8,10}}:AA{_MORE}{{33}}{_END}"),
    ("grafana_token", r"gl(?:sa|c)_[A-Za-z0-9_+/=]{32,200}"),
    ("newrelic_key", rf"NR(?:AK|AL|RA|II|IQ|MA)-{_MORE}{{20,60}}"),
    ("sentry_token", r"sntry[su]_[A-Za-z0-9_+/=]{40,400}"),
    ("vault_token", rf"hv[sbr]\.{_MORE}{{20,300}}"),
    ("doppler_token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{20,120}"),
    ("postman_key", rf"PMAK-{_MORE}{{40,80}}"),
    ("linear_key", rf"lin_(?:api|oauth)_{_ANY}{{32,80}}"),
    ("notion_token", rf"ntn_{_ANY}{{40,60}}|secret_{_ANY}{{43}}{_END}"),
    ("airtable_token", rf"pat{_ANY}{{14}}\.[0-9a-f]{{64}}{_END}"),
    ("figma_token", rf"fig[dou]_{_MORE}{{30,80}}"),
    ("supabase_key", rf"sb[ps]_{_MORE}{{30,100}}|sb_secret_{_MORE}{{20,100}}"),
    ("groq_key", rf"gsk_{_ANY}{{30,80}}"),
    ("xai_key", rf"xai-{_ANY}{{40,120}}"),
    ("perplexity_key", rf"pplx-{_ANY}{{30,80}}"),
    ("nvidia_key", rf"nvapi-{_MORE}{{40,120}}"),
    ("replicate_token", rf"r8_{_ANY}{{30,60}}"),
    ("pinecone_key", r"pcsk_[A-Za-z0-9_]{40,120}"),
    ("langsmith_key", rf"lsv2_(?:pt|sk)_[0-9a-f]{{32}}_[0-9a-f]{{10}}{_END}|ls__[0-9a-f]{{32}}{_END}"),
    ("tavily_key", rf"tvly-{_MORE}{{20,80}}"),
    ("e2b_key", rf"e2b_[0-9a-f]{{40}}{_END}"),
    ("age_key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    ("jwt", rf"eyJ{_MORE}{{8,8000}}\.eyJ{_MORE}{{8,8000}}\.{_MORE}{{8,2000}}"),
)
"""(kind, expression); of two that match at one place the first one names it."""

_FORM = re.compile("|".join(f"(?P<f{n}>{form})" for n, (_, form) in enumerate(FORMS)))
_BEGINNING = re.compile(r"(?<![A-Za-z0-9])[a-zA-Z0-9]")
_AHEAD: Final = 12
"""How far before a run a form may begin (``SG.``, ``dp.pt.``, the number of a Telegram bot)."""
_PREFIXES: Final = re.compile(
    rb"(?<![A-Za-z0-9])(?:sk[-_]|rk_|whsec_|AKIA|ASIA|ABIA|ACCA|gh[pousr]_|github_pat_|gl[a-z]{2,5}[-_]|xox|xapp-"
    rb"|AIza|GOCSPX|ya29|hf_|api_org_|npm_|pypi-|SG\.|SK[0-9a-f]|do[oprt]_v1|shp|sq0|dapi|\d{8,10}:AA|NR[A-Z]{2}-|sntry"
    rb"|hv[sbr]\.|dp\.|PMAK|lin_|ntn_|secret_|pat|fig[dou]_|sb[ps]?_|gsk_|xai-|pplx-|nvapi-|r8_|pcsk_|ls(?:v2)?_|tvly-"
    rb"|e2b_|AGE-|eyJ)"
)
"""The beginning of every form, in bytes: what holds none of them holds no key."""

_BEGIN = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_FINISH = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,.()-]{0,20000}")
_BEARER = re.compile(
    r"\b(?:bearer|authorization[\"'\\]{0,3}\s?[:=]\s?[\"'\\]{0,3}(?:basic|token|digest))\s{1,4}(?P<value>[A-Za-z0-9._~+/=-]{12,4000})",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^\s:/@\"'\\<>]{1,100}:(?P<value>[^\s:/@\"'\\<>]{1,200})(?=@)")
_HOOK = re.compile(
    r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<value>[A-Za-z0-9/_-]{20,120})"
    r"|discord(?:app)?\.com/api/webhooks/(?P<value2>\d{10,24}/[A-Za-z0-9_-]{40,100})"
)


_JOINTS: Final = (b".", b":")
"""What may stand in the middle of a form, between its beginning and its run."""


def formed(text: str) -> Iterator[Found]:
    """Keys of a known form: at each beginning of a word in or just before a long run."""
    end = 0
    for start, stop in in_text(text):
        for word in _BEGINNING.finditer(text, max(end, start - _AHEAD), stop):
            found = _FORM.match(text, word.start()) if word.start() >= end else None
            if found:
                end = found.end()
                yield Found(found.start(), end, FORMS[int((found.lastgroup or "f0")[1:])][0])


def may_have_form(data: bytes, start: int, stop: int) -> bool:
    """Whether a form may begin in or just before a run of an encoded event."""
    run = data[start:stop]
    if b"-" in run or b"_" in run or b"/" in run or b"+" in run or data[start - 1 : start] in _JOINTS:
        return _PREFIXES.search(data, max(0, start - _AHEAD), stop) is not None
    return _PREFIXES.match(data, start, stop) is not None


def blocks(text: str) -> Iterator[Found]:
    """Private keys in PEM, also one that is cut off."""
    found = _BEGIN.search(text)
    while found:
        body = _BODY.match(text, found.end())
        most = body.end() if body else found.end()
        finish = _FINISH.search(text, found.end(), most)
        end = finish.end() if finish else most
        yield Found(found.start(), end, "private_key")
        found = _BEGIN.search(text, end)


def bearers(text: str) -> Iterator[Found]:
    """The credentials of an ``Authorization`` header; a word is none (“bearer instruments”)."""
    low = text.lower()
    if "bearer" in low or "authorization" in low:
        for found in _BEARER.finditer(text):
            if not found["value"].isalpha():
                yield Found(*found.span("value"), "bearer")


def in_urls(text: str) -> Iterator[Found]:
    """Passwords in URLs, and the secret part of webhooks' URLs."""
    if "://" in text:
        for found in _IN_URL.finditer(text):
            yield Found(*found.span("value"), "url_password")
        for found in _HOOK.finditer(text):
            yield Found(*found.span("value" if found["value"] else "value2"), "webhook")
