"""Property tests; `HYPOTHESIS_PROFILE=hunt pytest tests/properties` looks further afield."""
