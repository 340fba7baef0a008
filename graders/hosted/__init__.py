"""Graders written as JSON for the hosted grading service, run here unchanged.

A definition is parsed and checked whole (`parsing`), its templates are filled from ``item`` and ``sample``
(`templates`), and it is run to a grade (`running`). What can't be graded is a `Failed` grade, never 0.
"""
