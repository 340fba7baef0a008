"""Keys are found by the forms of their issuers, and by nothing that only looks a little like one."""

from __future__ import annotations

import pytest

from millstream.capture.detectors import keys

LETTERS = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA" * 10
HEX = "0123456789abcdef" * 8
CAPITALS = "A1B2C3D4E5F6G7H8J9" * 5

SAMPLES = {
    "anthropic_key": "sk-ant-api03-" + LETTERS[:40],
    "openrouter_key": "sk-or-v1-" + HEX[:64],
    "langfuse_key": "sk-lf-5855d85e-3943-497e-bd10-f50ad414bcba",
    "openai_key": "sk-proj-" + LETTERS[:40],
    "elevenlabs_key": "sk_" + HEX[:48],
    "stripe_key": "sk_" + "live_" + LETTERS[:24],
    "aws_key": "AKIA" + CAPITALS[:16],
    "github_token": "ghp_" + LETTERS[:36],
    "gitlab_token": "glpat-" + LETTERS[:20],
    "slack_token": "xoxb-123456789012-" + LETTERS[:24],
    "google_key": "AIza" + LETTERS[:35],
    "huggingface_token": "hf_" + LETTERS[:34],
    "npm_token": "npm_" + LETTERS[:36],
    "pypi_token": "pypi-AgEIcHlwaS5vcmc" + LETTERS[:60],
    "sendgrid_key": "SG." + LETTERS[:22] + "." + LETTERS[:43],
    "twilio_key": "SK" + HEX[:32],
    "digitalocean_token": "dop_v1_" + HEX[:64],
    "shopify_token": "shpat_" + HEX[:32],
    "square_token": "sq0atp-" + LETTERS[:22],
    "databricks_token": "dapi" + HEX[:32],
    "telegram_token": "123456789:AA" + LETTERS[:33],
    "grafana_token": "glsa_" + LETTERS[:32] + "_" + HEX[:8],
    "newrelic_key": "NRAK-" + CAPITALS[:27],
    "sentry_token": "sntrys_" + LETTERS[:60],
    "vault_token": "hvs." + LETTERS[:24],
    "doppler_token": "dp.pt." + LETTERS[:43],
    "postman_key": "PMAK-" + HEX[:24] + "-" + HEX[:34],
    "linear_key": "lin_api_" + LETTERS[:40],
    "notion_token": "ntn_" + LETTERS[:46],
    "airtable_token": "pat" + LETTERS[:14] + "." + HEX[:64],
    "figma_token": "figd_" + LETTERS[:40],
    "supabase_key": "sbp_" + HEX[:40],
    "groq_key": "gsk_" + LETTERS[:52],
    "xai_key": "xai-" + LETTERS[:80],
    "perplexity_key": "pplx-" + LETTERS[:48],
    "nvidia_key": "nvapi-" + LETTERS[:64],
    "replicate_token": "r8_" + LETTERS[:37],
    "pinecone_key": "pcsk_" + LETTERS[:60],
    "langsmith_key": "lsv2_pt_" + HEX[:32] + "_" + HEX[:10],
    "tavily_key": "tvly-" + LETTERS[:32],
    "e2b_key": "e2b_" + HEX[:40],
    "age_key": "AGE-SECRET-KEY-1" + CAPITALS[:58],
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
}


def found(detector, text):
    return [(one.kind, text[one.start : one.end]) for one in detector(text)]


def test_every_form_has_a_sample():
    """A form that is added is tested."""
    assert set(SAMPLES) == {kind for kind, _ in keys.FORMS}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("around", ["{}", "key={} next", "use '{}', please", "https://h/?k={}&x=1", "\n{}\n", "a_{}."])
def test_a_key_is_found_whole_wherever_it_stands(kind, around):
    """Only the key itself, under its own name; the prefilter sees it, too."""
    from millstream.capture.redaction import Redactor

    key = SAMPLES[kind]
    if around == "a_{}." and kind in ("telegram_token", "doppler_token"):
        around = "a {} ."
    text = around.format(key)
    assert (kind, key) in found(keys.formed, text)
    assert Redactor().suspects(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "a risk-adjusted, task-oriented-and-well-described approach",
        "sk-learn and desk-top, disk-usage-report-of-the-year",
        "SGML.documentation-of-the-format.appendix-and-annexes",
        "the AKIA airport, ASIAN markets",
        "npm_config_registry_and_other_settings_of_the_tool",
        "patience.0123456789abcdef",
        "call_9aBcDeFgHiJkLmNoPqRsTuVw and chatcmpl-9aBcDeFgHiJkLmNoPqRsTuVwXyZ01",
    ],
)
def test_words_that_begin_like_a_key_stay(text):
    """A prefix inside a word, or without the letters that a key has, is none."""
    assert found(keys.formed, text) == []


@pytest.mark.parametrize("body", ["MIIEow+/AB\n" * 20, "MIIE\\nowIB\\n", "Proc-Type: 4,ENCRYPTED\n\nMIIE\n", ""])
@pytest.mark.parametrize("name", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_goes_with_its_frame_and_what_follows_stays(name, body):
    """Whole ones, those of one line with escapes, and those that were cut off in the middle."""
    block = f"-----BEGIN {name}-----\n{body}-----END {name}-----"
    assert found(keys.blocks, f"see {block}; done") == [("private_key", block)]
    cut = f"-----BEGIN {name}-----\n{body}"
    assert found(keys.blocks, f"see {cut}") == [("private_key", cut)]
    assert found(keys.blocks, "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----") == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdefgh12345", "abcdefgh12345"),
        ('"authorization": "Basic dXNlcjpwYXNzd29yZA=="', "dXNlcjpwYXNzd29yZA=="),
        ("the bearer understands instruments", None),
        ("basic understanding", None),
    ],
)
def test_credentials_of_headers(text, secret):
    """What stands behind the scheme goes; a word is no credential."""
    assert [value for _, value in found(keys.bearers, text)] == ([secret] if secret else [])


def test_secrets_in_urls():
    """The password of a URL and the path of a webhook; an address in a URL's query is none."""
    assert found(keys.in_urls, "postgres://ann:pw@db/x") == [("url_password", "pw")]
    hook = "T00000000/B00000000/" + LETTERS[:24]
    assert found(keys.in_urls, f"https://hooks.slack.com/services/{hook} ") == [("webhook", hook)]
    assert found(keys.in_urls, "see https://example.com/a?b=c and mail ann@example.com") == []
