"""Scenario tables: stories as data, played on the engine alone or on a whole simulated cluster. See README.md."""
