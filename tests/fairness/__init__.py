"""Floods against a bystander pair: `python -m tests.fairness` prints how long it waits."""
