"""Detectors: from a text to the places in it that hold one kind of secret or personal data, in linear time."""
