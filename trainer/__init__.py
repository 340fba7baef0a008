"""Rollouts in, a policy version out."""
