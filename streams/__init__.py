"""The stream processors: assembly, grading, buffering, trigger."""
