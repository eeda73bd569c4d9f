"""What compute-sanitizer finds in a backward. Imports `worker` and what stands below it."""
