"""Pure functions from frame to frame: no drawing, no files, no Textual."""
