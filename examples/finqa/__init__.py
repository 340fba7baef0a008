"""The FinQA-style example: synthetic reports, an agent with three tools, its tasks and its tiny policy."""
