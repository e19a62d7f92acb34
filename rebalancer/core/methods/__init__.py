"""The methods, in priority order: protect, reclaim, return, lend. Each is a small file with one signature.

A method reads the state and a look at one pool and proposes drafts; it changes nothing. What it may not do at
a moment is decided by the guard table in ``guards``.
"""
