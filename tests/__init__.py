"""The tests of busd."""
