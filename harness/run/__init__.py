"""From settings to a results file: plan, start workers, run the jobs, survive what happens to them.

Imports `worker`, `sanitizer` and what stands below them.
"""
