"""WebLLM and MLC-LLM kernel profiles, printed or as console records."""
