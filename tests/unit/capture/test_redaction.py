"""Secrets are found by their shape, and what is no secret stays."""

from __future__ import annotations

import pytest

from millstream.capture.redaction import Redactor
from millstream.errors import SettingsError

SECRETS = {
    "openai_key": "sk-proj-abcdefGHIJ0123456789",
    "aws_key": "AKIAIOSFODNN7EXAMPLE",
    "github_token": "ghp_" + "a1B2" * 9,
    "slack_token": "xoxb-123456789012-abcdef",
    "google_key": "AIza" + "Sy0123456789abcdefghijklmnopqrstuvw",
    "huggingface_token": "hf_" + "abcdEFGH" * 4,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "private_key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_of_a_known_shape_goes_and_its_surroundings_stay(name):
    """Only the secret itself is replaced, by its pattern's name, and it is counted."""
    redactor = Redactor()
    text = f"before {SECRETS[name]} after"
    assert redactor.suspects(text.encode())
    assert redactor.text(text) == f"before [REDACTED:{name}] after"
    assert redactor.counts == {name: 1}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("password=hunter2 next", "password=[REDACTED:password] next"),
        ("DB_PASSWORD='a b c'", "DB_PASSWORD='[REDACTED:password]'"),
        ('{"api_key": "abc def", "n": 1}', '{"api_key": "[REDACTED:password]", "n": 1}'),
        ('{\\"password\\": \\"hunter2\\"}', '{\\"password\\": \\"[REDACTED:password]\\"}'),
        ("authorization: Bearer abcdefgh12345", "authorization: Bearer [REDACTED:bearer]"),
        ("postgres://ann:pw@db/x", "postgres://ann:[REDACTED:url_password]@db/x"),
    ],
)
def test_a_value_with_a_telling_name_goes_and_the_name_stays(text, clean):
    """Passwords and keys in assignments, JSON, headers and URLs; redacting twice changes nothing more."""
    redactor = Redactor()
    assert redactor.suspects(text.encode())
    assert redactor.text(text) == clean
    assert redactor.text(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "the secret: keep costs low",
        "a risk-adjusted, task-oriented-and-well-described approach",
        "tokens: 1200, token_ids [1, 2]",
        "see https://example.com/a?b=c and mail ann@example.com",
        "the Asian market, 4,300 (in thousands)",
    ],
)
def test_what_is_no_secret_stays(text):
    """Ordinary texts come back as the same object."""
    redactor = Redactor()
    assert redactor.text(text) is text
    assert redactor.counts == {}


def test_what_users_name_is_redacted_too():
    """An expression of [capture] redact runs on every text."""
    redactor = Redactor([r"ACME-\d{4}"])
    assert redactor.suspects(b"anything")
    assert redactor.text("card ACME-1234.") == "card [REDACTED:custom_1]."


def test_a_bad_expression_is_a_settings_error():
    """The message names the expression and the mend."""
    with pytest.raises(SettingsError, match=r"\[capture\] redact: '\(' is no regular expression"):
        Redactor(["("])


def test_members_of_objects_go_by_their_names():
    """A member called like a secret loses its value whole, whatever the value looks like."""
    redactor = Redactor()
    assert redactor.named("db_password", "plain words here") == "[REDACTED:named]"
    assert redactor.named("question", "plain words here") == "plain words here"
    assert redactor.named("password", 3) == 3
