"""The ten kinds of question, each with the expression that answers it and the mistakes people make.

Placeholders: `{c}` company, `{y}` fiscal year, `{p}` the year before, `{a}` and `{b}` two rows of one report;
`{d}` and `{z}` the second company and its year in the questions about two companies.
"""

from typing import Final, NamedTuple


class Template(NamedTuple):
    """One kind of question. The first mistake is the usual one."""

    name: str
    question: str
    expression: str
    mistakes: tuple[str, ...]
    companies: int = 1


TEMPLATES: Final = (
    Template("lookup", "{a} of {c} in FY{y}?", "{a}{y}", ("{a}{p}", "{b}{y}")),
    Template(
        "difference",
        "change in {a} of {c} from FY{p} to FY{y}?",
        "{a}{y}-{a}{p}",
        ("{a}{p}-{a}{y}", "{a}{y}+{a}{p}"),
    ),
    Template(
        "percent",
        "percent change in {a} of {c} from FY{p} to FY{y}?",
        "({a}{y}-{a}{p})/{a}{p}*100",
        ("({a}{y}-{a}{p})/{a}{y}*100", "({a}{y}-{a}{p})/{a}{p}"),
    ),
    Template(
        "ratio",
        "ratio of {a} to {b} of {c} in FY{y}?",
        "{a}{y}/{b}{y}",
        ("{b}{y}/{a}{y}", "{a}{p}/{b}{p}"),
    ),
    Template(
        "share",
        "{a} as percent of {b} of {c} in FY{y}?",
        "{a}{y}/{b}{y}*100",
        ("{a}{y}/{b}{y}", "{b}{y}/{a}{y}*100"),
    ),
    Template(
        "sum",
        "total of {a} and {b} of {c} in FY{y}?",
        "{a}{y}+{b}{y}",
        ("{a}{p}+{b}{p}", "{a}{y}-{b}{y}"),
    ),
    Template(
        "sum_years",
        "total {a} of {c} over FY{p} and FY{y}?",
        "{a}{p}+{a}{y}",
        ("({a}{p}+{a}{y})/2", "{a}{y}+{a}{y}"),
    ),
    Template(
        "average",
        "average {a} of {c} over FY{p} and FY{y}?",
        "({a}{p}+{a}{y})/2",
        ("{a}{p}+{a}{y}", "{a}{p}+{a}{y}/2"),
    ),
    Template(
        "cross_difference",
        "{a} of {c} in FY{y} less that of {d} in FY{z}?",
        "{c}.{a}{y}-{d}.{a}{z}",
        ("{d}.{a}{z}-{c}.{a}{y}", "{c}.{a}{y}+{d}.{a}{z}"),
        companies=2,
    ),
    Template(
        "cross_sum",
        "{a} of {c} in FY{y} plus that of {d} in FY{z}?",
        "{c}.{a}{y}+{d}.{a}{z}",
        ("{c}.{a}{y}-{d}.{a}{z}", "{c}.{a}{y}"),
        companies=2,
    ),
)
