"""How a process produces events; the only place in capture that may import torch, pynvml and psutil."""
