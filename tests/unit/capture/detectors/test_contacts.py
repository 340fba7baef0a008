"""E-mail addresses and telephone numbers; amounts and shares are none."""

from __future__ import annotations

import pytest

from millstream.capture.detectors.contacts import emails, phones


def found(detector, text):
    return [text[one.start : one.end] for one in detector(text)]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("mail ann@example.com.", "ann@example.com"),
        ("<Ann.B+tag@mail.example.co.uk>", "Ann.B+tag@mail.example.co.uk"),
        ('"mia.li3818@example.com"', "mia.li3818@example.com"),
        ("mailto:a@b.io?subject=x", "a@b.io"),
        ("'o'brien@example.org'", "o'brien@example.org"),
        ("@decorator and a @ b, 3 @ 4.50", None),
        ("x@localhost", None),
        ("clone git@github.com:a/b.git", None),
        ("user@", None),
    ],
)
def test_emails(text, address):
    """Whole, without the letters around them."""
    assert found(emails, text) == ([address] if address else [])


@pytest.mark.parametrize(
    "number",
    [
        *(
            "+1 415 555 0132",
            "+14155550132",
            "+44 20 7946 0958",
            "+49 (0)30 901820",
            "+33 1 23 45 67 89",
            "+86 138 0013 8000",
        ),
        *("(510) 887-0152", "(267)687-7964", "215-278-2429", "215.278.2429", "0049 30 901820", "+34 612 345 678"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "at {}.", '"{}"', "ring {}, or write", "{}\n"])
def test_telephone_numbers(number, around):
    """International ones by their country, national ones by their separators."""
    assert found(phones, around.format(number)) == [number]


@pytest.mark.parametrize(
    "text", ["Tel. 030 901820", "phone: 5550132", "my mobile number is 0171 2345678", '"phone": "9018201"']
)
def test_a_word_before_a_number_says_what_it_is(text):
    """Also where the number alone says nothing."""
    assert len(found(phones, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "+1 234 567",
            "+1,234,567,890",
            "+12 345 678 million",
            "+49 301 234 567 EUR",
            "$+4930901820",
            "+ 1 234 567 890",
        ),
        *("1234567890", "2019-2018-2017", "12.5-13.5", "(1,234) 5,678", "(555) 123", "415-555-0132%", "2,155,782,429"),
        *(
            "1 754 000 000",
            "0.0049 30 901820",
            "10-20-30",
            "2019 2018 2017",
            "(510) 887",
            "555.123.4567.89",
            "+999 123 4567",
        ),
        *("the hotel 12345678901", "cell C12: 4 500 000", "2024-06-15T12:30:45+0200", "12:00+01:00"),
    ],
)
def test_amounts_and_times_are_no_telephone_numbers(text):
    """Signs, thousands, currencies, years, ranges, losses in brackets, time zones."""
    assert found(phones, text) == []
