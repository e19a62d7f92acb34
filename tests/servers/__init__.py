"""Real servers for the tests: fetched once, checked, cached, started on free ports, stopped by pid.

Nothing but Python is assumed. Nothing here knows the product; it must never be imported by it.
"""
