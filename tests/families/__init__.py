"""Every published family end to end: its fixture converted, run in llama.cpp and compared with PyTorch."""
