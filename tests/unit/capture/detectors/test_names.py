"""A value is a secret because of the name before it, in texts of any notation; words of sentences are none."""

from __future__ import annotations

import pytest

from millstream.capture.detectors import names


def found(text, fields=()):
    return [text[one.start : one.end] for one in names.assigned(fields)(text)]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=hunter2 next", "hunter2"),
        ("password=hunter next", "hunter"),
        ("DB_PASSWORD='a b c'", "a b c"),
        ('{"api_key": "abc def", "n": 1}', "abc def"),
        ('{\\"password\\": \\"hunter2\\"}', "hunter2"),
        ("x-api-key: 12ab34cd", "12ab34cd"),
        ("client_secret => ", None),
        ('client-secret := "q w e"', "q w e"),
        ("?access_token=abc123&next=1", "abc123"),
        ("AZURE: AccountKey=abc/def+1==;EndpointSuffix", "abc/def+1"),
        ("secret=s3cr", "s3cr"),
        ("the secret: keep costs low", None),
        ("New password: Retype new password: Password change aborted.", None),
        ("passwd = conn_params.get('password', '')", None),
        ("self.password = password", None),
        ("if passwd:' to 'del os.environ'", None),
        ("api_key = 'YOUR_API_KEY'", None),
        ("api_key = ${API_KEY}, password: ********", None),
        ("tokens: 1200, token_ids [1, 2], max_tokens=4096", None),
        ("key: revenue, primary_key=1234, monkey=bananas", None),
        ("compass=north passenger: 12345", None),
    ],
)
def test_assigned_values(text, secret):
    """Assignments, JSON, headers, queries and connection strings; programs, prompts and placeholders stay."""
    assert found(text) == ([secret] if secret else [])


def test_names_of_the_user():
    """However they are written."""
    assert found("Member-No: A12345", ["member_no"]) == ["A12345"]
    assert names.secret_name(["member no"])("MEMBER_NO")
    assert not names.secret_name()("MEMBER_NO")
    assert found("ПАРОЛЬ: abc1", ["пароль"]) == ["abc1"]
    assert names.may_name(["пароль", "member no"])("Пароль".encode())
    assert names.may_name(["пароль", "member no"])(b"Member-No")
    assert not names.may_name(["пароль", "member no"])(b"a member, no more")


@pytest.mark.parametrize(
    "name", ["password", "db_password", "Authorization", "x-api-key", "apiKey", "set-cookie", "cvv"]
)
def test_names_of_members(name):
    """In every case and notation."""
    assert names.secret_name()(name)


@pytest.mark.parametrize("name", ["question", "token", "tokens", "max_tokens", "key", "secretary", "passwords_changed"])
def test_names_that_are_none(name):
    """A token is what models count."""
    assert not names.secret_name()(name)


@pytest.mark.parametrize(
    "name", ["id", "tool_call_id", "gen_ai.response.id", "spanId", "model", "lineage", "input_hash"]
)
def test_members_that_only_name_something(name):
    """Ids, hashes and models link events to each other."""
    assert names.is_reference(name)


@pytest.mark.parametrize("name", ["text", "paid", "email", "group_name", "content", "valid", "void"])
def test_members_that_tell_something(name):
    """Whatever their names end in."""
    assert not names.is_reference(name)
