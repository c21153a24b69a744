"""Logs of requests to a model server, written by the server or by a client.

client_log: a client's own log, as `tracetui load` writes it
otel_spans: spans of OpenTelemetry, as vLLM exports them
sglang_log: SGLang's log of finished requests
request_rows: requests and their tokens as tables; follow a log that grows
"""
