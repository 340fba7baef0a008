"""A price table: which row counts, what a call costs, and what a table may not say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from millstream.codec import decode, encode
from millstream.errors import SettingsError
from millstream.events import EventId, MessageReceived, ModelResponded, Priced, TrajectoryId, Usage
from millstream.prices import load, origin
from millstream.values import usage_of

TABLE = """
version = "2026-11-01"
currency = "EUR"

[[price]]
model = "small-*"
since = 2025-01-01
input = 1.0
output = 4.0

[[price]]
model = "small-*"
since = 2025-07-01
input = 0.5
cached = 0.1
output = 2.0
reasoning = 3.0

[[price]]
model = "small-pro-*"
since = 2025-01-01
input = 10
output = 40

[[price]]
model = "small-pro-1"
since = 2025-01-01
input = 0
output = 0
"""


def at(*day):
    return int(datetime(*day, tzinfo=UTC).timestamp()) * 1_000_000_000


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "prices.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


@pytest.fixture
def prices(write):
    return load(write(TABLE))


AUGUST = at(2025, 8, 1)


def called(model="small-1", time_ns=AUGUST, **counted):
    usage = Usage(**{"input_tokens": 1000, "output_tokens": 100, **counted})
    return ModelResponded(id=EventId("e"), trajectory_id=TrajectoryId("t"), model=model, time_ns=time_ns, usage=usage)


@pytest.mark.parametrize(
    ("model", "day", "since", "output"),
    [
        ("small-1", (2025, 8, 1), "2025-07-01", 2.0),
        ("small-1", (2025, 7, 1), "2025-07-01", 2.0),
        ("small-1", (2025, 6, 30, 23, 59, 59), "2025-01-01", 4.0),
        ("small-pro-2", (2025, 8, 1), "2025-01-01", 40.0),
        ("small-pro-1", (2025, 8, 1), "2025-01-01", 0.0),
        ("small-1", None, "2025-07-01", 2.0),
    ],
)
def test_the_row_that_counts(prices, model, day, since, output):
    """A whole name, then the longest pattern, then the latest day not after the call; without a time the latest."""
    price = prices.of(model, at(*day) if day else 0)
    assert (price.since.isoformat(), price.output) == (since, output)


@pytest.mark.parametrize(("model", "day"), [("large", (2025, 8, 1)), ("small-1", (2024, 12, 31)), ("", (2025, 8, 1))])
def test_no_row(prices, model, day):
    """Another model, or a call from before all prices: no cost, and the response stays what it is."""
    response = called(model, at(*day))
    assert prices.of(model, at(*day)) is None
    assert prices.priced(response) is response
    assert origin(response.usage) == "unknown"


def test_what_a_call_costs(prices):
    """700 fresh tokens at 0.5, 300 cached at 0.1, 60 written at 2 and 40 thought at 3 a million:
    350 + 30 + 120 + 120 = 620 millionths.
    """
    usage = prices.priced(called(cached_tokens=300, reasoning_tokens=40)).usage
    assert usage.cost == pytest.approx(620e-6)
    assert usage.priced == Priced(table="2026-11-01", since="2025-07-01", currency="EUR")
    assert origin(usage) == "priced"


def test_prices_that_are_not_told_are_those_of_the_whole(prices):
    """Cached input at the price of input, reasoning at that of output: 1000 at 1 and 100 at 4 a million."""
    response = called(time_ns=at(2025, 2, 1), cached_tokens=300, reasoning_tokens=40)
    assert prices.priced(response).usage.cost == pytest.approx(1400e-6)


def test_counts_that_contradict_each_other_cost_nothing_twice(prices):
    """More cached than read, more thought than written: no part is negative."""
    usage = prices.priced(called(input_tokens=10, cached_tokens=1000, output_tokens=1, reasoning_tokens=50)).usage
    assert usage.cost == pytest.approx((1000 * 0.1 + 50 * 3) / 1e6)
    assert prices.priced(called(input_tokens=-5, output_tokens=10)).usage.cost == pytest.approx(10 * 2 / 1e6)


def test_a_cost_that_was_told_stands_and_one_of_a_table_is_reckoned_anew(prices, write):
    """A table that knows the model no more takes its own cost back."""
    told = called(cost=0.5)
    assert prices.priced(told) is told
    assert origin(told.usage) == "told"
    once = prices.priced(called())
    assert prices.priced(once) == once
    dearer = load(write(TABLE.replace("output = 2.0", "output = 20.0").replace("2026-11-01", "2026-11-02")))
    again = dearer.priced(once).usage
    assert (again.cost, again.priced.table) == (pytest.approx(2500e-6), "2026-11-02")
    none = load(write('version = "x"\ncurrency = "EUR"\nprice = []\n')).priced(once)
    assert (none.usage.cost, none.usage.priced) == (0.0, None)


def test_a_free_model_has_a_known_cost(prices):
    """0 is a price; no tokens are none."""
    assert origin(prices.priced(called("small-pro-1")).usage) == "priced"
    nothing = called(input_tokens=0, output_tokens=0)
    assert prices.priced(nothing) is nothing
    assert origin(nothing.usage) == "none"


def test_lines_keep_what_is_not_priced_to_the_byte(prices):
    """Only a priced call is written again."""
    line = encode(called())
    assert decode(prices.line(line)) == prices.priced(called())
    for other in (encode(called("large")), b'{"kind":"ModelResponded","x":', encode(message('say "ModelResponded"'))):
        assert prices.line(other) is other


def message(content):
    return MessageReceived(id=EventId("e"), trajectory_id=TrajectoryId("t"), content=content)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version = 1", "is no price table"),
        (TABLE + "dollars = 3", "unknown field `dollars`"),
        (TABLE.replace("input = 1.0", "input = -1.0"), "Expected `float` >= 0"),
        (TABLE.replace("input = 1.0", "input = inf"), "<= 1000000000000"),
        (TABLE.replace("input = 1.0", "input = 1.7e308"), "<= 1000000000000"),
        (TABLE.replace("since = 2025-07-01", "since = 2025-01-01"), "two prices of 'small-*' since 2025-01-01"),
        (TABLE.replace('currency = "EUR"', ""), "currency"),
        (TABLE.replace("since = 2025-07-01", 'since = "soon"'), "Invalid RFC3339"),
    ],
)
def test_a_table_that_is_none_is_refused(write, text, told):
    """With its path and what is wrong."""
    with pytest.raises(SettingsError, match=r"\[assembly\] prices: .*prices\.toml") as refused:
        load(write(text))
    assert told in str(refused.value)


def test_a_table_that_is_not_there_is_refused(tmp_path):
    """It is named."""
    with pytest.raises(SettingsError, match=r"none\.toml can't be read"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}}, (100, 60)),
        ({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}}, (100, 60)),
        ({"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 5}, (105, 60)),
        ({"prompt_tokens": 100, "cache_read_input_tokens": 60}, (100, 60)),
    ],
)
def test_cached_tokens_are_part_of_the_input_whoever_counts(told, counted):
    """OpenAI counts them in, Anthropic beside it."""
    usage = usage_of(told)
    assert (usage.input_tokens, usage.cached_tokens) == counted


@pytest.mark.parametrize("count", [-(2**63), -1, 0, 1, 10**6, 2**63 - 1])
@pytest.mark.parametrize("cached", [0, 7, 2**63 - 1])
@pytest.mark.parametrize("time_ns", [-(2**63), 0, 2**63 - 1])
def test_any_count_at_any_time_has_a_cost_that_can_be_written(write, count, cached, time_ns):
    """The dearest table there may be, the largest counts an event may tell: a finite number, none below nothing."""
    prices = load(write(TABLE.replace("0.5", "1e12").replace("2.0", "1e12").replace("3.0", "1e12")))
    usage = Usage(input_tokens=count, output_tokens=count, cached_tokens=cached, reasoning_tokens=cached)
    told = ModelResponded(
        id=EventId("e"), trajectory_id=TrajectoryId("t"), model="small-1", time_ns=time_ns, usage=usage
    )
    cost = decode(prices.line(encode(told))).usage.cost
    assert 0 <= cost < float("inf")
