"""A seeded simulation of the real core: `python -m tests.simulation --seed 7 --steps 1500`."""
