import random

from millstream.streams.near_duplicates import NearDuplicates, compact, similarity


def signature(seed, changed=0):
    """128 minima of which the last ``changed`` differ from those of another seed's."""
    values = _values(seed)
    other = _values(seed + 10_000)
    return compact(values[: 128 - changed] + other[128 - changed :])


def _values(seed):
    stream = random.Random(seed)
    return [stream.getrandbits(32) for _ in range(128)]


def test_similarity_is_the_share_of_equal_minima():
    """64 of 128 equal minima estimate a similarity of one half, up to chance agreements of a byte."""
    assert abs(similarity(signature(1), signature(1, changed=64)) - 0.5) < 0.02
    assert similarity(signature(1), signature(1)) == 1.0
    assert similarity(signature(1), b"") == 0.0


def test_a_twin_is_found_in_another_group_only():
    """The same text in its own group is no duplicate, in another group it is."""
    index = NearDuplicates(0.7)
    index.add("s", "one", signature(1))
    assert index.twin("s", "one", signature(1)) == ""
    assert index.twin("s", "two", signature(1, changed=10)) == "one"
    assert index.twin("other scope", "two", signature(1)) == ""


def test_distinct_texts_pass():
    """Of 200 unrelated signatures none is called a duplicate."""
    index = NearDuplicates(0.7)
    for seed in range(200):
        index.add("s", f"g{seed}", signature(seed))
    assert not any(index.twin("s", "new", signature(1000 + seed)) for seed in range(200))


def test_a_group_is_one_only_when_every_member_is():
    """One fresh member saves its group."""
    index = NearDuplicates(0.7)
    index.add("s", "one", signature(1))
    assert index.twin_of_all("s", "two", [signature(1), signature(1)]) == "one"
    assert index.twin_of_all("s", "two", [signature(1), signature(2)]) == ""
    assert index.twin_of_all("s", "two", [signature(1), b""]) == ""


def test_what_was_discarded_is_forgotten():
    """After a discard nothing is found and nothing is kept."""
    index = NearDuplicates(0.7)
    index.add("s", "one", signature(1))
    index.discard("s", "one", signature(1))
    assert index.twin("s", "two", signature(1)) == ""
    assert not any(table for tables in index._scopes.values() for table in tables)
