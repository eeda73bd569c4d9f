"""What the plan asks for and is missing or stale is measured, in order of importance, and published."""
