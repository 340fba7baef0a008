"""How events get in: the SDK, importers and redaction."""
