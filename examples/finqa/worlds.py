"""The synthetic reports that the example agent searches and reads.

A world is a small corpus of annual reports, drawn from its number alone: the same number gives the same
companies, rows and figures on any machine. Nothing in it is real data.
"""

import random
import re
from functools import lru_cache
from typing import Final, NamedTuple

COMPANIES: Final = (
    "acme",
    "apex",
    "bolt",
    "cedar",
    "delta",
    "ember",
    "falcon",
    "garnet",
    "harbor",
    "iris",
    "juniper",
    "kestrel",
    "lumen",
    "maple",
    "nimbus",
    "onyx",
    "pioneer",
    "quartz",
    "raven",
    "summit",
)
ROWS: Final = ("revenue", "cost", "profit", "assets", "debt", "equity", "cash", "capex")
COMPANIES_PER_WORLD: Final = 12
REPORTS_PER_COMPANY: Final = 3
ROWS_PER_REPORT: Final = 4
HITS_PER_SEARCH: Final = 2
_FIRST_YEARS: Final = range(19, 24)
_WORDS = re.compile(r"[a-z]+|\d+")


class Report(NamedTuple):
    """One filing: a table of rows, each with the figure of the year before and of the fiscal year itself."""

    company: str
    year: int
    table: dict[str, tuple[int, int]]


class World:
    """A corpus of reports, the same for the same number."""

    def __init__(self, number: int) -> None:
        """Draw the reports of world `number` (any integer)."""
        draw = random.Random(f"finqa-world-{number}")
        self.number = number
        self.companies = tuple(draw.sample(COMPANIES, COMPANIES_PER_WORLD))
        self.years: dict[str, tuple[int, ...]] = {}
        self.reports: dict[str, Report] = {}
        self.document_ids: dict[tuple[str, int], str] = {}
        for company in self.companies:
            self._draw_company(company, draw)

    def _draw_company(self, company: str, draw: random.Random) -> None:
        first = draw.choice(_FIRST_YEARS)
        rows = draw.sample(ROWS, ROWS_PER_REPORT)
        figures = {row: [draw.randint(100, 999) for _ in range(REPORTS_PER_COMPANY + 1)] for row in rows}
        self.years[company] = tuple(range(first, first + REPORTS_PER_COMPANY))
        for offset, year in enumerate(self.years[company]):
            table = {row: (values[offset], values[offset + 1]) for row, values in figures.items()}
            document = f"{company}/{year}/p{draw.randint(1, 9)}"
            self.reports[document] = Report(company, year, table)
            self.document_ids[company, year] = document

    def report(self, company: str, year: int) -> Report:
        """The filing of `company` for fiscal `year` (two digits); KeyError where there is none."""
        return self.reports[self.document_ids[company, year]]

    def search(self, query: str) -> str:
        """The best document ids for a query of company names and years, joined by `; `, or `no results`.

        A company counts 2, a year 1.5; ties fall in an order that depends on the query and the world only.
        """
        words = set(_WORDS.findall(query))
        ties = random.Random(f"{self.number}-{query}")
        scored = []
        for document, report in self.reports.items():
            score = 2.0 * (report.company in words) + 1.5 * (str(report.year) in words)
            if score > 0:
                scored.append((-score, ties.random(), document))
        scored.sort()
        return "; ".join(document for _, _, document in scored[:HITS_PER_SEARCH]) or "no results"

    def render(self, document: str) -> str:
        """The text of one report, such as `acme FY21 FY22; revenue 310 402; …`; KeyError where there is none."""
        company, year, table = self.reports[document]
        rows = "; ".join(f"{row} {before} {after}" for row, (before, after) in table.items())
        return f"{company} FY{year - 1} FY{year}; {rows}"

    def values(self, document: str) -> dict[str, float]:
        """The figures of one report by reference: `profit22` and `harbor.profit22`; KeyError where there is none."""
        company, year, table = self.reports[document]
        values: dict[str, float] = {}
        for row, figures in table.items():
            for shown, figure in zip((year - 1, year), figures, strict=True):
                values[f"{row}{shown}"] = values[f"{company}.{row}{shown}"] = figure
        return values


@lru_cache(maxsize=512)
def world(number: int) -> World:
    """World `number`, kept for reuse: worlds are read-only, and a batch of episodes asks for few of them."""
    return World(number)
