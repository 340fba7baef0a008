"""Worked examples that ship with Millstream."""
