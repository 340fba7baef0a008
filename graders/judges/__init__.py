"""Judges: graders that ask a model. What it says is read strictly, and what can't be read is `Failed`."""
