"""Random tokens are found, and names, paths, ids and hashes are not."""

from __future__ import annotations

import base64
import random
import string

import pytest

from millstream.capture.detectors.entropy import entropy, is_random, random_tokens

ALPHABET = string.ascii_letters + string.digits


@pytest.mark.parametrize("size", [24, 32, 40, 64, 100])
def test_nearly_all_random_tokens_are_found(size):
    """Of 400 random tokens of each length, base62 and base64, at least 90 of 100."""
    rng = random.Random(size)
    tokens = ["".join(rng.choices(ALPHABET, k=size)) for _ in range(200)]
    tokens += [base64.b64encode(rng.randbytes(size)).decode()[:size].replace("/", "7") for _ in range(200)]
    assert sum(map(is_random, tokens)) >= 0.9 * len(tokens)


@pytest.mark.parametrize(
    "token",
    [
        "getElementsByClassNameAndTagName2",
        "MessageReceivedFromTheOtherAgent01",
        "src/components/MyWidget2/index.Test1",
        "0123456789abcdef0123456789abcdef01234567",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "call_9aBcDeFgHiJk1mN2pQ3rS4tU5",
        "chatcmpl-9aBcDeFgHiJk1mN2pQ3rS4tU5",
        "Dog10K_Boxer_Tasha/canFam6",
        "AAAAAAAAAAAAAAAAAAAAAAAAaaaaaaaaaaaa1111111",
        "THE-REVENUE-OF-THE-YEAR-2019-AND-2018",
        "x" * 24,
        "aB3" * 100,
    ],
)
def test_what_has_an_order_is_no_secret(token):
    """Names of programs, paths, ids of interfaces, hashes, words, and data that is longer than keys are."""
    assert not is_random(token)


def test_places_where_random_letters_are_no_secret():
    """In a path or a URL, and behind the name of a hash."""
    token = "".join(random.Random(1).choices(ALPHABET, k=40))
    assert [one.kind for one in random_tokens(f"use {token} now")] == ["token"]
    assert [one.kind for one in random_tokens(f'"key_material": "{token}"')] == ["token"]
    for text in (f"https://drive.example/d/{token}/view", f"SHA256:{token}", f"https://v.example/watch?v={token}"):
        assert list(random_tokens(text)) == []


def test_entropy_in_bits():
    """Of one letter 0, of 2 equally frequent ones 1, of 16 ones 4."""
    assert entropy("aaaa") == 0
    assert entropy("abab") == 1
    assert entropy("0123456789abcdef") == 4
