"""Graders: trajectories in, grades out. One grader, one file; a failed grade is a status, never a number."""
