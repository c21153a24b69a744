import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import uvicorn
from _models import Decoder, generate, seeded
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

model = seeded(Decoder).eval()


def answer(request):  # in one of the threads that starlette keeps
    return JSONResponse(generate(model, 8))


server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Route("/", answer)]), log_level="error"))
listener = socket.create_server(("127.0.0.1", 0))
thread = threading.Thread(target=server.run, args=([listener],))
thread.start()
url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
with ThreadPoolExecutor(3) as clients:
    print(set(clients.map(lambda _: urlopen(url).read(), range(12))))
server.should_exit = True
thread.join()
