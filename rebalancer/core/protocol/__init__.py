"""How plans are carried out: pure state machines that ask for calls and are told the answers.

``actor`` is the whole act role; ``lending`` and ``takeback`` run one plan each, ``homeward`` one node, ``gang`` one
gang; ``guard`` are the node edits, ``tables`` the legal moves, ``fallback`` what falls due while Kafka is silent.
Nothing here performs a call, waits, reads a clock or draws a random number.
"""
