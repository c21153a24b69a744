"""WebLLM and MLC-LLM kernel profiles, printed or as console records.

`profile` is the loader; `tables` reads the printed tables, `console` the records, `roles` guesses what a
kernel does.
"""
