"""A verdict on an implementation that nobody trusts: the parent holds clock and seeds, each other part is a process.

docs/judge.md has the threat model. `trial` is the flow, `runner` the program that calls implementations (sandboxed for
the judged file, a second one for its peers), `reference` the one that draws inputs and knows the right answers.
"""
