"""Stories on the real broker: what is killed, stopped, joined or poisoned, and what must come out all the same.

Each lives through a small night in lockstep and is compared with the undisturbed one. The workers are processes of
their own, so that they can be killed as the platform kills them; the world stays in the test's process.
"""
