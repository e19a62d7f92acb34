"""How plans are carried out, as pure state machines: calls out, answers in.

Act and the simulator are shells around what is here. Nothing here does I/O, sleeps or reads a clock.
"""
