import os

os.environ["STARTED_BY"] = "a sitecustomize of its own"
