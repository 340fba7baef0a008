"""The format of an installation: what a build reads, and the words for what it does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from integration.workers.builds import VERSION, next_build
from packaging.version import Version

from millstream.errors import SettingsError, Stuck
from millstream.formats import FORMATS, NEWEST, OLDEST, Format, Owner, check, check_owners, parsed
from millstream.version import __version__


def test_a_format_is_read_as_it_is_written():
    """``NUMBER NEEDS``, whatever the version looks like."""
    for one in (*FORMATS, Format(12, "1.2.3rc1")):
        assert parsed(str(one)) == one


def test_formats_rise_one_by_one():
    """Each needs at least the version of the one before, and none one that is still to come."""
    numbers = [one.number for one in FORMATS]
    assert numbers == list(range(OLDEST.number, NEWEST.number + 1))
    versions = [Version(one.needs) for one in FORMATS]
    assert versions == sorted(versions)
    assert versions[-1] <= Version(__version__)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (NEWEST.number + 1, "reads up to .*install millstream 9.1.0 or later"),
        (OLDEST.number - 1, "reads from .*the version before, `millstream format raise`, then this one"),
    ],
)
def test_what_is_not_read_names_the_way(number, says):
    """Too new: the version to install. Too old: the way through the version between."""
    with pytest.raises(Stuck, match=f"^redis://here: .* format {number}; .*{says}"):
        check(Format(number, "9.1.0"), "redis://here")


def test_a_raise_would_strand_nobody():
    """Every stage that is behind is named, those that are not are left out."""
    owners = tuple(
        Owner(stage=stage, partition=0, version=version, reads=reads)
        for stage, version, reads in (("assemble", "9.0.0", NEWEST.number + 1), ("grade", __version__, NEWEST.number))
    )
    check_owners(owners, NEWEST)
    with pytest.raises(SettingsError, match=rf"by who has grade:0 \(millstream {__version__}\): .*--force") as told:
        check_owners(owners, Format(NEWEST.number + 1, "9.0.0"))
    assert "assemble" not in str(told.value)


def test_the_next_build_of_the_upgrade_test_can_be_made(root, tmp_path):
    """It is this tree with edits of the sources, which must be where they are looked for."""
    folder = next_build(root, tmp_path / "next")
    code = "from millstream import __version__ as v, formats as f; import millstream.streams.runner; print(v, f.NEWEST)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{VERSION} {NEWEST.number + 1} {VERSION}"
