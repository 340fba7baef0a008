"""Dialects: what others' telemetry says, read into our events. Pure, below capture (which reads files with it)
and streams (which read the log with it).
"""
