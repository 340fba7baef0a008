"""How a grader is examined before it teaches: tasks, attacks on them, and the verdict."""
