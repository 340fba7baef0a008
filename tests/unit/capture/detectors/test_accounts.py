"""Cards and IBANs by check digit, form and neighbours; numbers of tables are none."""

from __future__ import annotations

import random

import pytest

from millstream.capture.detectors.accounts import cards, ibans, luhn, mod97

CARDS = [
    *("4111 1111 1111 1111", "4111111111111111", "4111-1111-1111-1111", "5555555555554444", "2223003122003222"),
    *("378282246310005", "3782 822463 10005", "6011111111111117", "3530111333300000", "30569309025904"),
]
IBANS = ["DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "FR1420041010050500013M02606", "NO93 8601 1117 947"]


def found(detector, text):
    return [text[one.start : one.end] for one in detector(text)]


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("around", ["{}", "card {}.", '"{}"', "pay with {}, please", "Card: {}\n"])
def test_cards_are_found(card, around):
    """In one piece or in the groups that are printed on them."""
    assert found(cards, around.format(card)) == [card]


@pytest.mark.parametrize("card", CARDS)
def test_a_card_with_a_wrong_digit_is_none(card):
    """Luhn's check finds every wrong digit."""
    for place, digit in enumerate(card):
        if digit.isdigit():
            wrong = f"{card[:place]}{(int(digit) + 1) % 10}{card[place + 1 :]}"
            assert found(cards, wrong) == []
    assert luhn("79927398713")
    assert not luhn("79927398710")


@pytest.mark.parametrize(
    "text",
    [
        "2019 2018 2017 2016",
        "4111 1111 1111 1111 1111",
        "12 4111 1111 1111 1111",
        "4,111,111,111,111,111",
        "$4111111111111111",
        "4111111111111111.25",
        "4111111111111111%",
        "0.4111111111111111",
        "-4111111111111111",
        "id4111111111111111",
        "1754000000123456789",
        "4111 1111-1111 1111",
        "\u0664111111111111111",
    ],
)
def test_numbers_that_are_no_cards(text):
    """Years, amounts, shares, times, longer numbers and rows of a table."""
    assert found(cards, text) == []


def test_rows_of_a_table_are_no_cards():
    """Of 20,000 random rows of four-digit figures with five or more columns, none; with thousands, none."""
    rng = random.Random(5)
    for _ in range(20_000):
        row = " ".join(str(rng.randint(1000, 9999)) for _ in range(rng.randint(5, 9)))
        assert found(cards, row) == []
        assert found(cards, " | ".join(f"{rng.randint(10**12, 10**15):,}" for _ in range(4))) == []


@pytest.mark.parametrize("iban", IBANS)
def test_ibans_are_found(iban):
    """In one piece or in groups of four, whatever words follow."""
    assert found(ibans, f"to {iban} by noon") == [iban]
    assert found(ibans, f"to {iban} PAID 2024") == [iban]
    assert mod97(iban.replace(" ", "")) == 1


@pytest.mark.parametrize("iban", IBANS)
def test_an_iban_with_a_wrong_digit_is_none(iban):
    """Neither is one of a country that has none, nor one of another length."""
    place = iban.rindex("0") if "0" in iban else 5
    assert found(ibans, f"{iban[:place]}7{iban[place + 1 :]}") == []
    assert found(ibans, f"XX{iban[2:]}") == []
    assert found(ibans, f"{iban}0") == []
