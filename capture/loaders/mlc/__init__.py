"""WebLLM and MLC-LLM kernel profiles, printed as tables or as records in a browser console.

kernel_profile: loader; parses the printed tables, one run per section
console_records: parse the records in a console log
guess_roles: guess what each kernel does; guesses are marked
"""
