"""The tests; `pytest` from the project root runs all of them."""
