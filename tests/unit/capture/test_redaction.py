"""What redaction leaves: a mark or a pseudonym in place of a secret, and everything else as it was."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from millstream.capture.redaction import Redactor
from millstream.errors import SettingsError
from millstream.settings import Capture

ALL = ("secrets", "entropy", "email", "phone", "card", "iban", "ip")
KEY = "k" * 32


def redactor(**rules):
    return Redactor(Capture(**rules))


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("MILLSTREAM_REDACT_KEY", KEY)


@pytest.mark.parametrize(
    ("text", "clean", "kind"),
    [
        ("password=hunter2 next", "password=[REDACTED:password] next", "password"),
        ("authorization: Bearer abcdefgh12345", "authorization: Bearer [REDACTED:bearer]", "bearer"),
        ("postgres://ann:pw@db/x", "postgres://ann:[REDACTED:url_password]@db/x", "url_password"),
        ("use sk-proj-abcdefGHIJ0123456789.", "use [REDACTED:openai_key].", "openai_key"),
        ("mail ann@example.com", "mail [REDACTED:email]", "email"),
        ("card 4111 1111 1111 1111", "card [REDACTED:card]", "card"),
        ("to DE89370400440532013000", "to [REDACTED:iban]", "iban"),
        ("call +1 415 555 0132", "call [REDACTED:phone]", "phone"),
        ("from 172.18.0.2", "from [REDACTED:ip]", "ip"),
        ("mysql --password hunter2hunter -e x", "mysql --password [REDACTED:password] -e x", "password"),
        ("run --api-key 'a b9 c' now", "run --api-key '[REDACTED:password]' now", "password"),
        ("<db:password>hunter2</db:password>", "<db:password>[REDACTED:password]</db:password>", "password"),
    ],
)
def test_a_find_goes_and_its_surroundings_stay(text, clean, kind):
    """It is counted by its kind; doing it again changes and counts nothing."""
    made = redactor(redact=ALL)
    assert made.suspects(text.encode())
    assert made.text(text) == clean
    assert made.counts == {kind: 1}
    assert made.text(clean) is clean
    assert made.counts == {kind: 1}


def test_secrets_are_on_and_personal_data_is_not_by_default():
    """Each kind is taken out where it is set, and only there."""
    texts = {
        "email": "ann@example.com",
        "phone": "+1 415 555 0132",
        "card": "4111 1111 1111 1111",
        "iban": "DE89370400440532013000",
        "ip": "from 172.18.0.2",
    }
    for kind, text in texts.items():
        assert redactor().text(text) is text
        assert redactor(redact=(kind,)).text(text) != text
        assert redactor(redact=tuple(k for k in ALL if k != kind)).text(text) == text
    assert redactor(redact=()).text("password=hunter2") == "password=hunter2"
    assert redactor().text("password=hunter2") != "password=hunter2"


@pytest.mark.usefixtures("key")
def test_with_a_key_the_same_value_is_the_same_pseudonym():
    """However it is written, in whatever text; another value or kind is another one. The key shows nowhere."""
    made = redactor(redact=ALL)
    first, again = made.text("mail Ann@Example.com now"), made.text("ann@example.com")
    assert first == f"mail {again} now"
    assert again.startswith("<email:")
    assert len(again) == len("<email:0123456789abcdef>")
    assert made.text("4111-1111-1111-1111") == made.text("4111 1111 1111 1111")
    assert made.text("bob@example.com") != again
    assert made.text(again) is again
    assert made.counts == {"email": 3, "card": 2}
    assert KEY not in repr(vars(made)) + repr(vars(made._pseudonyms))


def test_pseudonyms_are_the_same_in_every_process_with_the_key_and_differ_with_another():
    """The key is all that they rest on."""
    code = (
        "from millstream.capture.redaction import Redactor; from millstream.settings import Capture;"
        "print(Redactor(Capture(redact=('email',))).text('ann@example.com'))"
    )

    def told(value, seed):
        environ = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed, "MILLSTREAM_REDACT_KEY": value}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert told(KEY, "1") == told(KEY, "2")
    assert told(KEY, "1") != told("j" * 32, "1")
    assert told("", "1") == "[REDACTED:email]"


def test_a_key_that_is_no_key_is_refused(monkeypatch):
    """Without saying what it is."""
    monkeypatch.setenv("MILLSTREAM_REDACT_KEY", "short-key")
    with pytest.raises(SettingsError, match="MILLSTREAM_REDACT_KEY holds fewer than 16 letters") as refused:
        redactor()
    assert "short-key" not in str(refused.value)
    assert redactor(redact_key_env="").text("password=hunter2") == "password=[REDACTED:password]"


def test_what_the_user_denies_always_goes_and_what_is_allowed_stays():
    """Expressions of the user: denied ones are counted apart; an allowed find stays, whatever finds it."""
    made = redactor(
        redact=("email", "secrets"), redact_deny=(r"ACME-\d{4}",), redact_allow=(r".*@example\.com", "hunter2")
    )
    assert made.suspects(b"anything")
    assert made.text("card ACME-1234.") == "card [REDACTED:denied_1]."
    assert made.text("ann@example.com, bob@example.org") == "ann@example.com, [REDACTED:email]"
    assert made.text("password=hunter2") == "password=hunter2"
    assert made.tree({"password": "hunter2", "passcode": "hunter3"}) == {
        "password": "hunter2",
        "passcode": "[REDACTED:named]",
    }


@pytest.mark.parametrize("key", ["redact_deny", "redact_allow"])
def test_a_bad_expression_is_a_settings_error(key):
    """The message names the key, the expression and the mend."""
    with pytest.raises(SettingsError, match=rf"\[capture\] {key}: '\(' is no regular expression"):
        redactor(**{key: ("(",)})


def test_members_of_objects_go_by_their_names():
    """A member called like a secret loses its texts whole; pairs of name and value, and lists, count as members."""
    made = redactor(redact_fields=("member no",))
    assert made.tree({"db_password": "plain words", "question": "plain words"}) == {
        "db_password": "[REDACTED:named]",
        "question": "plain words",
    }
    assert made.tree({"gen_ai.api_key": "abc", "MemberNo": "A1-2", "password": 3}) == {
        "gen_ai.api_key": "[REDACTED:named]",
        "MemberNo": "[REDACTED:named]",
        "password": 3,
    }
    assert made.tree({"api_keys": [], "password": ["abc", "def"]})["password"] == ["[REDACTED:named]"] * 2
    assert made.tree([{"name": "Authorization", "value": "abc"}, {"key": "x-api-key", "value": "abc"}]) == [
        {"name": "Authorization", "value": "[REDACTED:named]"},
        {"key": "x-api-key", "value": "[REDACTED:named]"},
    ]


def test_a_schema_that_declares_a_secret_stays():
    """What a tool takes is told by its name, and no secret."""
    schema = {
        "name": "login",
        "parameters": {
            "type": "object",
            "properties": {"password": {"type": "string", "description": "The user's password"}},
            "required": ["password"],
        },
    }
    assert redactor(redact=ALL).tree(schema) == schema


def test_ids_keep_linking():
    """An id that looks random or like a card is none; a real key in one goes all the same."""
    made = redactor(redact=ALL)
    ids = {"tool_call_id": "4111111111111111", "id": "C2br7Phv2Bb3iNMC7kLh7iFZ2g20tUojktZC93nA", "traceId": "1" * 32}
    assert made.tree(ids) == ids
    assert made.tree({"id": "sk-proj-abcdefGHIJ0123456789"}) == {"id": "[REDACTED:openai_key]"}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            '{"password" : "p w",  "n":1.10, "big":12345678901234567890123}',
            '{"password" : "[REDACTED:named]",  "n":1.10, "big":12345678901234567890123}',
        ),
        ('{"a": "mail ann@example.com \\"now\\""}', '{"a": "mail [REDACTED:email] \\"now\\""}'),
        ('[1.0, 4111111111111111, "4111111111111111"]', '[1.0, 4111111111111111, "[REDACTED:card]"]'),
        (
            '{"x": "{\\"password\\": \\"p w\\", \\"n\\": 1.50}"}',
            '{"x": "{\\"password\\": \\"[REDACTED:named]\\", \\"n\\": 1.50}"}',
        ),
        ('{"\\u0070assword": "p w"}', '{"\\u0070assword": "[REDACTED:named]"}'),
        ('{"password": ["a b c"], "x": ["a b c"]}', '{"password": ["[REDACTED:named]"], "x": ["a b c"]}'),
        ('[{"password": "abc"}, "abc"]', '[{"password": "[REDACTED:named]"}, "abc"]'),
        ('{"password": "abc"}\n{"n": 1e3}\n', '{"password": "[REDACTED:named]"}\n{"n": 1e3}\n'),
        ('The card: {"card": 4111111111111111, "n": 2}', 'The card: {"card": "[REDACTED:card]", "n": 2}'),
        ('{\\"card\\": 4111111111111111', '{\\"card\\": \\"[REDACTED:card]\\"'),
    ],
)
def test_json_in_a_text_stays_json_with_its_numbers_as_they_were_written(text, clean):
    """Inside a text that is JSON, JSON of JSON or JSON lines, texts change and not one other byte."""
    made = redactor(redact=ALL)
    assert made.suspects(json.dumps(text).encode())
    assert made.text(text) == clean
    assert made.text(clean) == clean


@pytest.mark.parametrize(
    "text", ["--password is asked for", "--password-file /run/x", "<password></password>", "<p>no secret</p>", "a--b c"]
)
def test_options_and_elements_that_hold_no_secret_stay(text):
    """A sentence about an option, the name of a file, an empty element."""
    assert redactor(redact=("secrets",)).text(text) is text


def test_members_whose_names_are_secrets_are_all_kept(cpu_s):
    """Names that one mark stands for are told apart; no member is lost, in linear time, and twice is once."""
    made = redactor()
    value = {f"sk-{number:030d}": number for number in range(5000)}
    assert cpu_s(lambda: made.tree(value), enough=2) < 2
    clean = made.tree(value)
    assert list(clean.values()) == list(range(5000))
    assert "000000" not in "".join(clean)
    assert made.tree(clean) == clean
