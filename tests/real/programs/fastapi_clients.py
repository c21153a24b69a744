"""A model behind FastAPI, asked by three clients at once: fastapi_clients.py [CLOCK.json].

Endpoints run in threads of the server. Prints the tokens of all requests; the file gets the number of those
that were decoded, and the seconds in which at least one thread did that, by its own clock.
"""

import json
import sys
import threading
import time
import urllib.request
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, set_seed

CLIENTS, REQUESTS, PROMPT, TOKENS = 3, 4, 10, 24
set_seed(0)
torch.set_num_threads(1)
config = LlamaConfig(
    vocab_size=512, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()
app = FastAPI()
decoded: list[tuple[float, float]] = []  # begin and end of each call with one token


@app.get("/generate")
def generate(first: int) -> list[int]:
    ids, cache, made = torch.arange(first, first + PROMPT)[None], DynamicCache(), list[int]()
    with torch.inference_mode():
        for number in range(TOKENS):
            begin = time.perf_counter()
            ids = model(ids, past_key_values=cache).logits[:, -1].argmax(-1, keepdim=True)
            made.append(int(ids))
            if number:
                decoded.append((begin, time.perf_counter()))
    return made


server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.01)
port = server.servers[0].sockets[0].getsockname()[1]
answers: dict[int, list[int]] = {}


def ask(client: int) -> None:
    for number in range(REQUESTS):
        first = 5 + 20 * (client * REQUESTS + number)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate?first={first}") as answer:
            answers[first] = json.load(answer)


clients = [threading.Thread(target=ask, args=(client,)) for client in range(CLIENTS)]
for each in clients:
    each.start()
for each in clients:
    each.join()
server.should_exit = True
thread.join()
seconds, last = 0.0, 0.0
for begin, end in sorted(decoded):
    seconds, last = seconds + max(0.0, end - max(begin, last)), max(end, last)
if sys.argv[1:]:
    Path(sys.argv[1]).write_text(json.dumps({"tokens": len(decoded), "seconds": seconds}))
print(sorted(answers.items()))
raise SystemExit(3)
