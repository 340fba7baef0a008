"""What people look at: reports, explanations, the state of the loop."""
