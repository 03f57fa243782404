"""What peers of the Bub project's own bus send and expect: transcripts taken from the real ones."""
