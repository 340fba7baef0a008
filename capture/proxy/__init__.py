"""The proxy: calls of the OpenAI API on their way to a model's server, recorded as runs."""
