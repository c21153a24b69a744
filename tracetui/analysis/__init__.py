"""Pure functions from frame to frame over one run: no drawing, no files, no Textual."""
