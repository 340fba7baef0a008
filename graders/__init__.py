"""Trajectories in, grades out."""
