"""What an agent needs: the kit for writing one, and the worker that makes one of any command."""
