"""Does a draft pay here? Decode plainly and with the draft, in turns, and say what each costs and gives.

``worker`` measures in a child process; ``counts``, ``costs``, ``calibration`` and ``verdict`` are pure functions of
what it measured; ``terminal``, ``charts``, ``page`` and ``picture`` show it.
"""

#: tokens that are decoded for each prompt, the seconds after which no further measurement is begun, and the seconds
#: after which llama.cpp is stopped; here, because the command line shows them and must not load more than this
DEFAULT_MAX_TOKENS = 64
DEFAULT_SECONDS = 300.0
DEFAULT_TIMEOUT = 1800.0
