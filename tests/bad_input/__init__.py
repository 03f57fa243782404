"""Bad input: each gets its exact answer, and every other peer keeps being served."""
