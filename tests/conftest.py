"""Fixtures for every test. Rooms with fixtures of their own keep them in their own conftest."""

pytest_plugins = ["tests.servers.fixtures", "tests.servers.clusterfixtures"]
